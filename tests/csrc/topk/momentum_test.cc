#include "csrc/topk/momentum.h"

#include "csrc/data/half.h"
#include "csrc/topk/payload.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/topk/topk_reference.h"

namespace taco {
namespace {

using namespace taco::testing;

const DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// `bytes` at an address that no element is aligned to.
struct Misaligned {
  explicit Misaligned(const Bytes& bytes) : memory(bytes.size() + 1) {
    std::copy(bytes.begin(), bytes.end(), memory.begin() + 1);
  }
  void* data() { return memory.data() + 1; }
  Bytes memory;
};

TEST_CASE("momentum: u = m u + g, of every dtype and at any address") {
  for (const DType dtype : kDtypes) {
    for (const size_t count : {0, 1, 7, 64, 1001}) {
      std::vector<float> gradient(count), momentum(count), expected(count);
      for (size_t i = 0; i < count; ++i) {
        gradient[i] = static_cast<float>(i % 13) - 6;  // exact in all of them
        momentum[i] = static_cast<float>(i) * 0.5f;
        expected[i] = 0.25f * momentum[i] + gradient[i];
      }
      Misaligned from(stored(dtype, gradient));
      addMomentum(momentum.data(), ConstBuffer(from.data(), count, dtype), 0.25);
      CHECK(momentum == expected);
    }
  }
}

TEST_CASE("momentum: what was sent is masked, everything else stays") {
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    const PayloadLayout layout{3, values};
    Bytes payload(layout.bytes());
    const uint32_t indices[] = {0, 4, 5};
    std::memcpy(payload.data(), indices, sizeof indices);
    std::vector<float> momentum = {1, 2, 3, 4, 5, 6, 7};
    maskSent(momentum.data(), payload.data(), layout);
    CHECK(momentum == std::vector<float>{0, 2, 3, 4, 0, 0, 7});
  }
}

TEST_CASE("momentum: a flush into float16 saturates, and leaves infinities alone") {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> gradient = {10000, -10000, infinity, 1};
  std::vector<float> residual = {60000, -60000, 0, 0};
  Bytes values = stored(DType::kFloat16, gradient);
  const Buffer buffer{values.data(), 4, DType::kFloat16};
  flushResidual(buffer, buffer, residual.data());
  CHECK(values == stored(DType::kFloat16, {65504, -65504, infinity, 1}));
}

TEST_CASE("momentum: a flush adds the residual in float32 and rounds once") {
  for (const DType dtype : kDtypes) {
    for (const bool inPlace : {true, false}) {
      const size_t count = 101;
      std::vector<float> gradient(count), residual(count), expected(count);
      for (size_t i = 0; i < count; ++i) {
        gradient[i] = static_cast<float>(i) - 50;
        residual[i] = 0.3f * static_cast<float>(i % 7);
        expected[i] = gradient[i] + residual[i];
      }
      Misaligned values(inPlace ? stored(dtype, gradient) : Bytes(count * elementBytes(dtype)));
      const Buffer to{values.data(), count, dtype};
      flushResidual(to, inPlace ? ConstBuffer(to) : ConstBuffer(gradient.data(), count, DType::kFloat32),
                    residual.data());
      CHECK(Bytes(values.memory.begin() + 1, values.memory.end()) == stored(dtype, expected));
      CHECK(residual == std::vector<float>(count, 0.0f));
    }
  }
}

}  // namespace
}  // namespace taco
