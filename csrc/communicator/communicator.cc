#include "csrc/communicator/communicator.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "csrc/base/log.h"
#include "csrc/base/process_generation.h"
#include "csrc/communicator/endpoint.h"
#include "csrc/communicator/flight_dump.h"
#include "csrc/communicator/flight_task.h"
#include "csrc/communicator/group_collectives.h"
#include "csrc/communicator/group_flight.h"
#include "csrc/communicator/links.h"
#include "csrc/communicator/status_board.h"
#include "csrc/engine/lane.h"
#include "csrc/p2p/point_to_point.h"
#include "csrc/topology/shm_file.h"
#include "csrc/topology/topology.h"

namespace taco {
namespace {

// How long an orderly end waits for the peers' kernels to take what was sent.
constexpr Millis kGoodbye{5000};

// How long a group that works lets a store keep it waiting: what it asks there can do without.
constexpr Millis kStorePatience{500};

enum LaneNumber : size_t { kOrderedLane = 0, kPointToPointLane = 1 };

}  // namespace

struct Communicator::State {
  explicit State(const CommunicatorConfig& theConfig);

  // An operation between its call and its execution.
  struct Issued {
    const char* title;
    Millis budget;
    uint64_t number;  // in the flight record
    Clock::time_point at;
  };

  void make(const Deadline& deadline);
  void checkProcess(const char* what) const;
  Issued issue(Millis timeout, const char* title);
  void execute(const Issued& issued, FunctionRef<void(Collectives&)> body, Clock::time_point now);
  void onFailure(const Error& why);
  std::unique_ptr<Transport> connect(LaneNumber number, Endpoint& endpoint) const;

  CommunicatorConfig config;
  Settings settings;
  StatusBoard board;  // of the task that runs in the lane, and of whoever fails
  AbortSignal failure;
  Topology topology;
  std::unique_ptr<Links> links;
  std::unique_ptr<GroupFlight> flight;
  std::unique_ptr<PointToPoint> pointToPoint;
  Residuals residuals;
  Lane lane;
  uint64_t sequence = 0;                 // by the task that runs in the lane
  std::atomic<uint64_t> submitted{0};    // relaxed: a number for users to compare
  std::atomic<int64_t> timeoutMs{0};     // relaxed: read at the start of each operation
  std::atomic<bool> ended{false};        // false -> true once, by shutdown() or abort()
  const uint64_t creator = processGeneration();
};

std::unique_ptr<Transport> Communicator::State::connect(LaneNumber number,
                                                        Endpoint& endpoint) const {
  return endpoint.connect({config.rank, config.size,
                           str(config.groupName, "/", static_cast<size_t>(number)),
                           topology.secret, topology.addresses[number]});
}

Communicator::State::State(const CommunicatorConfig& theConfig)
    : config(theConfig),
      settings(readSettings(config.environment)),
      board(*config.store, config.rank) {
  setLogLevel(settings.logLevel);
  timeoutMs = config.timeout.count();
  try {
    make(config.deadline.value_or(Deadline::after(config.timeout)));
  } catch (const std::exception& error) {
    // For those that have made theirs, and will find this rank gone.
    board.showFailure(Error(ErrorCode::kSystem, error.what()));
    removeShmLeftovers();  // of a rank that was killed meanwhile
    throw;
  }
}

void Communicator::State::make(const Deadline& deadline) {
  const auto ordered = Endpoint::open(settings, config.environment, deadline);
  const auto unordered = Endpoint::open(settings, config.environment, deadline);
  topology = meet({config.rank, config.size, {ordered->address(), unordered->address()}},
                  *config.store, settings, config.environment, deadline);
  faultPoint("init.met");

  LinkParts parts;
  parts.rank = config.rank;
  parts.settings = &settings;
  parts.topology = &topology;
  parts.store = config.store.get();
  parts.abort = &failure;
  parts.mesh =
      std::make_shared<Mesh>(connect(kOrderedLane, *ordered), failure);
  links = std::make_unique<Links>(parts, deadline);
  faultPoint("init.linked");
  pointToPoint = std::make_unique<PointToPoint>(
      connect(kPointToPointLane, *unordered), failure, config.groupName);
  lane.setErrorHandler([this](const Error& why) { onFailure(why); });
  flight = std::make_unique<GroupFlight>(
      GroupFlight::Facts{config.groupName, config.rank, config.size, config.globalRanks}, topology,
      flightFolder(settings));
  config.store->limitCalls(kStorePatience);
}

// A forked child has this object's memory but none of its threads, and shares the parent's
// connections: whatever it did there would be done to the parent.
void Communicator::State::checkProcess(const char* what) const {
  if (processGeneration() == creator) return;
  throw Error(ErrorCode::kAborted,
              str(what, " was called in a process forked after the group '", config.groupName,
                  "' was made; call it in the process that made the group, or start the child "
                  "before init_process_group"));
}

void Communicator::State::onFailure(const Error& why) {
  if (why.isCallersFault()) return;
  if (!failure.raise(why)) return;
  log(LogLevel::kInfo, str("group '", config.groupName, "' failed on rank ", config.rank, ": ",
                           why.what()));
  board.showFailure(why);
  links->fail(why);
  flight->expectFailure();
  pointToPoint->fail(why);
  // Last: the others know by now, and a disk may be slow.
  flight->failed(why);
}

Communicator::Communicator(const CommunicatorConfig& config) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    throw Error(ErrorCode::kInvalidArgument,
                str("rank ", config.rank, " of ", config.size, " ranks: a rank is at least 0 and less "
                    "than the number of ranks"));
  }
  state_ = std::make_unique<State>(config);
  if (logs(LogLevel::kInfo) && config.rank == 0) log(LogLevel::kInfo, describe());
}

