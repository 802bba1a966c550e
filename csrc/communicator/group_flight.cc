#include "csrc/communicator/group_flight.h"

#include <utility>

#include "csrc/base/format.h"
#include "csrc/communicator/flight_dump.h"
#include "csrc/data/call.h"

namespace taco {
namespace {

uint64_t hashOf(uint64_t hash, const std::string& text) {
  for (const char c : text) hash = mixHash(hash, static_cast<unsigned char>(c));
  return hash;
}

// A name that is the same on all ranks of the group, and that no other group has, whatever people
// call them: the flight records of all ranks are compared by it.
std::string idOf(const std::string& name, const Topology& topology) {
  uint64_t hash = hashOf(0, name);
  for (const std::string& host : topology.hosts) hash = hashOf(hash, host);
  // The secret makes it unique; a quarter of it that is known is no help to a stranger.
  const uint64_t ofSecret = hashOf(0, topology.secret.substr(0, 4));
  return str(hash % 1000000000, "-", ofSecret % 1000000000);
}

std::shared_ptr<FlightGroup> make(const GroupFlight::Facts& facts, const Topology& topology) {
  auto group = std::make_shared<FlightGroup>();
  group->id = idOf(facts.name, topology);
  group->name = facts.name;
  group->rank = facts.rank;
  group->size = facts.size;
  group->globalRanks = facts.globalRanks;
  group->made = Clock::now();
  FlightGroups::add(group);
  return group;
}

}  // namespace

GroupFlight::GroupFlight(const Facts& facts, const Topology& topology,
                         std::optional<std::string> folder)
    : group_(make(facts, topology)), folder_(std::move(folder)) {}

TicketPtr GroupFlight::message(FlightKind kind, const ConstBuffer& buffer, int peer, int64_t tag,
                               const std::function<TicketPtr()>& post) {
  FlightRecord& record = FlightRecord::ofProcess();
  Call message;
  message.sequence = group_->messages.fetch_add(1, std::memory_order_relaxed) + 1;
  message.count = buffer.count;
  message.dtype = buffer.dtype;
  message.root = peer;
  const uint64_t number = record.post(group_->number, kind, message, tag, Clock::now());
  TicketPtr ticket;
  try {
    ticket = post();
  } catch (const Error& why) {
    record.fail(number, why.what(), Clock::now());
    throw;
  }
  ticket->onDone([number, group = group_, folder = folder_](const Ticket& done) {
    FlightRecord& ours = FlightRecord::ofProcess();
    if (done.sourceRank() >= 0) ours.setPeer(number, done.sourceRank());
    const std::optional<Error> why = done.error();
    if (!why) return ours.finish(number, Clock::now());
    ours.fail(number, why->what(), Clock::now());
    const bool isNews = !why->isCallersFault() && why->code() != ErrorCode::kAborted;
    if (isNews && !group->toldOfMessage.exchange(true)) dumpAfterFailure(folder, *group, *why);
  });
  return ticket;
}

void GroupFlight::failed(const Error& why) noexcept {
  FlightGroups::end(*group_, why.what());
  dumpAfterFailure(folder_, *group_, why);
}

void GroupFlight::ended(const Error& why) {
  FlightGroups::end(*group_, std::nullopt);  // unless it has failed before
  FlightRecord::ofProcess().failRest(group_->number, why.what(), Clock::now());
}

}  // namespace taco
