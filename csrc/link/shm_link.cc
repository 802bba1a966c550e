#include "csrc/link/shm_link.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "csrc/base/fault_point.h"
#include "csrc/base/format.h"
#include "csrc/base/rounding.h"
#include "csrc/data/copy.h"
#include "csrc/data/prefetch.h"

namespace taco {
namespace {

size_t lineDown(size_t bytes) { return bytes / kCacheLineBytes * kCacheLineBytes; }

// a >= b for step counters, across the wrap.
bool reachedStep(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) >= 0; }

// Where rank `reader`'s share stands among the shares in `writer`'s slot: own shares are not there.
size_t shareIndex(int writer, int reader) {
  return static_cast<size_t>(reader < writer ? reader : reader - 1);
}

}  // namespace

// Measured on 2 cores: windows that stay in L2 are best while ranks have cores to themselves; when
// they share cores every step costs context switches, so fewer and larger ones win.
ShmLink::ShmLink(std::unique_ptr<ShmSegment> segment, std::vector<int> members, int member,
                 const WaitPolicy& policy, const AbortSignal& abort)
    : segment_(std::move(segment)),
      members_(std::move(members)),
      member_(member),
      policy_(policy),
      abort_(abort),
      windowBytes_(std::min<size_t>(segment_->layout().slotBytes,
                                    policy.spin.count() > 0 ? 256 << 10 : 512 << 10)),
      sources_(members_.size()) {}

std::string ShmLink::describe() const { return str("shared memory, ", size(), " ranks"); }

// --- steps ---------------------------------------------------------------------------------------

SharedCounter& ShmLink::counter(int member, Flag flag) {
  ShmSegment::Control& control = segment_->control(member);
  return flag == Flag::kArrived ? control.arrived : control.finished;
}

void ShmLink::beginStep(const OpContext& op, bool first) {
  if (first) {
    if (const auto why = segment_->failure()) throw *why;
    if (abort_.raised()) failAndThrow(*abort_.reason());
  }
  // The slot was last used two steps ago.
  if (!reachedStep(knownFinished_, step_ - 1)) waitFinished(op, step_ - 2);
  if (first) {
    ShmSegment::Control& mine = segment_->control(member_);
    mine.fingerprint[step_ & 1] = op.call.fingerprint();
    mine.calls[step_ & 1] = op.call;
    mine.place[step_ & 1] = {};
  }
}

void ShmLink::arrive() {
  faultPoint("shm.shown");
  segment_->control(member_).arrived.publish(step_ + 1);
  faultPoint("shm.arrived");
}

void ShmLink::waitArrived(const OpContext& op, int member, uint32_t step) {
  waitFor(op, member, Flag::kArrived, step + 1);
}

void ShmLink::waitAllArrived(const OpContext& op, bool first) {
  for (int d = 1; d < size(); ++d) {
    waitArrived(op, after(d), step_);
    if (first) compare(op, after(d), step_);
  }
  // Outside allReducePush a rank arrives in a step only after it has finished the one before.
  knownFinished_ = step_;
}

void ShmLink::finishStep() {
  faultPoint("shm.taken");
  segment_->control(member_).finished.publish(step_ + 1);
  ++step_;
}

void ShmLink::waitFinished(const OpContext& op, uint32_t step) {
  for (int d = 1; d < size(); ++d) waitFor(op, after(d), Flag::kFinished, step + 1);
  knownFinished_ = step + 1;
}

std::string ShmLink::membersBehind(Flag flag, uint32_t target) {
  std::string names;
  for (int m = 0; m < size(); ++m) {
    if (m == member_ || counter(m, flag).reached(target)) continue;
    names += str(names.empty() ? "" : ", ", members_[static_cast<size_t>(m)]);
  }
  return names;
}

