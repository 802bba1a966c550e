// Random inputs of every kind against the reference, byte for byte, and the law of error feedback:
// scatter(sent) + new residual == gradient + old residual, bit for bit.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "csrc/topk/select.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/seeded.h"
#include "tests/csrc/topk/topk_reference.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr int kCases = kSanitized ? 1500 : 12000;

// A case: how values are drawn, and all that they are drawn for.
class Cases : public Seeded {
 public:
  Cases() : Seeded("TopK selection", "TOPK_SEED", 20261201, kCases) {}

  size_t count() {
    static const std::vector<size_t> edges = {1, 2, 3, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1023};
    if (chance(40)) return oneOf(edges);
    return 1 + below(chance(3) ? 40000 : 900);
  }
  size_t k(size_t count) {
    static const std::vector<double> ratios = {0.001, 0.01, 0.1, 0.5, 1};
    if (chance(10)) return count == 1 ? 1 : count - 1;
    return topkCount(count, oneOf(ratios));
  }
  DType dtype() {
    return oneOf<DType>({DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  }
  std::vector<float> values(size_t count) {
    const size_t kind = below(8);
    std::vector<float> values(count);
    for (float& value : values) value = one(kind);
    return values;
  }

 private:
  float one(size_t kind) {
    const auto random = static_cast<uint32_t>(bits());
    switch (kind) {
      case 0:  // any bits: denormals, NaNs, infinities
        return std::bit_cast<float>(random);
      case 1:  // any finite bits
        return std::bit_cast<float>((random & 0x7f800000u) == 0x7f800000u ? random ^ 0x40000000u
                                                                          : random);
      case 2:  // denormals
        return std::bit_cast<float>(random & 0x807fffffu);
      case 3:  // ties in plenty
        return static_cast<float>(static_cast<int>(random % 7) - 3);
      case 4:  // mostly zeros, of both signs
        return random % 10 == 0 ? gauss() : (random % 2 ? 0.0f : -0.0f);
      case 5:  // too large for float16, in part
        return gauss() * 70000;
      case 6:  // tiny, with an outlier
        return random % 500 == 0 ? 1e30f : gauss() * 1e-6f;
      default:
        return gauss();
    }
  }
  float gauss() {
    float sum = 0;
    for (uint64_t rest = bits(); rest != 0; rest >>= 16) sum += static_cast<float>(rest & 0xffff);
    return (sum - 131070.0f) / 37837.0f;
  }
};

struct Case {
  DType dtype;
  PayloadLayout layout;
  std::vector<float> residual;
  Bytes gradientBytes;
  size_t shift;  // of the gradient in memory

  ConstBuffer gradient() const { return {gradientBytes.data() + shift, residual.size(), dtype}; }
  std::string text() const {
    return std::to_string(residual.size()) + " x " + name(dtype) + ", k " +
           std::to_string(layout.k) + (layout.valueBytes() == 2 ? ", float16 values" : "");
  }
};

Case drawCase(Cases& cases) {
  const size_t count = cases.count();
  Case drawn;
  drawn.dtype = cases.dtype();
  drawn.layout = {cases.k(count), cases.chance(40) ? TopkValues::kFloat16 : TopkValues::kFloat32};
  drawn.residual = cases.chance(20) ? std::vector<float>(count) : cases.values(count);
  // Sums are never -0 where the residual was not, and residuals begin as +0.
  for (float& value : drawn.residual) value += 0.0f;
  const Bytes plain = stored(drawn.dtype, cases.values(count));
  drawn.shift = cases.chance(30) ? cases.below(64) : 0;
  drawn.gradientBytes.resize(plain.size() + drawn.shift);
  if (!plain.empty())
    std::memcpy(drawn.gradientBytes.data() + drawn.shift, plain.data(), plain.size());
  return drawn;
}

// Empty, or the first place where something was lost.
std::string lost(const Case& given, const Selected& result) {
  const std::vector<float>& residual = result.residual;
  const uint8_t* const payload = result.payload.data();
  std::vector<float> sent(residual.size());
  for (size_t j = 0; j < given.layout.k; ++j) {
    sent[indexOf(payload, j)] = valueOf(payload, given.layout, j);
  }
  for (size_t i = 0; i < residual.size(); ++i) {
    const float before =
        given.residual[i] +
        widened(given.dtype, given.gradient().bytePointer() + i * elementBytes(given.dtype));
    const float after = sent[i] + residual[i];
    if (std::bit_cast<uint32_t>(withoutNanPayload(before)) !=
        std::bit_cast<uint32_t>(withoutNanPayload(after))) {
      return "element " + std::to_string(i) + " was " + std::to_string(before) + " and is " +
             std::to_string(after);
    }
  }
  return "";
}

TEST_CASE("select: random cases equal the reference, and nothing is lost") {
  Cases cases;
  Selector remembering;  // has the guess of some other buffer, nearly always a bad one
  int wrong = 0;
  for (int i = 0; i < cases.cases() && wrong < 5; ++i) {
    const Case given = drawCase(cases);
    Selector fresh;
    Selector& selector = i % 2 == 0 ? fresh : remembering;
    const Selected result = selected(selector, given.gradient(), given.residual, given.layout);
    INFO("case " << i << ": " << given.text());
    const bool right =
        same(result, referenceSelect(given.gradient(), given.residual, given.layout));
    if (!right) FAIL_CHECK("differs from the reference");
    const std::string loss = lost(given, result);
    if (!loss.empty()) FAIL_CHECK(loss);
    wrong += !right || !loss.empty();
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace taco
