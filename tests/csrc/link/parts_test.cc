// Reduce-scatter and all-gather: even, uneven and empty parts, in place and not.
#include "tests/csrc/link/link_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

using Sizes = std::vector<size_t>;  // elements of each rank's part

size_t sum(const Sizes& sizes) {
  size_t total = 0;
  for (const size_t one : sizes) total += one;
  return total;
}

// Even ones around every boundary, and uneven ones.
std::vector<Sizes> partSizes(LinkKind kind, int ranks, size_t element) {
  const size_t p = static_cast<size_t>(ranks);
  std::vector<size_t> even = {0, 1, 17, 64 / element, 64 / element + 1};
  if (kind == LinkKind::kMesh) {
    for (const size_t piece : {(128u << 10) / p, (2u << 20) / p}) {
      even.insert(even.end(), {piece / element - 1, piece / element, piece / element + 1});
    }
  } else {
    const size_t forGather = windowBytes(kind) / element;
    const size_t forScatter =
        (ranks == 1 ? forGather : windowBytes(kind) / (p - 1) / 64 * 64 / element);
    for (const size_t window : {forScatter, 2 * forScatter, forGather}) {
      even.insert(even.end(), {window - 1, window, window + 1});
    }
  }
  std::vector<Sizes> all;
  for (const size_t count : even) all.push_back(Sizes(p, count));
  for (size_t r = 0; r < p; ++r) {
    Sizes one(p, 0);
    one[r] = 3000;
    all.push_back(one);
    Sizes others(p, 1000);
    others[r] = 0;
    all.push_back(others);
  }
  Sizes growing;
  for (size_t r = 0; r < p; ++r) growing.push_back(r * 12345 + 1);
  all.push_back(growing);
  std::mt19937 random(99);
  for (int i = 0; i < 8; ++i) {
    Sizes any;
    for (size_t r = 0; r < p; ++r) any.push_back(random() % 3 == 0 ? 0 : random() % 20000);
    all.push_back(any);
  }
  return all;
}

// [r]: part r of one buffer that holds all parts.
std::vector<Buffer> partsOf(const Buffer& whole, const Sizes& sizes) {
  std::vector<Buffer> parts;
  size_t at = 0;
  for (const size_t count : sizes) {
    parts.push_back(whole.slice(at, count));
    at += count;
  }
  return parts;
}

Bytes slice(const Bytes& whole, size_t element, const Sizes& sizes, size_t rank) {
  size_t begin = 0;
  for (size_t r = 0; r < rank; ++r) begin += sizes[r] * element;
  const auto first = whole.begin() + static_cast<ptrdiff_t>(begin);
  return Bytes(first, first + static_cast<ptrdiff_t>(sizes[rank] * element));
}

template <typename T>
void reduceScatterAll(DType dtype, LinkKind kind, int ranks) {
  const std::vector<Sizes> all = partSizes(kind, ranks, sizeof(T));
  std::vector<std::vector<Bytes>> inputs;
  std::vector<Bytes> expected;
  for (size_t i = 0; i < all.size(); ++i) {
    inputs.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) {
      inputs[i].push_back(fillBytes(sum(all[i]) * sizeof(T), i * 31 + static_cast<size_t>(rank)));
    }
    expected.push_back(wrappedSum<T>(inputs[i]));
  }
  LinkGroup links(kind, ranks);
  runRanks(ranks, [&](int rank) {
    const size_t self = static_cast<size_t>(rank);
    Operations operations;
    for (size_t i = 0; i < all.size(); ++i) {
      const Sizes& sizes = all[i];
      const Bytes mine = slice(expected[i], sizeof(T), sizes, self);
      for (const bool inPlace : {false, true}) {
        const std::string what = str("reduce_scatter over ", name(kind), ", sizes ", i,
                                     inPlace ? ", into its own part" : "");
        Guarded in(dtype, inputs[i][self], (self + i) % 13);
        Guarded out(dtype, sizes[self], (self * 3 + i) % 11);
        const std::vector<Buffer> parts = partsOf(in.buffer(), sizes);
        links[rank].reduceScatter(
            operations.next(OpKind::kReduceScatter, dtype, sum(sizes), ReduceOp::kSum),
            std::vector<ConstBuffer>(parts.begin(), parts.end()),
            inPlace ? parts[self] : out.buffer(), onlyLevel(ReduceOp::kSum, dtype, ranks));
        Bytes after = inputs[i][self];
        if (inPlace) {
          std::copy(mine.begin(), mine.end(),
                    after.begin() + (parts[self].bytePointer() - in.buffer().bytePointer()));
        } else {
          out.check(mine, what);
        }
        in.check(after, what + ": the input");
      }
    }
  });
}

