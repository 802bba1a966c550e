// The GPU's scatter-add against the host's (csrc/topk/scatter_add.h) and a scalar reference, byte
// for byte.
#include "csrc/topk/scatter_add.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"
#include "tests/cuda/topk_runner.h"

namespace taco::testing {
namespace {

constexpr size_t kTile = 4096;

// k random places of `count`, and values.
Bytes randomPayload(std::mt19937_64* random, size_t count, PayloadLayout layout, float scale = 1) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0u);
  std::vector<uint32_t> chosen;
  std::sample(all.begin(), all.end(), std::back_inserter(chosen), layout.k, *random);
  Bytes payload(layout.bytes());
  std::memcpy(payload.data(), chosen.data(), 4 * layout.k);
  const DType dtype = layout.valueBytes() == 4 ? DType::kFloat32 : DType::kFloat16;
  for (size_t j = 0; j < layout.k; ++j) {
    const float value = scale * (static_cast<float>((*random)() % 20001) - 10000) / 3000;
    narrowed(dtype, value, payload.data() + layout.valueOffset() + j * layout.valueBytes());
  }
  return payload;
}

struct Summed {
  Bytes dense;
  uint32_t found;
};

Summed onDevice(const std::vector<Bytes>& payloads, PayloadLayout layout, size_t count, DType dtype,
                int64_t divisor, size_t shift = 0, size_t gap = 0) {
  const size_t stride = layout.bytes() + gap;
  Bytes together(stride * payloads.size(), 0xcc);
  for (size_t i = 0; i < payloads.size(); ++i) {
    std::copy(payloads[i].begin(), payloads[i].end(),
              together.begin() + static_cast<ptrdiff_t>(i * stride));
  }
  const DeviceMemory in(together, 4 * shift),
      dense(count * elementBytes(dtype), shift * elementBytes(dtype));
  const DeviceMemory found(4);
  cuda::ScatterAddCall call;
  call.payloads = in.data();
  call.strideBytes = stride;
  call.payloadCount = static_cast<int>(payloads.size());
  call.layout = layout;
  call.dense = dense.data();
  call.count = count;
  call.dtype = dtype;
  call.divisor = divisor;
  call.found = reinterpret_cast<uint32_t*>(found.data());
  runner().scatterAdd(call);
  if (!dense.isGuarded() || !in.isGuarded() || !found.isGuarded())
    FAIL("written beside the memory");
  return {dense.read(), found.readAs<uint32_t>()[0]};
}

void compare(const std::vector<Bytes>& payloads, PayloadLayout layout, size_t count, DType dtype,
             int64_t divisor, size_t shift = 0, size_t gap = 0) {
  INFO(payloads.size() << " payloads of " << layout.k << " into " << count << " x " << name(dtype)
                       << ", values of " << layout.valueBytes() << " bytes, divided by "
                       << divisor);
  const Summed device = onDevice(payloads, layout, count, dtype, divisor, shift, gap);
  std::vector<const void*> pointers;
  for (const Bytes& payload : payloads) pointers.push_back(payload.data());
  Bytes host(count * elementBytes(dtype), 0x77);
  const bool finite = scatterAdd(pointers, layout, Buffer{host.data(), count, dtype}, divisor);
  if (device.dense != referenceScatterAdd(payloads, layout, count, dtype, divisor)) {
    FAIL("the device's bytes are not the reference's");
  }
  if (device.dense != host) FAIL("the device's bytes are not the host's");
  CHECK(device.found == (finite ? 0 : cuda::kFoundNonFinite));
}

}  // namespace

