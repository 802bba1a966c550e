// The GPU's selection against the host's (csrc/topk/select.h) and a scalar reference, byte for
// byte.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"
#include "tests/cuda/topk_pair.h"

namespace taco::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAllSizes = false;
#else
constexpr bool kAllSizes = true;
#endif

std::vector<uint32_t> indicesOf(const Selected& selected, size_t k) {
  std::vector<uint32_t> indices(k);
  for (size_t j = 0; j < k; ++j) indices[j] = indexOf(selected.payload.data(), j);
  return indices;
}

}  // namespace

TEST_CASE("cuda topk: every size around the widths of warp, block and tile, every k") {
  const std::vector<size_t> all = {1,
                                   2,
                                   3,
                                   15,
                                   16,
                                   17,
                                   255,
                                   256,
                                   257,
                                   kTile - 1,
                                   kTile,
                                   kTile + 1,
                                   2 * kTile - 1,
                                   3 * kTile + 5};
  const std::vector<size_t> few = {1, 17, 257, kTile + 1};
  size_t turn = 0;
  for (const size_t count : kAllSizes ? all : few) {
    for (const size_t k :
         {size_t{1}, std::max<size_t>(1, count / 100), std::max<size_t>(1, count - 1), count}) {
      // Each pair of a type of gradients and a type of values comes up, not each with each size.
      const DType dtype = std::vector{DType::kFloat32, DType::kFloat16, DType::kBFloat16}[turn % 3];
      const TopkValues values = turn / 3 % 2 == 0 ? TopkValues::kFloat32 : TopkValues::kFloat16;
      ++turn;
      runner().shuffle(static_cast<uint32_t>(turn));
      Pair pair(dtype, count, {k, values});
      for (uint64_t step = 0; step < 3; ++step) pair.step(gaussians(count, 100 * turn + step));
    }
  }
}

TEST_CASE("cuda topk: pointers that are aligned to elements only") {
  for (const size_t shift : {1, 2, 3}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      Pair pair(dtype, kTile + 77, {300, TopkValues::kFloat16}, shift);
      for (uint64_t step = 0; step < 2; ++step) pair.step(gaussians(kTile + 77, step));
    }
  }
}

TEST_CASE("cuda topk: inputs that are hard to select from") {
  constexpr size_t n = 2 * kTile + 100, k = 81;
  const float largest = std::numeric_limits<float>::max();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<std::pair<const char*, std::function<float(size_t)>>> inputs = {
      {"all equal", [](size_t) { return -2.5f; }},
      {"all zero", [](size_t) { return 0.0f; }},
      {"zeros of both signs", [](size_t i) { return i % 2 == 0 ? 0.0f : -0.0f; }},
      {"the same magnitude, both signs", [](size_t i) { return i % 3 == 0 ? 1.5f : -1.5f; }},
      {"fewer than k that are not zero", [](size_t i) { return i % 500 == 7 ? 1.0f : 0.0f; }},
      {"ties at the k-th", [](size_t i) { return i % 100 == 3 ? 2.0f : 1.0f; }},
      {"denormals", [tiny](size_t i) { return tiny * static_cast<float>(i * 7919 % 8291); }},
      {"FLT_MAX", [largest](size_t i) { return i % 4 == 0 ? largest : -largest / 3; }},
      {"all in [1, 1.00003]",
       [](size_t i) { return 1 + 1e-7f * static_cast<float>(i * 7919 % 300); }},
      {"one 1e30 among 1e-6",
       [](size_t i) { return i == 5000 ? 1e30f : 1e-6f * static_cast<float>(i % 97); }},
      {"one tile large",
       [](size_t i) { return i / kTile == 1 ? 3.0f + 1e-3f * static_cast<float>(i % 991) : 0.1f; }},
      {"ascending", [](size_t i) { return static_cast<float>(i); }},
      {"descending", [](size_t i) { return static_cast<float>(n - i); }},
      {"a sawtooth", [](size_t i) { return static_cast<float>(i % 16); }},
  };
  for (const auto& [name, value] : inputs) {
    for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
      INFO(name);
      Pair pair(DType::kFloat32, n, {k, values});
      for (int step = 0; step < 3; ++step) pair.step(generated(n, value));
    }
  }
}

