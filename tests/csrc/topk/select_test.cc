// The inputs at which a selection may go wrong, each against the reference: sizes, ties, zeros,
// denormals, distributions, what the last call left behind.
#include "csrc/topk/select.h"

#include <algorithm>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/data/simd_targets.h"
#include "tests/csrc/topk/topk_reference.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kTiniest = std::numeric_limits<float>::denorm_min();

ConstBuffer view(const Floats& values) { return {values.data(), values.size(), DType::kFloat32}; }

Floats filled(size_t count, const std::function<float(size_t)>& at) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = at(i);
  return values;
}

Floats gaussian(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  return filled(count, [&](size_t) { return normal(random); });
}

float anyFloat(std::mt19937& random) {
  return std::bit_cast<float>(static_cast<uint32_t>(random()));
}

std::vector<uint32_t> indicesOf(const Selected& selected, size_t k) {
  std::vector<uint32_t> indices;
  for (size_t j = 0; j < k; ++j) indices.push_back(indexOf(selected.payload.data(), j));
  return indices;
}

Floats valuesOf(const Selected& selected, PayloadLayout layout) {
  Floats values;
  for (size_t j = 0; j < layout.k; ++j)
    values.push_back(valueOf(selected.payload.data(), layout, j));
  return values;
}

Selected fresh(const Floats& gradient, PayloadLayout layout) {
  Selector selector;
  return selected(selector, view(gradient), Floats(gradient.size()), layout);
}

// Against the reference with both kinds of values, with an old selector too.
void checkAgainstReference(const Floats& gradient, size_t k) {
  const Floats residual(gradient.size());
  const Floats sums = referenceSums(view(gradient), residual);
  const std::vector<uint32_t> order = referenceOrder(sums);
  Selector old;
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    const PayloadLayout layout{k, values};
    const Selected expected = referenceChoice(sums, order, layout);
    for (int call = 0; call < 2; ++call) {
      CAPTURE(k, layout.valueBytes(), call);
      CHECK(same(selected(old, view(gradient), residual, layout), expected));
    }
    CHECK(same(fresh(gradient, layout), expected));
  }
}

TEST_CASE("select: every size and k") {
  const size_t large = kSanitized ? size_t{1} << 15 : size_t{1} << 20;
  const std::vector<size_t> counts = {1,   2,   3,   15,  16,        17,    255,
                                      256, 257, 511, 513, large - 1, large, large + 1};
  for (const size_t count : counts) {
    const Floats gradient = gaussian(count, static_cast<uint32_t>(count));
    const Floats sums = referenceSums(view(gradient), Floats(count));
    const std::vector<uint32_t> order = referenceOrder(sums);
    Selector selector;
    for (const size_t k :
         {size_t{1}, std::max<size_t>(1, count / 100), std::max<size_t>(1, count - 1), count}) {
      CAPTURE(count, k);
      const PayloadLayout layout{k, TopkValues::kFloat32};
      const Selected result = selected(selector, view(gradient), Floats(count), layout);
      CHECK(same(result, referenceChoice(sums, order, layout)));
    }
  }
}

TEST_CASE("select: gradients of every dtype at any address") {
  const Floats numbers = gaussian(5000, 1);
  const Floats residual = gaussian(5000, 2);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const Bytes plain = stored(dtype, numbers);
    const PayloadLayout layout{50, TopkValues::kFloat32};
    const Selected expected =
        referenceSelect({plain.data(), numbers.size(), dtype}, residual, layout);
    for (const size_t shift : {0, 1, 2, 3, 4, 31, 63}) {
      CAPTURE(name(dtype), shift);
      Bytes moved(plain.size() + shift);
      std::copy(plain.begin(), plain.end(), moved.begin() + static_cast<ptrdiff_t>(shift));
      Bytes payload(layout.bytes() + shift + 8, 0xab);
      Floats shiftedResidual(residual.size() + shift);
      std::copy(residual.begin(), residual.end(),
                shiftedResidual.begin() + static_cast<ptrdiff_t>(shift));
      Selector selector;
      selector.select({moved.data() + shift, numbers.size(), dtype}, shiftedResidual.data() + shift,
                      layout, payload.data() + shift);
      const auto begin = payload.begin() + static_cast<ptrdiff_t>(shift);
      const auto end = begin + static_cast<ptrdiff_t>(layout.bytes());
      CHECK(Bytes(begin, end) == expected.payload);
      CHECK(std::count(end, payload.end(), 0xab) == 8);  // not written past the end
      shiftedResidual.erase(shiftedResidual.begin(),
                            shiftedResidual.begin() + static_cast<ptrdiff_t>(shift));
      CHECK(sameBits(shiftedResidual, expected.residual));
    }
  }
}

