#pragma once

#include <optional>
#include <string>

#include "csrc/base/error.h"
#include "csrc/data/call.h"
#include "csrc/topology/key_value_store.h"

namespace taco {

// What the ranks of a group leave in its store for each other when the links cannot tell: the
// operation a rank waits in for long, what it waited for when its deadline passed, why it failed.
//
// The links reach only whom they connect. Two ranks may wait for each other on different links (one
// in a 2D all-reduce, one in a flat operation), and a rank that was never connected to the one that
// failed sees only that it is gone. Nothing is written or read while all goes well, and nothing here
// throws because the store has gone: it may go with the rank that served it.
class StatusBoard {
 public:
  StatusBoard(KeyValueStore& store, int rank) : store_(store), rank_(rank) {}

  // Shows that this rank is in `mine`, once, and throws Error(kMismatch) if `peer` shows that it is
  // in another operation with the same number. What it was in before, or will be in later, says
  // nothing.
  void compareWith(int peer, const Call& mine);

  // Why this rank's group failed.
  void showFailure(const Error& why);

  // `why` with what the rank that it names has left here: why that one failed, or whom it waited for
  // itself, and so on to the one that everybody waits for. `waitedFor`: the rank that this one was
  // waiting for when it was told (-1: none for long). Takes up to a second where nothing comes.
  Error withReason(const Error& why, int waitedFor);

 private:
  std::string sayings(int first, bool withFirst);

  KeyValueStore& store_;
  const int rank_;
  uint64_t shown_ = 0;  // sequence of the operation shown
};

}  // namespace taco