void ShmLink::waitFor(const OpContext& op, int member, Flag flag, uint32_t target) {
  SharedCounter& flagWord = counter(member, flag);
  const int rank = members_[static_cast<size_t>(member)];
  int checks = 0;
  std::optional<Clock::time_point> askAt;  // set when this turns out to be no short wait
  auto check = [&] {
    if (abort_.raised()) failAndThrow(*abort_.reason());
    if (const auto why = segment_->failure()) throw *why;
    // To ask for the others' lives costs a system call each: not before the short sleeps.
    const bool look = ++checks > 2 || op.deadline.expired();
    // Everybody is looked at, not only the one waited for: that one may itself wait for the dead.
    for (int m = 0; look && m < size(); ++m) {
      // A rank that did its part and has left since is not missed.
      const char* const gone = segment_->whyGone(m);
      if (m == member_ || gone == nullptr || counter(m, flag).reached(target)) continue;
      if (const auto why = segment_->failure()) throw *why;  // it said so before it went
      failAndThrow(Error(
          ErrorCode::kPeerFailed,
          str("rank ", members_[static_cast<size_t>(m)], " ", gone, ", but rank ",
              members_[static_cast<size_t>(member_)], " is waiting for it in ", op.call.describe()),
          members_[static_cast<size_t>(m)]));
    }
    if (op.longWait != nullptr) {
      if (!askAt) askAt = Clock::now() + LongWait::kAskAfter;
      if (Clock::now() >= *askAt) {
        askAt = Clock::now() + LongWait::kAskAgain;
        try {
          op.longWait->waitingFor(rank);
        } catch (const Error& why) {
          failAndThrow(why);
        }
      }
    }
    if (op.deadline.expired()) {
      failAndThrow(Error(ErrorCode::kTimeout,
                         str(op.call.describe(), " Timed out after ", op.deadline.budget().count(),
                             " ms on rank ", members_[static_cast<size_t>(member_)],
                             ", waiting for rank(s) ", membersBehind(flag, target)),
                         rank));
    }
  };
  waitUntil(
      policy_, [&] { return flagWord.reached(target); }, check,
      [&](std::chrono::nanoseconds slice) {
        flagWord.sleep(target, op.deadline.remaining(slice));
      });
}

void ShmLink::compare(const OpContext& op, int member, uint32_t step) {
  const ShmSegment::Control& theirs = segment_->control(member);
  const ShmSegment::Control& mine = segment_->control(member_);
  if (theirs.fingerprint[step & 1] == mine.fingerprint[step & 1]) return;
  const int rank = members_[static_cast<size_t>(member)];
  failAndThrow(Error(ErrorCode::kMismatch,
                     str("the ranks of this group do different things: rank ", rank, " is in ",
                         theirs.calls[step & 1].describe(), ", but rank ",
                         members_[static_cast<size_t>(member_)], " is in ", op.call.describe()),
                     rank));
}

void ShmLink::share(char* slot, const void* data, size_t bytes) {
  copyBytes(slot, data, bytes);
  countShared(bytes);
}

// Everybody has arrived in this step, and so is done with the other slot: its lines come back from
// the readers' caches while this rank does something else, and the next step's stores find them.
void ShmLink::ownSoon(const void* begin, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLineBytes) {
    prefetchForWrite(static_cast<const char*>(begin) + at);
  }
}

void ShmLink::fail(const Error& why) {
  segment_->fail(why, members_[static_cast<size_t>(member_)]);
}

void ShmLink::failAndThrow(const Error& why) {
  fail(why);
  throw why;
}

// --- all-reduce ----------------------------------------------------------------------------------

void ShmLink::allReduce(const OpContext& op, Buffer buffer, const Reduction& reduction) {
  if (fitsLines(buffer.bytes())) {
    allReduceLines(op, buffer, reduction);
  } else if (size() > 2 && buffer.bytes() <= kOneShotBytes) {
    allReduceOneShot(op, buffer, reduction);
  } else {
    allReducePush(op, buffer, reduction);
  }
}

// Everybody shows its whole buffer and reduces all of them: one meeting. Only among three or more:
// two are faster with half of the bytes and a second meeting (8 KiB: 1.8 against 4.9 us).
void ShmLink::allReduceOneShot(const OpContext& op, Buffer buffer, const Reduction& reduction) {
  beginStep(op, true);
  share(segment_->slot(member_, step_ & 1), buffer.data, buffer.bytes());
  arrive();
  waitAllArrived(op, true);
  ownSoon(segment_->slot(member_, (step_ & 1) ^ 1), buffer.bytes());
  for (int m = 0; m < size(); ++m) {
    sources_[static_cast<size_t>(m)] = segment_->slot(m, step_ & 1);
  }
  sources_[static_cast<size_t>(member_)] = buffer.data;
  if (buffer.count > 0) {
    reduce(buffer.data, sources_.data(), size(), buffer.count, reduction);
  }
  finishStep();
}