TEST_CASE("reduce-scatter: parts of every size, in place and not") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      reduceScatterAll<uint32_t>(DType::kInt32, kind, ranks);
      if (ranks == 3) reduceScatterAll<uint8_t>(DType::kUInt8, kind, ranks);
    }
  }
}

TEST_CASE("reduce-scatter: floating point, in rank order") {
  for (const int ranks : {2, 3, 4}) {
    for (const LinkKind kind : kAllLinks) {
      LinkGroup links(kind, ranks);
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kComplex64}) {
        const Sizes sizes(static_cast<size_t>(ranks), 777);
        std::vector<Bytes> inputs;
        for (int rank = 0; rank < ranks; ++rank) {
          inputs.push_back(makeInput(dtype, sum(sizes), static_cast<uint32_t>(rank)));
        }
        const Reduction reduction = onlyLevel(ReduceOp::kAvg, dtype, ranks);
        const Bytes expected = referenceReduce(inputs, reduction);
        runRanks(ranks, [&](int rank) {
          const size_t self = static_cast<size_t>(rank);
          Operations operations;
          Guarded in(dtype, inputs[self], 2);
          Guarded out(dtype, sizes[self]);
          const std::vector<Buffer> parts = partsOf(in.buffer(), sizes);
          links[rank].reduceScatter(
              operations.next(OpKind::kReduceScatter, dtype, sum(sizes), ReduceOp::kAvg),
              std::vector<ConstBuffer>(parts.begin(), parts.end()), out.buffer(), reduction);
          out.check(slice(expected, elementBytes(dtype), sizes, self),
                    str("reduce_scatter of ", taco::name(dtype), " over ", name(kind)));
        });
      }
    }
  }
}

void allGatherAll(DType dtype, LinkKind kind, int ranks) {
  const size_t element = elementBytes(dtype);
  const std::vector<Sizes> all = partSizes(kind, ranks, element);
  std::vector<Bytes> wholes;
  for (size_t i = 0; i < all.size(); ++i) wholes.push_back(fillBytes(sum(all[i]) * element, i));
  LinkGroup links(kind, ranks);
  runRanks(ranks, [&](int rank) {
    const size_t self = static_cast<size_t>(rank);
    Operations operations;
    for (size_t i = 0; i < all.size(); ++i) {
      const Sizes& sizes = all[i];
      const Bytes mine = slice(wholes[i], element, sizes, self);
      for (const bool inPlace : {false, true}) {
        const std::string what =
            str("all_gather over ", name(kind), ", sizes ", i, inPlace ? ", in place" : "");
        Guarded in(dtype, mine, (self * 7 + i) % 15);
        Guarded out(dtype, sum(sizes), (self + i) % 9);
        const std::vector<Buffer> outs = partsOf(out.buffer(), sizes);
        if (inPlace && !mine.empty()) std::memcpy(outs[self].data, mine.data(), mine.size());
        links[rank].allGather(operations.next(OpKind::kAllGather, dtype, sum(sizes)),
                              inPlace ? outs[self] : in.buffer(), outs);
        out.check(wholes[i], what);
        in.check(mine, what + ": the input");
      }
    }
  });
}

TEST_CASE("all-gather: parts of every size, in place and not") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const LinkKind kind : kAllLinks) {
      allGatherAll(DType::kBytes4, kind, ranks);
      if (ranks != 3) continue;
      for (const DType dtype : {DType::kBytes1, DType::kBFloat16, DType::kInt64, DType::kBytes16}) {
        allGatherAll(dtype, kind, ranks);
      }
    }
  }
}

}  // namespace
}  // namespace taco
