// TACO's engine as users of C++ have it: a Communicator, one submit() an operation.

#include <vector>

#include "csrc/base/format.h"
#include "csrc/communicator/communicator.h"
#include "perf/native/contender.h"
#include "tests/mpi/folder_store.h"

namespace taco::perf {
namespace {

DType dtypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return DType::kFloat32;
    case ElementType::kFloat16:
      return DType::kFloat16;
    case ElementType::kBFloat16:
      return DType::kBFloat16;
  }
  return DType::kFloat32;
}

class Taco : public Contender {
 public:
  Taco(const std::string& folder, const StartLine& startLine) {
    CommunicatorConfig config;
    config.rank = startLine.rank();
    config.size = startLine.size();
    config.store = std::make_shared<FolderStore>(folder + "/store");
    config.environment = processEnvironment();
    config.timeout = Millis(300'000);
    config.groupName = "native bench";
    communicator_ = std::make_unique<Communicator>(config);
    blocks_.resize(static_cast<size_t>(startLine.size()));
    constBlocks_.resize(blocks_.size());
    for (const auto& [name, value] : config.environment) {
      if (name.starts_with("TACO_") || name.starts_with("LIGHT_")) {
        settings_ += str(settings_.empty() ? "" : " ", name, "=", value);
      }
    }
  }

  std::string name() const override { return "taco"; }
  std::string describe() const override { return communicator_->describe(); }
  std::string settings() const override { return settings_; }

  std::string algorithm(const Call& call) const override {
    if (call.operation != Operation::kAllReduce) return "";
    const DType dtype = dtypeOf(call.type);
    const auto plan = communicator_->explainAllReduce(call.countEach * elementBytes(call.type),
                                                      dtype, ReduceOp::kSum);
    return taco::name(plan.algorithm);
  }

  bool run(const Call& call) override {
    const auto error = communicator_->run(
        Millis(0), [this, &call](Collectives& collectives) { perform(collectives, call); });
    if (error) throw *error;
    return true;
  }

 private:
  void perform(Collectives& collectives, const Call& call) {
    const Buffer in{call.in, call.countEach, dtypeOf(call.type)};
    const Buffer out{call.out, call.countEach, dtypeOf(call.type)};
    switch (call.operation) {
      case Operation::kAllReduce:
        collectives.allReduce(in, ReduceSpec{});
        return;
      case Operation::kBroadcast:
        collectives.broadcast(in, 0);
        return;
      case Operation::kAllGather:
        collectives.allGather(in, blocksOf(out));
        return;
      case Operation::kReduceScatter:
        collectives.reduceScatter(constBlocksOf(in), out, ReduceSpec{});
        return;
      case Operation::kAllToAll:
        collectives.allToAll(constBlocksOf(in), blocksOf(out));
        return;
    }
  }

  std::span<const Buffer> blocksOf(const Buffer& first) {
    for (size_t i = 0; i < blocks_.size(); ++i)
      blocks_[i] = first.slice(i * first.count, first.count);
    return blocks_;
  }
  std::span<const ConstBuffer> constBlocksOf(const Buffer& first) {
    for (size_t i = 0; i < constBlocks_.size(); ++i) {
      constBlocks_[i] = first.slice(i * first.count, first.count);
    }
    return constBlocks_;
  }

  std::unique_ptr<Communicator> communicator_;
  std::vector<Buffer> blocks_;
  std::vector<ConstBuffer> constBlocks_;
  std::string settings_;
};

}  // namespace

std::unique_ptr<Contender> makeTaco(const std::string& folder, const StartLine& startLine) {
  return std::make_unique<Taco>(folder, startLine);
}

}  // namespace taco::perf