Communicator::~Communicator() {
  if (!state_) return;
  if (processGeneration() != state_->creator) {
    state_.release();  // see checkProcess: nothing in it is this process's to end
    return;
  }
  try {
    shutdown();
  } catch (const std::exception& error) {
    log(LogLevel::kError, str("while ending group '", state_->config.groupName, "': ",
                              error.what()));
  }
}

int Communicator::rank() const { return state_->config.rank; }
int Communicator::size() const { return state_->config.size; }
void Communicator::setTimeout(Millis timeout) { state_->timeoutMs = timeout.count(); }
Millis Communicator::timeout() const { return Millis(state_->timeoutMs.load()); }
uint64_t Communicator::sequence() const { return state_->submitted.load(); }
std::optional<Error> Communicator::failure() const { return state_->failure.reason(); }

Communicator::State::Issued Communicator::State::issue(Millis timeout, const char* title) {
  checkProcess("a collective");
  submitted.fetch_add(1, std::memory_order_relaxed);
  const auto now = coarseNow();
  return {title, timeout.count() > 0 ? timeout : Millis(timeoutMs.load(std::memory_order_relaxed)),
          FlightRecord::ofProcess().queue(flight->group().number, title, now), now};
}

void Communicator::State::execute(const Issued& issued, FunctionRef<void(Collectives&)> body,
                                  Clock::time_point now) {
  FlightTask task(flight->group(), issued.title, issued.number, now);
  GroupCollectives collectives(*links, topology.grid, settings, board, residuals, sequence, task,
                               Deadline::after(issued.budget, now + kCoarseTick));
  try {
    failure.throwIfRaised();
    body(collectives);
    task.done();
  } catch (const Error& error) {
    const Error why =
        failure.raised() ? error : collectives.withOperation(board.withReason(error, collectives.waitedFor()));
    task.failed(why.what());
    onFailure(why);
    throw why;
  } catch (const std::exception& error) {
    task.failed(error.what());
    throw;
  }
}

std::optional<Error> Communicator::run(Millis timeout, FunctionRef<void(Collectives&)> body,
                                       const char* title) {
  State& state = *state_;
  const State::Issued issued = state.issue(timeout, title);
  // On this thread it has not waited for anybody: the clock need not be read again.
  return state.lane.runNow([&, caller = ::pthread_self()] {
    const bool atOnce = ::pthread_equal(caller, ::pthread_self()) != 0;
    state.execute(issued, body, atOnce ? issued.at : coarseNow());
  });
}

TicketPtr Communicator::submit(Millis timeout, std::function<void(Collectives&)> body,
                               const char* title) {
  State& state = *state_;
  return state.lane.runLater([&state, issued = state.issue(timeout, title),
                              body = std::move(body)] { state.execute(issued, body, coarseNow()); });
}

TicketPtr Communicator::send(ConstBuffer buffer, int destination, int64_t tag, Millis timeout,
                             std::shared_ptr<void> keepAlive) {
  State& state = *state_;
  state.checkProcess("send");
  if (destination < 0 || destination >= size()) {
    throw Error(ErrorCode::kInvalidArgument,
                str("send: the destination is ", destination,
                    ", but the ranks of this group are 0 to ", size() - 1));
  }
  const Millis budget = timeout.count() > 0 ? timeout : this->timeout();
  return state.flight->message(FlightKind::kSend, buffer, destination, tag, [&] {
    return state.pointToPoint->send(destination, tag, buffer.data, buffer.bytes(),
                                    Deadline::after(budget), std::move(keepAlive));
  });
}