TEST_CASE("select: of equal magnitudes the smallest indices") {
  const PayloadLayout three{3, TopkValues::kFloat32};
  CHECK(indicesOf(fresh(Floats(1000, 2.5f), three), 3) == std::vector<uint32_t>{0, 1, 2});
  // +x and -x are equally large, and keep their signs.
  const Selected signs = fresh({1, -7, 7, -7, 7, 2}, three);
  CHECK(indicesOf(signs, 3) == std::vector<uint32_t>{1, 2, 3});
  CHECK(valuesOf(signs, three) == Floats{-7, 7, -7});
  // So are zeros; the sum of -0 and +0 is +0, of -0 and -0 is -0.
  const PayloadLayout two{2, TopkValues::kFloat32};
  Selector selector;
  const Selected zeros = selected(selector, view({-0.0f, 0.0f, -0.0f}), {-0.0f, -0.0f, 0.0f}, two);
  CHECK(indicesOf(zeros, 2) == std::vector<uint32_t>{0, 1});
  CHECK(sameBits(valuesOf(zeros, two), {-0.0f, 0.0f}));

  // Many at the k-th place, with and without room for all candidates, scattered and in one block.
  for (const size_t count : {100, 1000, 50000}) {
    checkAgainstReference(filled(count, [](size_t i) { return i % 3 == 0 ? 1.0f : -0.5f; }), 1);
    checkAgainstReference(filled(count, [](size_t i) { return i % 3 == 0 ? 1.0f : -0.5f; }),
                          count / 2);
    checkAgainstReference(filled(count, [&](size_t i) { return i < count / 7 ? 3.0f : 4.0f; }),
                          count - 3);
    checkAgainstReference(filled(count, [](size_t) { return -1.0f; }), count / 100);
  }
}

TEST_CASE("select: all zeros and fewer than k that are not") {
  for (const size_t count : {100, 50000}) {
    const PayloadLayout layout{count / 10, TopkValues::kFloat32};
    const Selected zeros = fresh(Floats(count), layout);
    CHECK(zeros.finite);
    CHECK(valuesOf(zeros, layout) == Floats(layout.k));
    CHECK(sameBits(zeros.residual, Floats(count)));
    std::vector<uint32_t> first(layout.k);
    std::iota(first.begin(), first.end(), 0u);
    CHECK(indicesOf(zeros, layout.k) == first);

    const Floats few = filled(count, [](size_t i) { return i % 50 == 49 ? -kTiniest : 0.0f; });
    const std::vector<uint32_t> chosen = indicesOf(fresh(few, layout), layout.k);
    for (uint32_t i = 49; i < count; i += 50) {
      CHECK(std::binary_search(chosen.begin(), chosen.end(), i));
    }
    checkAgainstReference(few, layout.k);
    checkAgainstReference(few, count / 50);
    checkAgainstReference(few, count - 1);
  }
}

