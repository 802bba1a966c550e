#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/data/call.h"

namespace taco {

// Of an operation in the flight record.
enum class FlightState : uint8_t {
  kQueued,   // called, but those before it in its group are not over
  kStarted,  // this rank is in it
  kDone,
  kFailed,
};
const char* name(FlightState state);

enum class FlightKind : uint8_t { kNotKnownYet, kCollective, kSend, kReceive };

// One operation, as the record remembers it. Times are of the monotonic clock; 0: not yet.
struct FlightOperation {
  uint64_t number = 0;  // in this process, over all groups, counted from 0
  uint32_t group = 0;   // FlightGroup::number
  FlightState state = FlightState::kQueued;
  FlightKind kind = FlightKind::kNotKnownYet;  // the first step of a queued one says what it is
  Call call;  // of sends and receives: sequence among these, count, dtype; root: the peer
  uint64_t elements = 0;  // on this rank
  int64_t tag = 0;
  const char* title = nullptr;  // what the user called; null if that is not known
  Clock::time_point queued{}, started{}, finished{};
  std::string error;  // cut off after kErrorBytes
};

// The last kCapacity operations of a process, in fixed memory: what every rank was in when a group
// failed or hung (flight_dump.h writes it down). It costs every operation, so it takes no lock: a
// place is claimed by counting, and written by one thread at a time, under a version that is odd
// meanwhile; a reader that meets a change reads again. Nobody waits for anybody: an operation that
// was overtaken by kCapacity others has lost its place, and what it still says is dropped.
//
// All methods may be called from any thread.
class FlightRecord {
 public:
  static constexpr size_t kCapacity = 2000;
  static constexpr size_t kErrorBytes = 192;

  // Of this process. A forked child begins an empty one. Never destroyed.
  static FlightRecord& ofProcess();

  // Returns the operation's number, by which the other methods know it. `title` is a literal.
  uint64_t queue(uint32_t group, const char* title, Clock::time_point now);
  // A send or receive has no queue: it starts at once.
  uint64_t post(uint32_t group, FlightKind kind, const Call& message, int64_t tag,
                Clock::time_point now);
  void start(uint64_t number, const Call& call, uint64_t elements, Clock::time_point now);
  void finish(uint64_t number, Clock::time_point now);
  void fail(uint64_t number, const char* why, Clock::time_point now);
  // The rank that a receive from any source was matched with.
  void setPeer(uint64_t number, int peer);
  // Fails what is not over in a group that has ended.
  void failRest(uint32_t group, const char* why, Clock::time_point now);

  // A copy in the order of calling.
  std::vector<FlightOperation> operations() const;
  // Operations that were called and have lost their places to later ones.
  uint64_t forgotten() const;

  // Forgets everything: for a forked child, whose parent's operations are not its own.
  void clear();

 private:
  struct alignas(64) Place {
    std::atomic<uint64_t> version{0};  // 2 (number + 1); one more while somebody writes
    std::atomic<uint32_t> group{0};
    std::atomic<FlightState> state{};
    std::atomic<FlightKind> kind{};
    std::atomic<OpKind> op{};
    std::atomic<DType> dtype{};
    std::atomic<ReduceOp> reduceOp{};
    std::atomic<uint8_t> hasReduceOp{0};
    std::atomic<int32_t> root{-1};
    std::atomic<uint64_t> sequence{0}, count{0}, elements{0};
    std::atomic<int64_t> tag{0};
    std::atomic<const char*> title{nullptr};
    std::atomic<Clock::rep> queued{0}, started{0}, finished{0};
  };
  using ErrorText = std::array<std::atomic<uint64_t>, kErrorBytes / sizeof(uint64_t)>;

  template <typename Write>
  uint64_t claim(const Write& write);
  template <typename Write>
  void change(uint64_t number, const Write& write);
  void setCall(Place& place, const Call& call);
  bool read(uint64_t number, FlightOperation* into) const;

  alignas(64) std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> first_{0};  // numbers before it are another process's
  std::array<Place, kCapacity> places_;
  std::array<ErrorText, kCapacity> errors_;  // apart: touched only where something fails
};

}  // namespace taco
