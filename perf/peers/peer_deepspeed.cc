// DeepSpeed's all-reduce through shared memory as a peer: its own shm.cpp, unchanged, with the few
// names of torch that it needs from perf/peers/deepspeed/. It has an all-reduce in place and
// nothing else. Its segments stay in /dev/shm until finish() removes them.

#include <string>

#include "perf/native/peer.h"
#include "shm.cpp"

namespace {

std::string session;
const char* lastErrorText = "";

std::string segmentName(int rank) {
  return std::string("/") + SHM_BUFFER_NAME + "_" + std::to_string(getuid()) + "_taco_" + session +
         "_" + std::to_string(rank);
}

int init(const TacoPeerJob* job) {
  // All ranks take the process id of the first: names that no other run has.
  long pids[1024];
  if (job->size > 1024) {
    lastErrorText = "more than 1024 ranks";
    return TACO_PEER_FAILED;
  }
  const long own = getpid();
  job->exchange(job->context, &own, pids, sizeof own);
  session = std::to_string(pids[0]);
  // Its ranks look for each other's segments while those are still being written: each makes its
  // own first, and nobody looks before all have. shm_initialize() then opens what is there.
  char address[] = "taco";
  std::string port = session;
  shm_initialize(job->size, job->rank, address, port.data());
  char done = 1;
  char all[1024];
  job->exchange(job->context, &done, all, sizeof done);
  return TACO_PEER_OK;
}

int allReduce(void* data, size_t count, int type) {
  const c10::ScalarType types[] = {c10::ScalarType::Float, c10::ScalarType::Half,
                                   c10::ScalarType::BFloat16};
  const size_t bytes = count * (type == TACO_PEER_FLOAT32 ? 4 : 2);
  if (bytes > 0x7fffffff) return TACO_PEER_UNSUPPORTED;
  // The half kernels are compiled for AVX-512, as its own vector_kernel_level() checks.
  if (type != TACO_PEER_FLOAT32 && !__builtin_cpu_supports("avx512bw"))
    return TACO_PEER_UNSUPPORTED;
  torch::Tensor tensor(data, types[type]);
  all_reduce_outer_loop(tensor, count, static_cast<int>(bytes));
  return TACO_PEER_OK;
}

void finish() { shm_unlink(segmentName(world_rank).c_str()); }

const TacoPeer kPeer = {
    init,
    [] { return "DeepSpeed's shm.cpp (inference_all_reduce)"; },
    [] { return lastErrorText; },
    allReduce,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    finish,
};

}  // namespace

extern "C" const TacoPeer* tacoPeer(void) { return &kPeer; }