// Reduce-scatter and all-gather in chunks. A chunk has one part per rank. In the step of a chunk
// each rank
//   shows the other ranks' parts of its own buffer in its slot,
//   reduces its own part, reading the others' slots, and pushes the result back into the very
//   lines it has just read - so a cache line changes owner only twice,
//   gathers the reduced parts out of its own slot.
// The next chunk is shown before this one is reduced, so that nobody waits for a copy.
//
// A rank whose buffer all can see says where it is instead of showing the first chunk. If all ranks
// do, that is all (shm_link_shared.cc). If only some do, the first chunk comes last, shown by all.
void ShmLink::allReducePush(const OpContext& op, Buffer buffer, const Reduction& reduction) {
  const size_t ranks = members_.size();
  const size_t self = static_cast<size_t>(member_);
  const size_t element = elementBytes(buffer.dtype);
  const size_t lineElements = std::max<size_t>(1, kCacheLineBytes / element);
  const size_t shareBytes = lineDown(windowBytes_ / (ranks - 1));
  const size_t numChunks = ceilDiv(buffer.count, shareBytes / element * ranks);
  const size_t chunkElements = ceilDiv(buffer.count, numChunks);
  const size_t partElements = roundUp(ceilDiv(chunkElements, ranks), lineElements);
  const Place place = placeOf(buffer);

  struct Part {
    char* data;
    size_t count;
  };
  // Of the chunk that is reduced in the turn-th step.
  auto part = [&](size_t turn, size_t rank) -> Part {
    const size_t begin = turn % numChunks * chunkElements;
    const size_t inChunk = std::min(chunkElements, buffer.count - begin);
    const size_t offset = std::min(rank * partElements, inChunk);
    return {buffer.bytePointer() + (begin + offset) * element,
            std::min(partElements, inChunk - offset)};
  };
  const uint32_t firstStep = step_;
  auto slotShare = [&](size_t turn, size_t writer, size_t reader) {
    return segment_->slot(static_cast<int>(writer), static_cast<int>((firstStep + turn) & 1)) +
           shareIndex(static_cast<int>(writer), static_cast<int>(reader)) * partElements * element;
  };
  auto show = [&](size_t turn) {
    step_ = firstStep + static_cast<uint32_t>(turn);
    beginStep(op, turn == 0);
    if (turn == 0) segment_->control(member_).place[step_ & 1] = place;
    for (int d = 1; d < size() && (turn > 0 || place.block == 0); ++d) {
      const size_t reader = static_cast<size_t>(after(d));
      const Part theirs = part(turn, reader);
      share(slotShare(turn, self, reader), theirs.data, theirs.count * element);
    }
    arrive();
  };

  show(0);
  if (place.block != 0) {
    waitAllArrived(op, true);
    if (placesNamed() == size()) return allReduceShared(op, buffer, reduction);
  }
  std::vector<void*> destinations(ranks);
  size_t shown = 1;
  size_t numTurns = numChunks;
  for (size_t turn = 0; turn < numTurns; ++turn) {
    for (; shown < std::min(turn + 2, numTurns); ++shown) show(shown);
    step_ = firstStep + static_cast<uint32_t>(turn);
    for (int d = 1; d < size(); ++d) {
      waitArrived(op, after(d), step_);
      if (turn == 0) compare(op, after(d), step_);
    }

    const bool postponed = turn == 0 && placesNamed() > 0;
    if (postponed) ++numTurns;
    const Part mine = postponed ? Part{buffer.bytePointer(), 0} : part(turn, self);
    for (size_t r = 0; r < ranks; ++r) {
      void* where = r == self ? mine.data : slotShare(turn, r, self);
      sources_[r] = where;
      destinations[r] = where;
    }
    if (mine.count > 0) {
      reducePush(destinations.data(), size(), sources_.data(), size(), mine.count, reduction);
      countShared((ranks - 1) * mine.count * element);
    }
    finishStep();

    // Finished here means: has pushed its part, and will not touch my slot again.
    for (int d = 1; d < size(); ++d) {
      const size_t owner = static_cast<size_t>(after(d));
      waitFor(op, static_cast<int>(owner), Flag::kFinished, step_);
      if (postponed) continue;
      const Part theirs = part(turn, owner);
      gatherBytes(theirs.data, slotShare(turn, self, owner), theirs.count * element);
    }
    knownFinished_ = step_;
  }
}

