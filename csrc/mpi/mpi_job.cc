#include "csrc/mpi/mpi_job.h"

#include <stdlib.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/base/log.h"
#include "csrc/base/process_id.h"
#include "csrc/mpi/mpi_library.h"

namespace taco {
namespace {

constexpr std::chrono::seconds kSayEvery{5};

// How long a process stays in MPI_Finalize after it has seen that others of this machine are gone:
// they may only just have come out of it themselves.
constexpr std::chrono::seconds kFinalizeGrace{30};

// Waiting for others goes on with short sleeps: this is done a few times in a process's life.
constexpr std::chrono::microseconds kPause{200};

struct TheJob {
  std::mutex mutex;       // guards all below
  MpiJob* job = nullptr;  // never deleted: MPI lives as long as the process
  pid_t creator = 0;
  std::optional<Error> broken;  // MPI_Init has not come back: nothing may be tried again
};

TheJob& theJob() {
  static auto* const state = new TheJob();
  return *state;
}

void checkLength(const std::string& record) {
  if (record.size() <= MpiJob::kRecordBytes) return;
  throw Error(ErrorCode::kInvalidArgument,
              str("a record of ", record.size(), " bytes is too long; ", MpiJob::kRecordBytes,
                  " is the most"));
}

}  // namespace

MpiJob::MpiJob(std::unique_ptr<MpiApi> api) : api_(std::move(api)) {}

MpiJob& MpiJob::join(const std::string& what, const std::map<std::string, std::string>& environment,
                     const std::string& library, const Deadline& deadline) {
  TheJob& the = theJob();
  std::lock_guard<std::mutex> lock(the.mutex);
  if (the.broken) throw *the.broken;
  if (the.job != nullptr) {
    if (the.creator == ::getpid()) return *the.job;
    throw Error(ErrorCode::kAborted,
                str(what,
                    " was asked for in a process forked after MPI was initialised; MPI works "
                    "only in the process that mpirun started"));
  }
  const MpiLauncher launcher = findMpiLauncher(environment, what);
  auto job = std::unique_ptr<MpiJob>(new MpiJob(loadMpi(launcher, environment, library)));
  try {
    job->initialise(deadline);
    job->meet(deadline);
  } catch (const Error& why) {
    // Half-made requests are still MPI's.
    job.release();
    the.broken = why;
    throw;
  }
  the.creator = ::getpid();
  the.job = job.release();
  return *the.job;
}

// MPI_Init waits for all processes of the job and cannot be told for how long. So it runs on a
// thread of its own, which is left behind if the deadline passes.
void MpiJob::initialise(const Deadline& deadline) {
  if (api_->isFinalized()) {
    throw Error(ErrorCode::kSystem,
                "MPI was already finalised in this process, and cannot be initialised again; make "
                "the process group before whatever calls MPI_Finalize");
  }
  MpiThreads level = MpiThreads::kSingle;
  if (api_->isInitialized()) {
    level = api_->threads();
  } else {
    struct Call {
      std::mutex mutex;
      std::condition_variable ended;
      bool done = false;
      MpiThreads level = MpiThreads::kSingle;
      std::optional<Error> why;
    };
    auto call = std::make_shared<Call>();
    std::thread([call, api = api_] {
      MpiThreads given = MpiThreads::kSingle;
      std::optional<Error> why;
      try {
        given = api->init();
      } catch (const Error& error) {
        why = error;
      }
      std::lock_guard<std::mutex> lock(call->mutex);
      call->level = given;
      call->why = why;
      call->done = true;
      call->ended.notify_all();
    }).detach();
    std::unique_lock<std::mutex> lock(call->mutex);
    while (!call->ended.wait_for(lock, deadline.remaining(kSayEvery), [&] { return call->done; })) {
      if (deadline.expired()) {
        throw Error(ErrorCode::kTimeout,
                    str("MPI_Init Timed out after ", deadline.budget().count(),
                        " ms: not all processes that mpirun started have called it"));
      }
      log(LogLevel::kWarn, "MPI_Init waits for the other processes that mpirun started");
    }
    if (call->why) throw *call->why;
    level = call->level;
    endWithProcess();
  }
  if (level < MpiThreads::kSerialized) {
    throw Error(
        ErrorCode::kSystem,
        str("MPI (", api_->version(), ") was initialised for one thread only (",
            level == MpiThreads::kSingle ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED",
            "), but TACO calls it from several, one at a time; initialise it with "
            "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, or make the process group first"));
  }
}

void MpiJob::meet(const Deadline& deadline) {
  const int size = api_->size();
  self_ = MpiAddress::ofThisProcess();
  self_.worldRank = api_->rank();
  MpiRequest duplicate = api_->duplicateWorld();
  complete(duplicate, nullptr, "MPI_Comm_idup", deadline);

  addresses_.resize(static_cast<size_t>(size));  // size() is used by allGather
  self_.job = randomHex(8);
  const std::vector<std::string> records = allGather(self_.encode(), deadline);
  for (size_t rank = 0; rank < records.size(); ++rank) {
    addresses_[rank] = MpiAddress::decode(records[rank]);
  }
  self_.job = addresses_[0].job;
  for (MpiAddress& address : addresses_) address.job = self_.job;
  log(LogLevel::kInfo, str("rank ", rank(), " of ", size, " of MPI: ", version()));
  port_ = std::make_unique<MpiPort>(*api_);
  api_->beforeFinalize([this] {
    if (self_.pid == static_cast<int>(::getpid())) port_->stop();
  });
}

// Waits for a collective. `memory` is MPI's until then, and for ever if the deadline passes.
void MpiJob::complete(MpiRequest& request, std::shared_ptr<std::vector<char>> memory,
                      const char* what, const Deadline& deadline) {
  auto sayAt = Clock::now() + kSayEvery;
  for (;;) {
    const auto look = [&] { return api_->test(request).done; };
    if (port_ ? port_->exclusively(look) : look()) return;
    if (deadline.expired()) {
      if (memory) keepForever(memory);
      throw Error(ErrorCode::kTimeout, str(what, " Timed out after ", deadline.budget().count(),
                                           " ms: not all processes that mpirun started take part"));
    }
    if (Clock::now() >= sayAt) {
      sayAt = Clock::now() + kSayEvery;
      log(LogLevel::kWarn, str(what, " waits for the other processes that mpirun started"));
    }
    std::this_thread::sleep_for(deadline.remaining(kPause));
  }
}

std::vector<std::string> MpiJob::allGather(const std::string& record, const Deadline& deadline) {
  constexpr size_t kEach = kRecordBytes + 1;
  checkLength(record);
  // This process's record in front, then everybody's.
  auto memory = std::make_shared<std::vector<char>>(kEach * (addresses_.size() + 1), '\0');
  std::memcpy(memory->data(), record.data(), record.size());
  const auto begin = [&] { return api_->allGather(memory->data(), memory->data() + kEach, kEach); };
  MpiRequest request = port_ ? port_->exclusively(begin) : begin();
  complete(request, memory, "the rendezvous through MPI (MPI_Iallgather)", deadline);
  std::vector<std::string> records;
  for (size_t i = 1; i <= addresses_.size(); ++i) records.emplace_back(memory->data() + i * kEach);
  return records;
}

std::string MpiJob::broadcast(const std::string& text, int root, const Deadline& deadline) {
  checkLength(text);
  auto memory = std::make_shared<std::vector<char>>(kRecordBytes + 1, '\0');
  std::memcpy(memory->data(), text.data(), text.size());
  const auto begin = [&] { return api_->broadcast(memory->data(), memory->size(), root); };
  MpiRequest request = port_ ? port_->exclusively(begin) : begin();
  complete(request, memory, "the rendezvous through MPI (MPI_Ibcast)", deadline);
  return memory->data();
}

// on_exit and not atexit, because it tells the status. Python's own exit handlers, which end the
// groups, have run by then.
void MpiJob::endWithProcess() {
  if (::on_exit(&MpiJob::atExit, this) != 0) {
    log(LogLevel::kWarn, "MPI_Finalize will not be called: on_exit refuses");
  }
}

void MpiJob::atExit(int status, void* self) {
  auto* const job = static_cast<MpiJob*>(self);
  if (job->self_.pid != static_cast<int>(::getpid()) || !job->port_) return;
  if (status == 0) {
    job->finalize();
  } else {
    job->port_->stop();
  }
}

void MpiJob::finalize() {
  if (api_->isFinalized()) return;
  // mpirun by default ends everybody when one process dies. Where it was told not to, MPI_Finalize
  // would wait for the dead one.
  std::thread([this] {
    std::optional<Clock::time_point> deadSince;
    for (;;) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      int dead = -1;
      for (const MpiAddress& address : addresses_) {
        if (address.isDead(self_.machine)) dead = address.worldRank;
      }
      if (dead < 0) continue;
      if (!deadSince) deadSince = Clock::now();
      if (Clock::now() - *deadSince < kFinalizeGrace) continue;
      log(LogLevel::kError, str("MPI_Finalize does not return and rank ", dead,
                                " of MPI has died: this process ends without it"));
      ::_exit(1);
    }
  }).detach();
  try {
    api_->finalize();
  } catch (const Error& why) {
    log(LogLevel::kWarn, why.what());
  }
}

}  // namespace taco
