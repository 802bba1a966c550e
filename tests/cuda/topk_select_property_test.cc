// Many runs of the GPU's selection: random inputs against the host, and repeats against themselves.
#include <bit>
#include <cstdint>
#include <vector>

#include "tests/csrc/catch.h"
#include "tests/csrc/seeded.h"
#include "tests/cuda/topk_pair.h"

namespace taco::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int kRandomCases = 100;
constexpr uint32_t kTurns = 10;
#else
constexpr int kRandomCases = 1000;
constexpr uint32_t kTurns = 100;
#endif

}  // namespace

TEST_CASE("cuda topk: the same bits again and again, in whatever order the blocks run") {
  constexpr size_t n = 5 * kTile + 3;
  const PayloadLayout layout = {n / 50, TopkValues::kFloat32};
  std::vector<Selected> first;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    runner().shuffle(turn);
    DeviceSelector device(DType::kFloat32, n, layout);
    for (uint64_t step = 0; step < 2; ++step) {
      // Few different values: positions of ties depend on every tile before.
      Selected selected = device.step(stored(DType::kFloat32, generated(n, [step](size_t i) {
                                               return static_cast<float>((i * 7919 + step) % 40);
                                             })));
      if (turn == 0) {
        first.push_back(selected);
      } else if (selected.payload != first[step].payload ||
                 selected.residual != first[step].residual) {
        FAIL("turn " << turn << " differs");
      }
    }
  }
  runner().shuffle(0);
  CHECK(first.size() == 2);
}

TEST_CASE("cuda topk: random cases") {
  class Cases : public Seeded {
   public:
    Cases() : Seeded("TopK selection on the GPU", "CUDA_TOPK_SEED", 20261202, kRandomCases) {}
    float value(size_t kind) {
      const auto random = static_cast<uint32_t>(bits());
      switch (kind) {
        case 0:  // any bits
          return std::bit_cast<float>(random);
        case 1:  // denormals
          return std::bit_cast<float>(random & 0x807fffffu);
        case 2:  // ties
          return static_cast<float>(static_cast<int>(random % 7) - 3);
        case 3:  // mostly zero
          return random % 10 == 0 ? gaussian(bits()) : 0.0f;
        case 4:  // beyond float16
          return 70000 * gaussian(bits());
        default:
          return gaussian(bits());
      }
    }
  };
  Cases cases;
  for (int i = 0; i < cases.cases(); ++i) {
    const size_t count = 1 + cases.below(cases.chance(10) ? 3 * kTile : 700);
    const double ratio = cases.oneOf<double>({0.001, 0.01, 0.1, 0.5, 1});
    const PayloadLayout layout = {topkCount(count, ratio),
                                  cases.chance(50) ? TopkValues::kFloat16 : TopkValues::kFloat32};
    const DType dtype =
        cases.oneOf<DType>({DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kBFloat16});
    INFO("case " << i);
    runner().shuffle(static_cast<uint32_t>(cases.bits()));
    Pair pair(dtype, count, layout, cases.below(4));
    const size_t steps = 1 + cases.below(3);
    for (size_t step = 0; step < steps; ++step) {
      const size_t kind = cases.below(8);
      pair.step(generated(count, [&](size_t) { return cases.value(kind); }));
    }
  }
  runner().shuffle(0);
}

}  // namespace taco::testing