TEST_CASE("select: denormals are ordered, and added, like any other number") {
  const Floats denormals = filled(40000, [](size_t i) {
    return std::bit_cast<float>(static_cast<uint32_t>((i * 7919 % 40000 + 1) | (i % 2 << 31)));
  });
  checkAgainstReference(denormals, 400);
  checkAgainstReference(denormals, 39999);
  const PayloadLayout one{1, TopkValues::kFloat32};
  Selector selector;
  const Selected sum =
      selected(selector, view({kTiniest, 2 * kTiniest}), {2 * kTiniest, 2 * kTiniest}, one);
  CHECK(valuesOf(sum, one) == Floats{4 * kTiniest});
  CHECK(sum.residual == Floats{3 * kTiniest, 0});
}

#if defined(__x86_64__)
TEST_CASE("select: a thread that flushes denormals selects the same, and goes on flushing") {
  const Floats denormals = filled(
      1000, [](size_t i) { return std::bit_cast<float>(static_cast<uint32_t>(i * 31 + 1)); });
  const PayloadLayout layout{10, TopkValues::kFloat32};
  const Selected expected = fresh(denormals, layout);
  constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | kFlush);
  const Selected flushing = fresh(denormals, layout);
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  CHECK(same(flushing, expected));
  CHECK((after & kFlush) == kFlush);
}
#endif

TEST_CASE("select: whatever the distribution") {
  constexpr size_t kCount = 60000;
  constexpr size_t kSampleStride = kCount / 16384;
  constexpr size_t kTop = 600;
  const Floats noise = gaussian(kCount, 5);
  const float largest = std::numeric_limits<float>::max();
  const std::vector<std::pair<const char*, std::function<float(size_t)>>> inputs = {
      {"Gaussian", [&](size_t i) { return noise[i]; }},
      {"sorted", [](size_t i) { return static_cast<float>(i); }},
      {"reversed", [](size_t i) { return static_cast<float>(kCount - i); }},
      {"sawtooth at the stride of the samples",
       [&](size_t i) { return static_cast<float>(i % kSampleStride) + noise[i] * 1e-3f; }},
      {"the samples' places are the small ones",
       [&](size_t i) { return noise[i] * (i % kSampleStride == 0 ? 1e-6f : 1.0f); }},
      {"the samples' places are the large ones",
       [&](size_t i) { return noise[i] * (i % kSampleStride == 0 ? 1.0f : 1e-6f); }},
      {"all in [1, 1.00003]",
       [](size_t i) { return 1 + static_cast<float>(i * 7 % 251) * 0x1p-23f; }},
      {"one 1e30 among 1e-6", [](size_t i) { return i == 777 ? 1e30f : 1e-6f; }},
      {"one 1e30 in small noise", [&](size_t i) { return i == 777 ? 1e30f : noise[i] * 1e-6f; }},
      {"only one block large",
       [&](size_t i) { return noise[i] * (i / 500 == 40 ? 1.0f : 1e-20f); }},
      {"largest numbers", [&](size_t i) { return i % 11 == 0 ? -largest : largest * 0.999f; }},
      {"every exponent",
       [](size_t i) {
         return std::bit_cast<float>(static_cast<uint32_t>(i * 35317 % 0x7f800000));
       }},
  };
  for (const auto& [what, at] : inputs) {
    INFO(what);
    const Floats values = filled(kCount, at);
    checkAgainstReference(values, kTop);
    if (!kSanitized) checkAgainstReference(values, 1);
    if (!kSanitized) checkAgainstReference(values, kCount / 3);
  }
}

TEST_CASE("select: stays exact when everything becomes a thousand times larger or smaller") {
  constexpr size_t kCount = 60000;
  const PayloadLayout layout{600, TopkValues::kFloat32};
  Selector selector;
  Floats residual(kCount);
  float scale = 1;
  for (uint32_t step = 0; step < 10; ++step) {
    Floats gradient = gaussian(kCount, step);
    for (float& value : gradient) value *= scale;
    const Selected expected = referenceSelect(view(gradient), residual, layout);
    const Selected result = selected(selector, view(gradient), residual, layout);
    CAPTURE(step, scale);
    CHECK(same(result, expected));
    residual = step == 5 ? Floats(kCount) : result.residual;  // or what is large would stay
    scale *= step < 3 ? 1000.0f : step < 7 ? 0.001f : 1.0f;
  }
}