TEST_CASE("cuda topk: of equal elements the first are chosen, exactly k") {
  constexpr size_t n = kTile + 50, k = 1000;
  Pair pair(DType::kFloat32, n, {k, TopkValues::kFloat32});
  const Selected selected = pair.step(std::vector<float>(n, -1));
  std::vector<uint32_t> first(k);
  for (uint32_t i = 0; i < k; ++i) first[i] = i;
  CHECK(indicesOf(selected, k) == first);
}

TEST_CASE(
    "cuda topk: a gradient that changes slowly costs one pass, one that jumps still selects "
    "exactly") {
  constexpr size_t n = 4 * kTile, k = n / 100;
  Pair pair(DType::kFloat32, n, {k, TopkValues::kFloat32});
  pair.step(gaussians(n, 1));
  CHECK(pair.report().collected == 1);  // nothing to predict from
  for (uint64_t step = 2; step < 6; ++step) pair.step(gaussians(n, step));
  CHECK(pair.report().predicted == 4);
  CHECK(pair.report().collected == 1);

  pair.step(gaussians(n, 6, 1000));  // the guess is far too low
  CHECK(pair.report().collected == 2);
  pair.step(gaussians(n, 7, 1000));
  CHECK(pair.report().predicted == 5);
  pair.setResidual(std::vector<float>(n));
  pair.step(gaussians(n, 8, 0.001f));  // and far too high
  CHECK(pair.report().collected == 3);
  pair.step(gaussians(n, 9, 0.001f));
  CHECK(pair.report().predicted == 6);
  CHECK(pair.report().whole == 0);
}

TEST_CASE("cuda topk: the guess learns how deep it must go") {
  constexpr size_t n = 4 * kTile, k = n / 200;
  DeviceSelector device(DType::kFloat32, n, {k, TopkValues::kFloat32});
  // The same gradient again and again heaps up residuals below the threshold: a fixed depth of a
  // tenth would make a tenth of all elements candidates, 20 k.
  const Bytes gradient = stored(DType::kFloat32, gaussians(n, 1));
  for (int step = 0; step < 40; ++step) device.step(gradient);
  const uint32_t before = device.report().predicted;
  for (int step = 0; step < 20; ++step) {
    device.step(gradient);
    CHECK(device.report().candidates >= k);
    CHECK(device.report().candidates < 10 * k);
  }
  CHECK(device.report().predicted >= before + 17);
}

TEST_CASE("cuda topk: the report has the k-th key") {
  Pair pair(DType::kFloat32, 100, {3, TopkValues::kFloat32});
  pair.step(generated(100, [](size_t i) { return -static_cast<float>(i); }));
  CHECK(pair.report().thresholdKey == magnitudeBits(97));
  CHECK(pair.report().candidates >= 3);
  CHECK(pair.report().candidates <= 100);
}

TEST_CASE("cuda topk: more equals than there is room for are chosen from the whole residual") {
  constexpr size_t n = 17 * kTile, k = 100;  // room for 65536 candidates
  // On every level of digits something is larger: 35 far above the rest, 70 a little above it.
  const auto crowded = [](size_t i) {
    if (i % 2000 == 3) return -5.0f;
    if (i % 1000 == 503) return 1.01f;
    return 1 + 1e-7f * static_cast<float>(i % 8);
  };
  Pair pair(DType::kFloat32, n, {k, TopkValues::kFloat32});
  for (int step = 0; step < 2; ++step) pair.step(generated(n, crowded));
  CHECK(pair.report().whole == 2);
}

TEST_CASE("cuda topk: with a few elements that are not zero, the zeros need no histogram") {
  constexpr size_t n = 2 * kTile, k = 50;
  Pair pair(DType::kFloat32, n, {k, TopkValues::kFloat32});
  const auto sparse = [](size_t i) { return i % 1000 == 1 ? -3.0f : 0.0f; };
  for (int step = 0; step < 3; ++step) {
    const Selected selected = pair.step(generated(n, sparse));
    CHECK(pair.residual() == std::vector<float>(n));
    CHECK(indexOf(selected.payload.data(), 1) == 1);
  }
  CHECK(pair.report().collected == 1);
  CHECK(pair.report().whole == 2);
}

