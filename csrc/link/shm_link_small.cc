// The smallest all-reduces of ShmLink: data and flag in one cache line.
//
// In the steps of shm_link.cc a reader sees a flag and then fetches the data: two misses, one after
// the other, and between two cores a miss is most of what a small all-reduce takes (50-250 ns). Here
// each line carries 56 bytes and its own flag, so that seeing the flag is having the data, and the
// lines of a message come at the same time (as NCCL's LL128 does over NVLink). A line's flag is
// written last; x86 keeps the order, and elsewhere release and acquire do.
//
// The flag holds the step and half of the fingerprint. The counters are published as in every other
// step: ranks that come with something else compare the whole fingerprints, and a rank that has to
// sleep does so on the counter.
#include <algorithm>
#include <cstring>

#include "csrc/base/rounding.h"
#include "csrc/link/shm_link.h"

namespace taco {
namespace {

using Line = ShmSegment::Line;

// About 10 us.
constexpr int kPolls = 500;

uint64_t flagOf(uint32_t step, uint64_t fingerprint) {
  return (fingerprint & 0xffffffff00000000ull) | (step + 1);
}

size_t linesOf(size_t bytes) {
  return std::max<size_t>(1, ceilDiv(bytes, Line::kDataBytes));
}

// As the whole lines that they are but for the last one: the compiler then needs no loops.
void write(Line* lines, const char* data, size_t bytes, uint64_t flag) {
  for (; bytes > Line::kDataBytes; bytes -= Line::kDataBytes, data += Line::kDataBytes) {
    std::memcpy(lines->data, data, Line::kDataBytes);
    lines++->flag.store(flag, std::memory_order_release);
  }
  if (bytes > 0) std::memcpy(lines->data, data, bytes);
  lines->flag.store(flag, std::memory_order_release);
}

}  // namespace

bool ShmLink::fitsLines(size_t bytes) const {
  return bytes <= Line::kPerSlot * Line::kDataBytes && size() <= kMostLineRanks;
}

void ShmLink::allReduceLines(const OpContext& op, Buffer buffer, const Reduction& reduction) {
  const size_t bytes = buffer.bytes();
  const size_t numLines = linesOf(bytes);
  beginStep(op, true);
  const int parity = static_cast<int>(step_ & 1);
  const uint64_t flag = flagOf(step_, segment_->control(member_).fingerprint[parity]);
  write(segment_->lines(member_, parity), buffer.bytePointer(), bytes, flag);
  countShared(bytes);
  arrive();

  alignas(64) char theirs[kMostLineRanks][(Line::kPerSlot + 1) * Line::kDataBytes];
  for (int d = 1; d < size(); ++d) {
    const int member = after(d);
    const Line* lines = segment_->lines(member, parity);
    char* into = theirs[member];
    for (size_t i = 0; i < numLines; ++i, into += Line::kDataBytes) {
      if (lines[i].flag.load(std::memory_order_acquire) != flag) waitForLine(op, member, lines[i], flag);
      std::memcpy(into, lines[i].data, Line::kDataBytes);
    }
    sources_[static_cast<size_t>(member)] = theirs[member];
  }
  knownFinished_ = step_;  // as in waitAllArrived()
  ownSoon(segment_->lines(member_, parity ^ 1), numLines * sizeof(Line));
  sources_[static_cast<size_t>(member_)] = buffer.data;
  if (buffer.count > 0) reduce(buffer.data, sources_.data(), size(), buffer.count, reduction);
  finishStep();
}

void ShmLink::waitForLine(const OpContext& op, int member, const Line& line, uint64_t flag) {
  // Only the line, for as long as most waits last: to look at the counter as well would take its
  // line away from who writes it.
  for (int i = 0; i < kPolls && policy_.spin.count() > 0; ++i) {
    if (line.flag.load(std::memory_order_acquire) == flag) return;
    pauseCpu();
  }
  // Who has arrived has written the line, or is in something else.
  waitFor(op, member, Flag::kArrived, step_ + 1);
  if (line.flag.load(std::memory_order_acquire) != flag) compare(op, member, step_);
}

}  // namespace taco