TEST_CASE("select: the same bytes a hundred times, whatever the selector had before") {
  constexpr size_t kCount = 30011;
  const Floats gradient = gaussian(kCount, 8);
  const Floats residual = gaussian(kCount, 9);
  const PayloadLayout layout{300, TopkValues::kFloat16};
  Selector selector;
  const Selected first = selected(selector, view(gradient), residual, layout);
  CHECK(same(first, referenceSelect(view(gradient), residual, layout)));
  int different = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    different += !same(selected(selector, view(gradient), residual, layout), first);
  }
  CHECK(different == 0);
  for (const float other : {0.0f, kTiniest, 1e-6f, 1e6f, kInfinity, kNan}) {
    CAPTURE(other);
    // Of another distribution, another k, another size.
    selected(selector, view(Floats(kCount, other)), Floats(kCount), {kCount / 2});
    CHECK(same(selected(selector, view(gradient), residual, layout), first));
    selected(selector, view(Floats(17, other)), Floats(17), {1});
    CHECK(same(selected(selector, view(gradient), residual, layout), first));
  }
}

TEST_CASE("select: the same bytes on every instruction set") {
  const size_t count = kSanitized ? 17003 : 40003;
  std::mt19937 random(4);
  const std::vector<Floats> inputs = {
      gaussian(count, 1), filled(count, [&](size_t) { return anyFloat(random); }),
      filled(count, [](size_t i) { return static_cast<float>(i % 5); }), Floats(count)};
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      const Bytes gradient = stored(dtype, inputs[i]);
      for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
        const PayloadLayout layout{401, values};
        const ConstBuffer buffer(gradient.data(), count, dtype);
        const Selected expected = referenceSelect(buffer, inputs[0], layout);
        const int targets = forEachTarget([&](const char* target) {
          CAPTURE(target, i, name(dtype), layout.valueBytes());
          Selector selector;
          CHECK(same(selected(selector, buffer, inputs[0], layout), expected));
          CHECK(same(selected(selector, buffer, inputs[0], layout), expected));
        });
        CHECK(targets >= 1);
      }
    }
  }
}

TEST_CASE("select: nothing to select from") {
  Selector selector;
  CHECK(selector.select({nullptr, 0, DType::kFloat32}, nullptr, {0}, nullptr));
}

TEST_CASE("select: what it cannot do is refused, and nothing is changed") {
  Selector selector;
  float residual[4] = {1, 2, 3, 4};
  char payload[64];
  const auto codeOf = [&](ConstBuffer gradient, size_t k) {
    try {
      selector.select(gradient, residual, {k}, payload);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kSystem;
  };
  const float gradient[4] = {};
  CHECK(codeOf({gradient, 4, DType::kFloat32}, 5) == ErrorCode::kInvalidArgument);
  CHECK(codeOf({gradient, 4, DType::kFloat32}, 0) == ErrorCode::kInvalidArgument);
  CHECK(codeOf({gradient, 0, DType::kFloat32}, 1) == ErrorCode::kInvalidArgument);
  CHECK(codeOf({gradient, size_t{1} << 32, DType::kFloat32}, 1) == ErrorCode::kInvalidArgument);
  CHECK(codeOf({gradient, 2, DType::kFloat64}, 1) == ErrorCode::kUnsupported);
  CHECK(codeOf({gradient, 4, DType::kInt32}, 1) == ErrorCode::kUnsupported);
  CHECK_THROWS_WITH(selector.select({gradient, 4, DType::kFloat32}, residual, {5}, payload),
                    ContainsSubstring("k is 5"));
  CHECK_THROWS_WITH(selector.select({gradient, 4, DType::kInt32}, residual, {1}, payload),
                    ContainsSubstring("int32"));
  CHECK(residual[3] == 4);
}

}  // namespace
}  // namespace taco