TEST_CASE("cuda topk: NaN and infinity are chosen first, told, and forgotten") {
  constexpr size_t n = 600, k = 4;
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      Pair pair(dtype, n, {k, values});
      CHECK(pair.step(gaussians(n, 1)).finite);
      std::vector<float> gradient = gaussians(n, 2);
      gradient[77] = infinity;
      gradient[300] = -nan;
      gradient[599] = -infinity;
      const Selected selected = pair.step(gradient);
      CHECK_FALSE(selected.finite);
      CHECK(selected.residual[300] == 0);
      CHECK(pair.step(gaussians(n, 3)).finite);
      // More of them than are chosen: what stays is not finite either, and is told every time.
      for (size_t i = 10; i < 20; ++i) gradient[i] = nan;
      CHECK_FALSE(pair.step(gradient).finite);
      CHECK_FALSE(pair.step(gaussians(n, 4)).finite);
      CHECK_FALSE(pair.step(gaussians(n, 5)).finite);
    }
  }
}

TEST_CASE("cuda topk: float16 values saturate, and what they lose is kept") {
  const std::vector<float> gradient = {70000, -1e9f, 1e-9f, 6e8f, 0x1.00003cp+29f,
                                       65519, 65520, -0.1f, 3e38f};
  Pair pair(DType::kFloat32, gradient.size(), {gradient.size(), TopkValues::kFloat16});
  const Selected selected = pair.step(gradient);
  CHECK(selected.finite);
  CHECK(valueOf(selected.payload.data(), {gradient.size(), TopkValues::kFloat16}, 0) == 65504);
  CHECK(selected.residual[0] == 70000 - 65504);
  CHECK(selected.residual[2] == 1e-9f);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float sent = valueOf(selected.payload.data(), {gradient.size(), TopkValues::kFloat16}, i);
    CHECK(sent + selected.residual[i] == gradient[i]);
  }
}

TEST_CASE("cuda topk: a constant gradient is sent in full over time") {
  // By hand, k = 1 of [4, 3, 2, 1]: 4 goes; then 3 + 3 = 6; then 4 + 4 = 8; 2 x 3 = 6 and 4 x 1
  // stay.
  Pair pair(DType::kFloat32, 4, {1, TopkValues::kFloat32});
  std::vector<float> sent(4);
  for (int step = 0; step < 3; ++step) {
    const Selected selected = pair.step({4, 3, 2, 1});
    sent[indexOf(selected.payload.data(), 0)] +=
        valueOf(selected.payload.data(), {1, TopkValues::kFloat32}, 0);
  }
  CHECK(sent == std::vector<float>{12, 6, 0, 0});
  CHECK(pair.residual() == std::vector<float>{0, 3, 6, 3});
}

TEST_CASE("cuda topk: nothing to select from is nothing to do") {
  const Selected selected = DeviceSelector(DType::kFloat32, 0, {0, TopkValues::kFloat32}).step({});
  CHECK(selected.finite);
}

TEST_CASE("cuda topk: calls that cannot be done are refused with a sentence") {
  DeviceMemory memory(1024), found(4);
  cuda::SelectCall good;
  good.gradient = memory.data();
  good.residual = reinterpret_cast<float*>(memory.data());
  good.payload = memory.data();
  good.found = reinterpret_cast<uint32_t*>(found.data());
  good.count = 10;
  good.layout = {2, TopkValues::kFloat32};
  const auto refused = [&](const std::function<void(cuda::SelectCall&)>& change) {
    cuda::SelectCall call = good;
    change(call);
    return complaint([&] { runner().select(call); });
  };
  CHECK(refused([](auto& call) { call.dtype = DType::kFloat64; }) ==
        "there is no GPU kernel that selects from float64; it takes float32, float16 and bfloat16");
  CHECK(refused([](auto& call) { call.count = 1ull << 31; }) ==
        "a TopK selection on the GPU takes fewer than 2^31 elements, not 2147483648");
  CHECK(refused([](auto& call) { call.layout.k = 11; }) ==
        "a TopK selection on the GPU was asked for 11 of 10 elements");
  CHECK(refused([](auto& call) { call.layout.k = 0; }) ==
        "a TopK selection on the GPU was asked for 0 of 10 elements");
  CHECK(refused([](auto& call) { call.found = nullptr; }) ==
        "a TopK selection on the GPU needs a word in device memory for what it finds");
  CHECK(refused([&](auto& call) { call.payload = memory.data() + 2; }) ==
        "a TopK selection on the GPU needs gradient and residual aligned to their elements and the "
        "payload to 4 bytes");
  CHECK_THAT(refused([&](auto& call) { call.workspaceBytes = 100; }),
             Catch::Matchers::ContainsSubstring("aligned to 256; it was given 100 bytes"));
}

}  // namespace taco::testing
