#include "perf/native/problem.h"

#include <bit>
#include <numeric>
#include <vector>

namespace taco::perf {
namespace {

// Which of 16 values element `index` has. Blocks of 16 differ among each other, so that data which
// land in the wrong place are noticed.
size_t keyOf(size_t index) { return (index + (index >> 4) + (index >> 9) * 3) & 15; }

// The bits of a small integer.
uint32_t bitsOf(ElementType type, uint32_t value) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == ElementType::kFloat32) return bits;
  if (type == ElementType::kBFloat16) return bits >> 16;
  if (value == 0) return 0;
  // float16: 5 bits of exponent, 10 of fraction.
  return (((bits >> 23) - 127 + 15) << 10) | ((bits >> 13) & 0x3ff);
}

template <typename Element>
void fillElements(char* memory, size_t first, size_t count, const std::array<uint32_t, 16>& table) {
  Element* elements = reinterpret_cast<Element*>(memory);
  for (size_t i = 0; i < count; ++i) elements[i] = static_cast<Element>(table[keyOf(first + i)]);
}

template <typename Element>
size_t countWrong(const char* memory, size_t first, size_t count,
                  const std::array<uint32_t, 16>& table) {
  const Element* elements = reinterpret_cast<const Element*>(memory);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong += elements[i] != static_cast<Element>(table[keyOf(first + i)]) ? 1 : 0;
  }
  return wrong;
}

}  // namespace

Problem::Problem(Operation operation, ElementType type, size_t countEach, int rank, int size)
    : operation_(operation), type_(type), countEach_(countEach), rank_(rank), size_(size) {}

size_t Problem::inBytes() const {
  const bool blocks = operation_ == Operation::kReduceScatter || operation_ == Operation::kAllToAll;
  return countEach_ * elementBytes(type_) * (blocks ? static_cast<size_t>(size_) : 1);
}

size_t Problem::outBytes() const {
  const size_t block = countEach_ * elementBytes(type_);
  switch (operation_) {
    case Operation::kAllReduce:
    case Operation::kBroadcast:
      return 0;
    case Operation::kReduceScatter:
      return block;
    case Operation::kAllGather:
    case Operation::kAllToAll:
      return block * static_cast<size_t>(size_);
  }
  return 0;
}

size_t Problem::totalBytes() const { return std::max(inBytes(), outBytes()); }

Problem::Table Problem::table(const int* ranks, int numRanks, int repeat) const {
  Table bits{};
  for (uint32_t key = 0; key < bits.size(); ++key) {
    uint32_t value = 0;
    for (int i = 0; i < numRanks; ++i) {
      value += (key + 5 * static_cast<uint32_t>(ranks[i]) + 3 * static_cast<uint32_t>(repeat)) & 15;
    }
    bits[key] = bitsOf(type_, value);
  }
  return bits;
}

Problem::Table Problem::sum(int repeat) const {
  std::vector<int> ranks(static_cast<size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  return table(ranks.data(), size_, repeat);
}

void Problem::fill(char* in, int repeat) const {
  const size_t count = inBytes() / elementBytes(type_);
  if (type_ == ElementType::kFloat32) {
    fillElements<uint32_t>(in, 0, count, input(rank_, repeat));
  } else {
    fillElements<uint16_t>(in, 0, count, input(rank_, repeat));
  }
}

size_t Problem::wrong(const char* result, int repeat) const {
  const auto check = [&](const char* memory, size_t first, const Table& table) {
    return type_ == ElementType::kFloat32 ? countWrong<uint32_t>(memory, first, countEach_, table)
                                          : countWrong<uint16_t>(memory, first, countEach_, table);
  };
  const size_t ownBegin = static_cast<size_t>(rank_) * countEach_;
  switch (operation_) {
    case Operation::kAllReduce:
      return check(result, 0, sum(repeat));
    case Operation::kBroadcast:
      return check(result, 0, input(0, repeat));
    case Operation::kReduceScatter:
      return check(result, ownBegin, sum(repeat));
    case Operation::kAllGather:
    case Operation::kAllToAll: {
      const size_t begin = operation_ == Operation::kAllGather ? 0 : ownBegin;
      size_t wrong = 0;
      for (int rank = 0; rank < size_; ++rank) {
        const size_t offset = static_cast<size_t>(rank) * countEach_ * elementBytes(type_);
        wrong += check(result + offset, begin, input(rank, repeat));
      }
      return wrong;
    }
  }
  return 0;
}

}  // namespace taco::perf