TEST_CASE("cuda scatter-add: sizes around a tile, numbers of payloads, all types") {
  std::mt19937_64 random(1);
  size_t turn = 0;
  for (const size_t count : {size_t{1}, size_t{2}, size_t{17}, size_t{255}, size_t{257}, kTile - 1,
                             kTile, kTile + 1, 3 * kTile + 9}) {
    for (const size_t payloads : {1, 2, 3, 16, 33}) {
      const size_t k =
          std::vector<size_t>{1, std::max<size_t>(1, count / 100), count / 2 + 1, count}[turn % 4];
      const PayloadLayout layout = {
          std::min(k, count), turn / 2 % 2 == 0 ? TopkValues::kFloat32 : TopkValues::kFloat16};
      const DType dtype = std::vector{DType::kFloat32, DType::kFloat16, DType::kBFloat16}[turn % 3];
      runner().shuffle(static_cast<uint32_t>(++turn));
      std::vector<Bytes> all;
      for (size_t i = 0; i < payloads; ++i) all.push_back(randomPayload(&random, count, layout));
      compare(all, layout, count, dtype, turn % 2 == 0 ? 1 : static_cast<int64_t>(payloads));
    }
  }
  runner().shuffle(0);
}

TEST_CASE("cuda scatter-add: the order of the additions is that of the payloads") {
  // Sums of five such values depend on it, nearly everywhere.
  std::mt19937_64 random(6);
  constexpr size_t count = 3000;
  const PayloadLayout layout = {count / 2, TopkValues::kFloat32};
  for (uint32_t seed = 0; seed < 5; ++seed) {
    runner().shuffle(seed);
    std::vector<Bytes> payloads;
    for (const float scale : {1.0f, 1e3f, 1e-3f, 1e6f, 7.0f}) {
      payloads.push_back(randomPayload(&random, count, layout, scale));
    }
    compare(payloads, layout, count, DType::kFloat32, 5);
  }
  runner().shuffle(0);
}

TEST_CASE("cuda scatter-add: long lists are searched to the right place") {
  std::mt19937_64 random(2);
  constexpr size_t count = 10 * kTile;
  const PayloadLayout layout = {6000, TopkValues::kFloat32};
  compare({randomPayload(&random, count, layout), randomPayload(&random, count, layout)}, layout,
          count, DType::kFloat32, 2);
  // All of one list in one tile, at either end.
  for (const uint32_t begin :
       {uint32_t{0}, static_cast<uint32_t>(count - 3000), static_cast<uint32_t>(3 * kTile + 500)}) {
    const PayloadLayout dense = {3000, TopkValues::kFloat32};
    Bytes payload = randomPayload(&random, count, dense);
    for (uint32_t j = 0; j < 3000; ++j) {
      const uint32_t index = begin + j;
      std::memcpy(payload.data() + 4 * j, &index, 4);
    }
    compare({payload, randomPayload(&random, count, dense)}, dense, count, DType::kFloat32, 1);
  }
}

TEST_CASE(
    "cuda scatter-add: payloads with gaps between them, and a dense buffer aligned to elements "
    "only") {
  std::mt19937_64 random(3);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
      const PayloadLayout layout = {77, values};
      compare(
          {randomPayload(&random, kTile + 5, layout), randomPayload(&random, kTile + 5, layout)},
          layout, kTile + 5, dtype, 3, 1, 12);
    }
  }
}

TEST_CASE(
    "cuda scatter-add: sums beyond float16 become infinite, once rounded, and no flag is raised") {
  std::mt19937_64 random(4);
  const PayloadLayout layout = {300, TopkValues::kFloat16};
  compare({randomPayload(&random, 300, layout, 10000), randomPayload(&random, 300, layout, 10000)},
          layout, 300, DType::kFloat16, 1);
}

TEST_CASE("cuda scatter-add: NaN and infinity go through and raise the flag") {
  const PayloadLayout layout = {2, TopkValues::kFloat32};
  for (const float special :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        -std::numeric_limits<float>::quiet_NaN()}) {
    Bytes payload(layout.bytes());
    const uint32_t indices[] = {3, kTile + 1};
    const float values[] = {1.5f, special};
    std::memcpy(payload.data(), indices, 8);
    std::memcpy(payload.data() + 8, values, 8);
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      compare({payload}, layout, kTile + 9, dtype, 2);
    }
  }
}