// --- the other verbs -----------------------------------------------------------------------------

// Shows everybody's parts, piece by piece, and reduces the own one out of the slots.
void ShmLink::reduceScatter(const OpContext& op, std::span<const ConstBuffer> parts, Buffer out,
                            const Reduction& reduction) {
  const size_t ranks = members_.size();
  const size_t self = static_cast<size_t>(member_);
  const size_t element = elementBytes(out.dtype);
  const size_t pieceElements = lineDown(windowBytes_ / (ranks - 1)) / element;
  size_t longest = 0;
  for (const ConstBuffer& part : parts) longest = std::max(longest, part.count);
  const size_t numSteps = std::max<size_t>(1, ceilDiv(longest, pieceElements));

  std::vector<const void*> sources(ranks);
  for (size_t i = 0; i < numSteps; ++i) {
    const size_t offset = i * pieceElements;
    auto countOf = [&](const ConstBuffer& part) {
      return offset < part.count ? std::min(pieceElements, part.count - offset) : 0;
    };
    beginStep(op, i == 0);
    for (int d = 1; d < size(); ++d) {
      const ConstBuffer& part = parts[static_cast<size_t>(after(d))];
      share(segment_->slot(member_, step_ & 1) +
                shareIndex(member_, after(d)) * pieceElements * element,
            part.bytePointer() + offset * element, countOf(part) * element);
    }
    arrive();
    waitAllArrived(op, i == 0);
    const size_t count = countOf(parts[self]);
    for (size_t r = 0; r < ranks; ++r) {
      sources[r] = r == self
                       ? parts[self].bytePointer() + offset * element
                       : segment_->slot(static_cast<int>(r), step_ & 1) +
                             shareIndex(static_cast<int>(r), member_) * pieceElements * element;
    }
    if (count > 0) {
      reduce(out.bytePointer() + offset * element, sources.data(), size(), count, reduction);
    }
    finishStep();
  }
}

void ShmLink::allGather(const OpContext& op, ConstBuffer in, std::span<const Buffer> outs) {
  size_t longest = 0;
  for (const Buffer& out : outs) longest = std::max(longest, out.bytes());
  const size_t numSteps = std::max<size_t>(1, ceilDiv(longest, windowBytes_));
  for (size_t i = 0; i < numSteps; ++i) {
    const size_t offset = i * windowBytes_;
    auto bytesOf = [&](size_t total) {
      return offset < total ? std::min(windowBytes_, total - offset) : 0;
    };
    beginStep(op, i == 0);
    share(segment_->slot(member_, step_ & 1), in.bytePointer() + offset, bytesOf(in.bytes()));
    arrive();
    waitAllArrived(op, i == 0);
    for (int d = 1; d < size(); ++d) {
      const Buffer& out = outs[static_cast<size_t>(after(d))];
      gatherBytes(out.bytePointer() + offset, segment_->slot(after(d), step_ & 1),
                  bytesOf(out.bytes()));
    }
    finishStep();
  }
  const Buffer& own = outs[static_cast<size_t>(member_)];
  if (own.data != in.data && in.bytes() > 0) std::memmove(own.data, in.data, in.bytes());
}

// The root shows piece after piece, at most two ahead of the slowest reader.
void ShmLink::broadcast(const OpContext& op, Buffer buffer, int root) {
  const size_t numSteps = std::max<size_t>(1, ceilDiv(buffer.bytes(), windowBytes_));
  for (size_t i = 0; i < numSteps; ++i) {
    const size_t offset = i * windowBytes_;
    const size_t bytes = std::min(windowBytes_, buffer.bytes() - offset);
    char* const slot = segment_->slot(root, step_ & 1);
    if (i == 0 || member_ == root) beginStep(op, i == 0);
    if (member_ == root) share(slot, buffer.bytePointer() + offset, bytes);
    // Readers arrive as well, though they show nothing: who waits for the root must not miss a
    // reader that has taken everything and left.
    arrive();
    if (i == 0) {
      waitAllArrived(op, true);
    } else if (member_ != root) {
      waitArrived(op, root, step_);
    }
    if (member_ != root) copyBytes(buffer.bytePointer() + offset, slot, bytes);
    finishStep();
  }
}

