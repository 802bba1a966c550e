#include "csrc/communicator/status_board.h"

#include <cstdlib>
#include <set>
#include <vector>

#include "csrc/base/format.h"
#include "csrc/topology/fields.h"

namespace taco {
namespace {

// How long a rank looks for what the one it waited for has to say: when both ran into their
// deadlines, and when the other has failed (which may itself be looking for the first time).
constexpr Millis kStuckPatience{1000};
constexpr Millis kReasonPatience{1000};
constexpr size_t kMostSaid = 300;  // bytes of what one rank says in another's message

std::string doingKey(int rank) { return str("doing/", rank); }
std::string stuckKey(int rank) { return str("stuck/", rank); }
std::string failureKey(int rank) { return str("failure/", rank); }

}  // namespace

void StatusBoard::compareWith(int peer, const Call& mine) {
  std::vector<std::string> theirs;
  try {
    if (shown_ != mine.sequence) {
      store_.set(doingKey(rank_), pack({str(mine.sequence), mine.describe()}));
      shown_ = mine.sequence;
    }
    if (const auto record = store_.peek(doingKey(peer))) theirs = unpack(*record);
  } catch (const Error&) {
    return;  // no store, no answer: the deadline decides
  }
  if (theirs.size() != 2 || theirs[0] != str(mine.sequence)) return;
  if (theirs[1] == mine.describe()) return;
  throw Error(ErrorCode::kMismatch,
              str("the ranks of this group do different things: rank ", peer, " is in ", theirs[1],
                  ", but rank ", rank_, " is in ", mine.describe()),
              peer);
}

void StatusBoard::showFailure(const Error& why) {
  try {
    store_.set(failureKey(rank_), why.what());
  } catch (const Error&) {
    // The links tell whom they reach.
  }
}

Error StatusBoard::withReason(const Error& why, int waitedFor) {
  if (why.rank() < 0) return why;
  const std::string said = why.what();
  const bool toldByPeer = why.code() == ErrorCode::kPeerFailed;
  const int next = toldByPeer && waitedFor >= 0 ? waitedFor : why.rank();
  try {
    // Before anybody else's reason is known: others may find this rank gone, or look for it,
    // meanwhile.
    store_.set(stuckKey(rank_), pack({str(next), said}));
    if (why.code() == ErrorCode::kTimeout) {
      return Error(why.code(), said + sayings(next, true), why.rank());
    }
    if (!toldByPeer) return why;
    store_.set(failureKey(rank_), said);
    if (said.find("Timed out") == std::string::npos) {
      const std::string reason =
          store_.get(failureKey(why.rank()), Deadline::after(kReasonPatience));
      return Error(why.code(), str("rank ", why.rank(), " failed: ", reason), why.rank());
    }
    // That one waited in vain as well, perhaps for this rank: whom does everybody wait for?
    const std::string own = next == why.rank() ? "" : str("; rank ", rank_, " waited for rank ", next);
    return Error(why.code(), str(said, own, sayings(next, next != why.rank())), why.rank());
  } catch (const Error&) {
    // It went, or stands still, without a word.
  }
  return why;
}

// What rank `first` says, then the one that it waits for, and so on: the last one is to blame.
std::string StatusBoard::sayings(int first, bool withFirst) {
  const Deadline deadline = Deadline::after(kStuckPatience);
  std::string text;
  std::set<int> seen{rank_};
  for (int at = first; seen.insert(at).second;) {
    std::vector<std::string> record;
    try {
      record = unpack(store_.get(stuckKey(at), deadline));
    } catch (const Error& error) {
      return error.code() == ErrorCode::kTimeout ? str(text, "; rank ", at, " says nothing") : text;
    }
    if (record.size() != 2) return text;
    if (withFirst || at != first) {
      text += str("; rank ", at, " says: ", record[1].substr(0, kMostSaid));
    }
    at = std::atoi(record[0].c_str());
  }
  return text;
}

}  // namespace taco
