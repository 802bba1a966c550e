#pragma once

#include <memory>
#include <string>

#include "perf/native/options.h"
#include "perf/native/start_line.h"

namespace taco::perf {

// One operation of a benchmark, as every contender is given it.
struct Call {
  Operation operation = Operation::kAllReduce;
  ElementType type = ElementType::kFloat32;
  size_t countEach = 0;  // as in Problem
  char* in = nullptr;    // the data themselves where the operation works in place
  char* out = nullptr;
};

// TACO, or a peer. Methods but the getters are collective.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string name() const = 0;
  virtual std::string describe() const = 0;                   // library and version
  virtual std::string algorithm(const Call& call) const = 0;  // empty where it does not tell
  virtual std::string settings() const = 0;
  // False, before anything is sent: it has no such operation, or not for this type.
  virtual bool run(const Call& call) = 0;
};

std::unique_ptr<Contender> makeTaco(const std::string& folder, const StartLine& startLine);
std::unique_ptr<Contender> makePeer(const PeerOption& option, StartLine& startLine);

}  // namespace taco::perf
