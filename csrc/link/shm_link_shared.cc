// The part of ShmLink that works in buffers which all members see: nothing is copied into slots.
// Each rank reduces its part of the buffers and writes the result into all of them, so a rank reads
// S bytes and writes S instead of reading and writing 2 S more in slots (P ranks, S bytes).
#include <algorithm>
#include <cstring>

#include "csrc/base/format.h"
#include "csrc/base/rounding.h"
#include "csrc/data/prefetch.h"
#include "csrc/link/shm_link.h"

namespace taco {
namespace {

// What the first member tells the others about a new block.
struct Offer {
  uint64_t fileOffset = 0;
  char whyNot[248] = "";  // empty: there is one
};

void say(char (&place)[248], const char* text) { std::strncpy(place, text, sizeof(place) - 1); }

}  // namespace

std::shared_ptr<void> ShmLink::sharedMemory(const OpContext& op, size_t bytes,
                                            std::string* whyNot) {
  dropReturnedBlocks();
  Offer offer;
  if (member_ == 0) {
    try {
      offer.fileOffset = segment_->grow(SharedBlock::fileBytes(bytes, size()));
    } catch (const Error& error) {
      say(offer.whyNot, error.what());
    }
  }
  broadcast(op, Buffer{&offer, sizeof(offer), DType::kUInt8}, 0);
  std::shared_ptr<SharedBlock> block;
  if (offer.whyNot[0] == 0) {
    try {
      block = std::make_shared<SharedBlock>(segment_->file(), offer.fileOffset, bytes, size());
    } catch (const Error& error) {
      say(offer.whyNot, error.what());
    }
  }
  // All or none, and everybody says the same reason.
  std::vector<Offer> all(members_.size());
  std::vector<Buffer> outs;
  for (Offer& one : all) outs.push_back(Buffer{&one, sizeof(one), DType::kUInt8});
  allGather(op, ConstBuffer{&offer, sizeof(offer), DType::kUInt8}, outs);
  for (const Offer& one : all) {
    if (one.whyNot[0] == 0) continue;
    if (block) block->dropPages(segment_->file());
    *whyNot = one.whyNot;
    return nullptr;
  }
  blocks_.push_back(block);
  char* const mine = block->area(member_);
  return {mine, [block = std::move(block), member = member_](void*) { block->giveBack(member); }};
}

void ShmLink::dropReturnedBlocks() {
  for (auto& block : blocks_) {
    if (!block || !block->allGivenBack()) continue;
    block->dropPages(segment_->file());
    block.reset();
  }
}

ShmLink::Place ShmLink::placeOf(Buffer buffer) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i]) continue;
    const auto offset = blocks_[i]->offsetOf(member_, buffer.data, buffer.bytes());
    if (offset) return {i + 1, *offset};
  }
  return {};
}

// After the meeting of this step.
int ShmLink::placesNamed() const {
  int named = 0;
  for (int m = 0; m < size(); ++m) {
    if (segment_->control(m).place[step_ & 1].block != 0) ++named;
  }
  return named;
}

char* ShmLink::addressOf(const OpContext& op, int member, size_t bytes) {
  const Place place = segment_->control(member).place[step_ & 1];
  const SharedBlock* const block =
      place.block <= blocks_.size() ? blocks_[place.block - 1].get() : nullptr;
  if (block != nullptr && bytes <= block->bytes() && place.offset <= block->bytes() - bytes) {
    return block->area(member) + place.offset;
  }
  failAndThrow(Error(ErrorCode::kSystem,
                     str(op.call.describe(), ": rank ", members_[static_cast<size_t>(member)],
                         " names shared memory that this rank does not know (block ", place.block,
                         ", offset ", place.offset, ")"),
                     members_[static_cast<size_t>(member)]));
}

void ShmLink::allReduceShared(const OpContext& op, Buffer buffer, const Reduction& reduction) {
  const size_t ranks = members_.size();
  const size_t element = elementBytes(buffer.dtype);
  const size_t lineElements = std::max<size_t>(1, kCacheLineBytes / element);
  const size_t partElements = roundUp(ceilDiv(buffer.count, ranks), lineElements);
  const size_t begin = std::min(static_cast<size_t>(member_) * partElements, buffer.count);
  const size_t count = std::min(partElements, buffer.count - begin);

  std::vector<const void*> sources(ranks);
  std::vector<void*> destinations(ranks);
  for (size_t m = 0; m < ranks; ++m) {
    char* const part = addressOf(op, static_cast<int>(m), buffer.bytes()) + begin * element;
    sources[m] = part;
    destinations[m] = part;
  }
  if (count > 0) {
    reducePush(destinations.data(), size(), sources.data(), size(), count, reduction);
    countShared((ranks - 1) * count * element);
  }
  const uint32_t step = step_;
  finishStep();
  waitFinished(op, step);  // the others' parts are in this rank's buffer
}

}  // namespace taco