// The first step also shows a table of all sizes; with it everybody checks every pair, and knows
// where in whose slot its pieces are: a sender divides its slot evenly among its receivers.
void ShmLink::exchange(const OpContext& op, std::span<const ConstBuffer> sends,
                       std::span<const Buffer> receives) {
  const size_t ranks = members_.size();
  const size_t self = static_cast<size_t>(member_);

  std::vector<uint64_t> sendBytes(ranks * ranks);  // [sender * ranks + receiver]
  for (size_t r = 0; r < ranks; ++r) sendBytes[self * ranks + r] = sends[r].bytes();
  // Bytes of a sender's slot for each of its receivers, and where a receiver's piece begins.
  auto shareBytes = [&](size_t sender) {
    size_t receivers = 0;
    for (size_t r = 0; r < ranks; ++r) {
      if (r != sender && sendBytes[sender * ranks + r] > 0) ++receivers;
    }
    return receivers == 0 ? 0 : lineDown(windowBytes_ / receivers);
  };
  auto slotOffset = [&](size_t sender, size_t receiver) {
    size_t before = 0;
    for (size_t r = 0; r < receiver; ++r) {
      if (r != sender && sendBytes[sender * ranks + r] > 0) ++before;
    }
    return before * shareBytes(sender);
  };
  auto pieceBytes = [&](size_t sender, size_t receiver, size_t step) {
    const size_t share = shareBytes(sender);
    const size_t total = sendBytes[sender * ranks + receiver];
    return step * share < total ? std::min<size_t>(share, total - step * share) : 0;
  };

  size_t numSteps = 1;
  for (size_t i = 0; i < numSteps; ++i) {
    beginStep(op, i == 0);
    if (i == 0) {
      uint64_t* table = segment_->sizes(member_, step_ & 1);
      for (size_t r = 0; r < ranks; ++r) {
        table[r] = sends[r].bytes();
        table[ranks + r] = receives[r].bytes();
      }
    }
    for (int d = 1; d < size(); ++d) {
      const size_t receiver = static_cast<size_t>(after(d));
      share(segment_->slot(member_, step_ & 1) + slotOffset(self, receiver),
            sends[receiver].bytePointer() + i * shareBytes(self), pieceBytes(self, receiver, i));
    }
    arrive();
    waitAllArrived(op, i == 0);
    if (i == 0) {
      for (size_t sender = 0; sender < ranks; ++sender) {
        for (size_t receiver = 0; receiver < ranks; ++receiver) {
          const uint64_t sent = segment_->sizes(static_cast<int>(sender), step_ & 1)[receiver];
          const uint64_t expected =
              segment_->sizes(static_cast<int>(receiver), step_ & 1)[ranks + sender];
          sendBytes[sender * ranks + receiver] = sent;
          if (sent != expected) {
            failAndThrow(
                sizesDiffer(op.call, members_[sender], sent, members_[receiver], expected));
          }
        }
      }
      for (size_t sender = 0; sender < ranks; ++sender) {
        const size_t share = shareBytes(sender);
        for (size_t receiver = 0; receiver < ranks; ++receiver) {
          if (sender == receiver || share == 0) continue;
          numSteps = std::max(numSteps, ceilDiv(sendBytes[sender * ranks + receiver], share));
        }
      }
    }
    for (int d = 1; d < size(); ++d) {
      const size_t sender = static_cast<size_t>(after(d));
      gatherBytes(receives[sender].bytePointer() + i * shareBytes(sender),
                  segment_->slot(after(d), step_ & 1) + slotOffset(sender, self),
                  pieceBytes(sender, self, i));
    }
    finishStep();
  }
  if (sends[self].data != receives[self].data && sends[self].bytes() > 0) {
    std::memmove(receives[self].data, sends[self].data, sends[self].bytes());
  }
}

}  // namespace taco
