// The c10d backend "taco": the surface that torch.distributed calls, over the engine
// (csrc/communicator). Every operation has the same shape: check the arguments and stage the
// tensors on the caller's thread, then launch() a body that runs on the group's ordered lane and
// sees plain buffers only. The families: movement.cc, gathers.cc, reductions.cc, point_to_point.cc.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/communicator/communicator.h"
#include "torch_ext/storage_identity.h"
#include "torch_ext/work.h"

namespace taco {

class Staged;
struct Nesting;

// Newer headers pass what older ones lack; the same source builds for torch 2.9 to 2.15.
class ProcessGroupTaco final : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(Millis timeoutMs = kBackendDefaultTimeout)
        : c10d::Backend::Options("taco", timeoutMs) {}
    // Of settings: name of the environment variable -> value. They win over the environment.
    std::map<std::string, std::string> settings;
    // Overrides the base's where there is one (torch 2.15), so that no copy is sliced.
    c10::intrusive_ptr<c10d::Backend::Options> clone() const {
      return c10::make_intrusive<Options>(*this);
    }
  };

  // Meets the other ranks through `store`; the caller must not hold the GIL.
  ProcessGroupTaco(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                   c10::intrusive_ptr<Options> options);
  ~ProcessGroupTaco() override;

  const std::string getBackendName() const override { return "taco"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;

  // --- movement.cc
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& outputSplits,
                                               std::vector<int64_t>& inputSplits,
                                               const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& opts) override;

  // --- gathers.cc
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(
      std::vector<std::vector<at::Tensor>>& outputLists, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& opts) override;
#ifdef C10D_BACKEND_HAS_HOOKS  // the trees that have gather_single (torch 2.15)
  c10::intrusive_ptr<c10d::Work> gather_single(at::Tensor& output, at::Tensor& input,
                                               const c10d::GatherOptions& opts) override;
#endif

  // --- reductions.cc
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                  const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(std::vector<at::Tensor>& outputs,
                                                std::vector<std::vector<at::Tensor>>& inputs,
                                                const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& opts) override;

  // --- point_to_point.cc
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination,
                                      int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int source,
                                      int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) override;

  // --- process_group_taco.cc
  // Operations go out as they are called; the Work of endCoalescing() stands for all of them.
  // Belongs to the thread that started it.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  // --- shared_tensor.cc
  // Collective over the group: an uninitialised tensor of `size` elements in memory that all ranks
  // of the node see, where an all-reduce needs no copies; an ordinary one where there is none.
  // DDP makes its buckets this way where DDP_DISABLE_COMM_MEM=0.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;  // NOLINT(runtime/int)
  bool supportsTensorAlloc(c10::DeviceIndex device) override;

  // --- topk.cc
  // A compressed all-reduce, SUM or AVG, in place; what is not sent is kept for this tensor's memory.
  c10::intrusive_ptr<c10d::Work> topkAllreduce(const at::Tensor& tensor, const TopkRequest& request,
                                               bool average, Millis timeout);
  // What this rank has not sent of a tensor; copies. Empty where there is nothing.
  struct ResidualCopy {
    std::string domain;    // "flat" or "2d"
    at::Tensor residual;   // float32, one element for each that this rank selects from
    at::Tensor momentum;   // undefined where there is none
  };
  std::optional<ResidualCopy> residualOf(const at::Tensor& tensor);
  void setResidual(const at::Tensor& tensor, const ResidualCopy& copy);
  ResidualStats residualStats();
  // times `factor`, 0 included; of all buffers where the tensor is undefined.
  void scaleResiduals(double factor, const at::Tensor& tensor);

  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}  // starts at 0 on every rank
  uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }
  c10d::ErrorType getError() override;
  void enableCollectivesTiming() override {}  // every work knows its duration anyway
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void shutdown() override;
  void abort() override;

  // For torch_taco.explain, traffic, describe.
  const Communicator& communicator() const { return *communicator_; }

  // Shuts every living group of this process down, for the interpreter's exit: waits for pending
  // operations for at most `patience`.
  static void shutdownAll(Millis patience);

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Body = std::function<void(Collectives&)>;

  // What launch() needs to know of an operation besides its body.
  struct Launch {
    c10d::OpType type;
    const char* title;  // "taco:all_reduce"
    Millis timeout;     // kUnsetTimeout: the group's
    bool async;
    std::vector<at::Tensor> inputs;   // for the profiler
    std::vector<at::Tensor> outputs;  // for result() and the future
  };
  WorkPtr launch(Launch operation, Body body);
  c10::intrusive_ptr<TacoWork> newWork(const Launch& operation);
  static void runNested(Nesting& outer, const Body& body, TacoWork& work);
  void joinCoalescing(TacoWork& work);
  void countPending(TacoWork& work);
  WorkPtr receiveFrom(std::vector<at::Tensor>& tensors, int source, int tag);
  // Issues a send or receive; its ticket settles the work. `received` is stored first.
  void start(const c10::intrusive_ptr<TacoWork>& work, const char* title,
             std::shared_ptr<Staged> received, const std::function<TicketPtr()>& issue);

  ResidualKey residualKey(const at::Tensor& tensor);
  // That an ordinary all-reduce of the tensor may be lossy, if LIGHT_TOPK_* say so.
  std::optional<Compression> compressionOf(const at::Tensor& tensor, const ReduceSpec& spec);

  void requireRank(const char* operation, const char* argument, int64_t rank) const;
  bool isOwners() const;  // false in a forked child, which must leave the connections alone
  void requireUsable() const;

  const c10::intrusive_ptr<Options> options_;
  const int64_t ownerProcess_;  // its pid, for messages
  const uint64_t ownerGeneration_;
  std::shared_ptr<KeyValueStore> store_;
  std::shared_ptr<Communicator> communicator_;
  std::optional<StorageIdentities> identities_;  // of tensors with residuals
  std::atomic<uint64_t> sequence_{0};  // collectives called so far
  std::atomic<uint64_t> barriers_{0};  // monitored barriers called so far
  std::atomic<bool> closed_{false};    // by shutdown() or abort(), once

  // Works not settled yet, counted only where there is a completion hook. Shared with the works.
  struct Pending {
    std::mutex mutex;  // guards works
    std::condition_variable none;
    int64_t works = 0;
  };
  const std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();

  std::mutex coalescingMutex_;  // guards the two below
  std::thread::id coalescingThread_;
  std::optional<JoinedWork> coalescing_;
};

}  // namespace taco