TEST_CASE("cuda scatter-add: no payloads, and payloads of nothing, give zeros") {
  for (const size_t payloads : {0, 2}) {
    const Summed summed =
        onDevice(std::vector<Bytes>(payloads), {0, TopkValues::kFloat32}, 700, DType::kFloat32, 1);
    CHECK(summed.dense == Bytes(2800));
    CHECK(summed.found == 0);
  }
  CHECK(onDevice({}, {0, TopkValues::kFloat32}, 0, DType::kFloat32, 1).found == 0);
}

TEST_CASE("cuda scatter-add: a broken payload is told and touches nothing else") {
  std::mt19937_64 random(5);
  constexpr size_t count = 2 * kTile + 10;
  const PayloadLayout layout = {400, TopkValues::kFloat32};
  const Bytes good = randomPayload(&random, count, layout);
  const auto foundWith = [&](size_t position, uint32_t index) {
    Bytes broken = good;
    std::memcpy(broken.data() + 4 * position, &index, 4);
    return onDevice({good, broken}, layout, count, DType::kFloat32, 1).found;
  };
  CHECK(onDevice({good, good}, layout, count, DType::kFloat32, 1).found == 0);
  CHECK(foundWith(399, count) == cuda::kFoundBrokenPayload);                      // just outside
  CHECK(foundWith(200, 0xffffffff) == cuda::kFoundBrokenPayload);                 // far outside
  CHECK(foundWith(200, indexOf(good.data(), 199)) == cuda::kFoundBrokenPayload);  // the same twice
  CHECK(foundWith(200, 0) == cuda::kFoundBrokenPayload);                          // descending
  // Nothing in order at all.
  Bytes noise = good;
  for (size_t j = 0; j < layout.k; ++j) {
    const auto index = static_cast<uint32_t>(random());
    std::memcpy(noise.data() + 4 * j, &index, 4);
  }
  CHECK(onDevice({noise}, layout, count, DType::kFloat32, 1).found == cuda::kFoundBrokenPayload);
}

TEST_CASE("cuda scatter-add: calls that cannot be done are refused with a sentence") {
  DeviceMemory memory(1024), found(4);
  cuda::ScatterAddCall good;
  good.payloads = memory.data();
  good.strideBytes = 16;
  good.payloadCount = 2;
  good.layout = {2, TopkValues::kFloat32};
  good.dense = memory.data() + 512;
  good.count = 10;
  good.found = reinterpret_cast<uint32_t*>(found.data());
  const auto refused = [&](const std::function<void(cuda::ScatterAddCall&)>& change) {
    cuda::ScatterAddCall call = good;
    change(call);
    return complaint([&] { runner().scatterAdd(call); });
  };
  CHECK(refused([](auto& call) { call.dtype = DType::kInt32; }) ==
        "there is no GPU kernel that scatters into int32; it writes float32, float16 and bfloat16");
  CHECK(refused([](auto& call) { call.count = 1ull << 32; }) ==
        "a TopK scatter-add on the GPU writes fewer than 2^31 elements, not 4294967296");
  CHECK(refused([](auto& call) { call.layout.k = 11; }) ==
        "a TopK scatter-add on the GPU was given payloads of 11 elements for a buffer of 10");
  CHECK(refused([](auto& call) { call.payloadCount = -1; }) ==
        "a TopK scatter-add on the GPU was given -1 payloads");
  CHECK(refused([](auto& call) { call.divisor = 0; }) ==
        "a TopK scatter-add on the GPU cannot divide by 0");
  CHECK(refused([](auto& call) { call.strideBytes = 12; }) ==
        "a TopK scatter-add on the GPU needs payloads a multiple of 4 bytes and at least 16 apart, "
        "not 12");
  CHECK(refused([&](auto& call) { call.dense = memory.data() + 514; }) ==
        "a TopK scatter-add on the GPU needs the payloads aligned to 4 bytes and the dense buffer "
        "to its elements");
  CHECK(refused([](auto& call) { call.found = nullptr; }) ==
        "a TopK scatter-add on the GPU needs a word in device memory for what it finds");
}

}  // namespace taco::testing
