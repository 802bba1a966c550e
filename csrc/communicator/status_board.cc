#include "csrc/communicator/status_board.h"

#include <vector>

#include "csrc/base/format.h"
#include "csrc/topology/fields.h"

namespace taco {
namespace {

// How long a rank looks for what the one it waited for has to say: when both ran into their
// deadlines, and when the other has failed (which may itself be looking for the first time).
constexpr Millis kTimeoutPatience{500};
constexpr Millis kReasonPatience{1000};

std::string doingKey(int rank) { return str("doing/", rank); }
std::string timeoutKey(int rank) { return str("timeout/", rank); }
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

Error StatusBoard::withReason(const Error& why) {
  if (why.rank() < 0) return why;
  try {
    if (why.code() == ErrorCode::kTimeout) {
      store_.set(timeoutKey(rank_), why.what());
      const std::string theirs =
          store_.get(timeoutKey(why.rank()), Deadline::after(kTimeoutPatience));
      return Error(why.code(), str(why.what(), "; rank ", why.rank(), " says: ", theirs),
                   why.rank());
    }
    if (why.code() == ErrorCode::kPeerFailed) {
      const std::string reason =
          store_.get(failureKey(why.rank()), Deadline::after(kReasonPatience));
      return Error(why.code(), str("rank ", why.rank(), " failed: ", reason), why.rank());
    }
  } catch (const Error&) {
    // It went, or stands still, without a word.
  }
  return why;
}

}  // namespace taco
