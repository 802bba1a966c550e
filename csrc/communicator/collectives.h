#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "csrc/allreduce/policy.h"
#include "csrc/data/buffer.h"
#include "csrc/data/reduce_op.h"
#include "csrc/topk/residuals.h"

namespace taco {

// A reduction as users state it.
struct ReduceSpec {
  ReduceOp op = ReduceOp::kSum;
  double factorReal = 1.0;  // PREMUL_SUM only: each input is multiplied by it first
  double factorImag = 0.0;
};

// How one all-reduce is to be compressed, whatever the settings say.
struct TopkRequest {
  double ratio = 0.01;      // above 0; from 1 on: a dense step, which sends the residual too
  bool halfValues = false;  // float16 on the wire
  double momentum = 0;      // DGC's correction; 0: none
};

// That an all-reduce may be lossy, and in which memory: what it does not send is kept for the next
// one of this buffer. Without a request, LIGHT_TOPK_* decide.
struct Compression {
  BufferIdentity buffer;
  std::optional<TopkRequest> topk;
};

// Bytes this rank has sent (payload and headers of collectives and point to point).
struct Traffic {
  uint64_t sharedMemoryBytes = 0;
  uint64_t networkBytes = 0;
};

// The operations, blocking, for the thread that runs a lane's body. All buffers are dense and on
// the host. Every rank calls the same operation with matching sizes; ranks that do not are told on
// both sides (Error kMismatch).  P = number of ranks of the group.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void broadcast(Buffer buffer, int root) = 0;                    // count equal on all
  virtual void allReduce(Buffer buffer, const ReduceSpec& spec) = 0;      // in place, count equal
  virtual void allReduce(Buffer buffer, const ReduceSpec& spec, const Compression& compression) = 0;
  // `out` is written on the root only, and may be `in` there; other ranks' memory stays as it is.
  virtual void reduce(ConstBuffer in, Buffer out, const ReduceSpec& spec, int root) = 0;
  // outs: P; their sizes may differ, every rank knows all of them.
  virtual void allGather(ConstBuffer in, std::span<const Buffer> outs) = 0;
  virtual void gather(ConstBuffer in, std::span<const Buffer> outs, int root) = 0;   // outs: P on the root, else empty
  virtual void scatter(std::span<const ConstBuffer> ins, Buffer out, int root) = 0;  // ins: P on the root, else empty
  virtual void reduceScatter(std::span<const ConstBuffer> ins, Buffer out, const ReduceSpec& spec) = 0;
  virtual void allToAll(std::span<const ConstBuffer> sends, std::span<const Buffer> receives) = 0;
  virtual void barrier() = 0;
  // Memory in which an all-reduce of this group needs no copies, if all ranks' buffers lie in such
  // memory; `bytes` equal on all. Null on all ranks where there is none: `whyNot` says why. What a
  // failed all-reduce leaves in it is undefined, and may change until the ranks have left.
  virtual std::shared_ptr<void> sharedMemory(size_t bytes, std::string* whyNot) = 0;
};

}  // namespace taco