TicketPtr Communicator::receive(Buffer buffer, int source, int64_t tag, Millis timeout,
                                std::shared_ptr<void> keepAlive) {
  State& state = *state_;
  state.checkProcess("recv");
  if (source < -1 || source >= size()) {
    throw Error(ErrorCode::kInvalidArgument,
                str("recv: the source is ", source, ", but the ranks of this group are 0 to ",
                    size() - 1));
  }
  const Millis budget = timeout.count() > 0 ? timeout : this->timeout();
  return state.flight->message(FlightKind::kReceive, buffer, source, tag, [&] {
    return state.pointToPoint->receive(source, tag, buffer.data, buffer.bytes(),
                                       Deadline::after(budget), std::move(keepAlive));
  });
}

AllreducePlan Communicator::explainAllReduce(uint64_t bytes, DType dtype, ReduceOp op) const {
  AllreduceRequest request{bytes, dtype, op};
  const Settings& settings = state_->settings;
  request.topkRatio = topkRatioOf(request, settings, settings.topkWarmupSteps);
  request.topkFp16 = settings.topkFp16;
  const Grid& grid = state_->topology.grid;
  AllreducePlan plan = chooseAllreduce(request, grid, settings);
  const TopkMeter& meter = state_->residuals.meter();
  setTopkRates(plan, request, grid, meter.secondsPerElement(), meter.secondsPerByte());
  return plan;
}

bool Communicator::mayCompress(const AllreduceRequest& request) const {
  return topkRatioOf(request, state_->settings, 0) > 0;
}

Communicator::ResidualPlace Communicator::residualPlace(uint64_t count, DType dtype) const {
  const TopkLinks links = topkLinks(
      chooseAllreduce({count * elementBytes(dtype), dtype}, state_->topology.grid,
                      state_->settings),
      *state_->links, state_->topology.grid);
  const ColumnRange slice = topkSlice(count, links);
  return {domainOf(links), slice.begin, slice.count};
}

void Communicator::withResiduals(FunctionRef<void(Residuals&)> use) {
  State& state = *state_;
  state.checkProcess("residuals");
  if (state.lane.runsHere()) {  // in a callback of an operation, which has the lane
    state.failure.throwIfRaised();
    use(state.residuals);
    return;
  }
  std::exception_ptr thrown;  // the caller's own: nothing was sent, and the group goes on
  const auto why = state.lane.runNow([&] {
    // What an operation that failed has left is neither the old residual nor the new one.
    state.failure.throwIfRaised();
    try {
      use(state.residuals);
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  if (why) throw *why;
  if (thrown) std::rethrow_exception(thrown);
}

void Communicator::forgetResiduals(uint64_t storage) { state_->residuals.forget(storage); }

std::string Communicator::describe() const {
  std::vector<std::string> lines;
  lines.push_back(str("group '", state_->config.groupName, "', ", size(), " rank",
                      size() == 1 ? "" : "s", ", ", state_->topology.grid.describe()));
  state_->links->describe(lines);
  if (!state_->topology.memoryNote.empty()) {
    lines.push_back("shared memory: " + state_->topology.memoryNote);
  }
  lines.push_back(state_->topology.oversubscribed
                      ? "waiting: more ranks than CPUs on this host, so yield and sleep"
                      : "waiting: spin briefly, then sleep");
  lines.push_back("large all-reduce: " +
                  explainAllReduce(64 << 20, DType::kFloat32, ReduceOp::kSum).describe());
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n  ") + line;
  return text;
}

bool Communicator::sharesMemory() const { return state_->links->flat().sharesMemory(); }

Traffic Communicator::traffic() const {
  return {state_->links->sharedMemoryBytes(),
          state_->links->networkBytes() + state_->pointToPoint->bytesSent()};
}

void Communicator::shutdown() {
  State& state = *state_;
  state.checkProcess("destroy_process_group");
  if (state.ended.exchange(true)) return;
  faultPoint("destroy.begun");
  if (!state.failure.raised()) state.lane.drain(Deadline::after(timeout()));
  const Error why = state.failure.reason().value_or(
      Error(ErrorCode::kAborted, str("the group '", state.config.groupName, "' was destroyed")));
  state.lane.stop(why);
  state.residuals.clear();
  const Millis patience =
      state.failure.raised() ? Millis(0) : timeout().count() > 0 ? std::min(timeout(), kGoodbye)
                                                                 : kGoodbye;
  state.pointToPoint->close(patience);
  faultPoint("destroy.between");
  state.links->close(patience);
  state.flight->ended(why);
  faultPoint("destroy.left");
}

void Communicator::abort(const std::string& why) {
  State& state = *state_;
  state.checkProcess("abort");
  const bool wasEnded = state.ended.exchange(true);
  const Error error(ErrorCode::kAborted, why);
  state.failure.raise(error);
  if (wasEnded) return;
  state.lane.stop(error);  // whoever runs a task sees the signal in its next wait
  state.residuals.clear();
  state.links->fail(error);
  state.flight->expectFailure();
  state.pointToPoint->fail(error);
  state.pointToPoint->close(Millis(0));
  state.flight->ended(error);
}

}  // namespace taco
