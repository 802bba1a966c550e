#pragma once

#include <cfenv>

namespace taco {

// IEEE arithmetic for as long as it lives, whatever the thread had chosen: to nearest even, and
// with denormals, which torch.set_flush_denormal(True) would take away. Ranks whose threads differ
// in that would otherwise differ in their results.
class IeeeArithmetic {
 public:
  IeeeArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~IeeeArithmetic() { std::fesetenv(&before_); }
  IeeeArithmetic(const IeeeArithmetic&) = delete;
  IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace taco
