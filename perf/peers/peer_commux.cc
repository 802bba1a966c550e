// commux as a peer: a backend of torch.distributed over UCX, here called from C++ instead of
// Python. It has all-reduce, reduce and broadcast.

#include <ATen/ops/from_blob.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "commux/process_group_ucx.hpp"
#include "perf/native/peer.h"
#include "perf/peers/guarded.h"

namespace {

c10::intrusive_ptr<commux::ProcessGroupUCX> group;

int init(const TacoPeerJob* job) {
  return guarded([&] {
    // The ranks meet through a file whose name no other run has.
    std::vector<long> pids(static_cast<size_t>(job->size));
    const long own = getpid();
    job->exchange(job->context, &own, pids.data(), sizeof own);
    const std::string path = "/dev/shm/taco-commux-" + std::to_string(pids[0]);
    auto store = c10::make_intrusive<c10d::FileStore>(path, job->size);
    group = c10::make_intrusive<commux::ProcessGroupUCX>(store, job->rank, job->size);
    job->exchange(job->context, &own, pids.data(), sizeof own);  // all have met
    std::remove(path.c_str());
  });
}

std::vector<at::Tensor> tensorOf(void* data, size_t count, int type) {
  const at::ScalarType types[] = {at::kFloat, at::kHalf, at::kBFloat16};
  return {at::from_blob(data, {static_cast<int64_t>(count)}, types[type])};
}

int allReduce(void* data, size_t count, int type) {
  return guarded([&] {
    auto tensors = tensorOf(data, count, type);
    group->allreduce(tensors)->wait();
  });
}

int broadcast(void* data, size_t count, int type, int root) {
  return guarded([&] {
    auto tensors = tensorOf(data, count, type);
    c10d::BroadcastOptions options;
    options.rootRank = root;
    group->broadcast(tensors, options)->wait();
  });
}

const TacoPeer kPeer = {
    init,
    [] { return "commux (UCX), called from C++"; },
    [] { return lastErrorText.c_str(); },
    allReduce,
    nullptr,
    nullptr,
    broadcast,
    nullptr,
    [] { group.reset(); },
};

}  // namespace

extern "C" const TacoPeer* tacoPeer(void) { return &kPeer; }
