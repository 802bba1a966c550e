// Intel's oneCCL as a peer: every operation is issued and waited for at once, as a synchronous call
// of torch's ccl backend does. Its transport is MPI, which is started here if nobody has done so.

#include <algorithm>
#include <memory>
#include <string>

#include "oneapi/ccl.hpp"
#include "perf/native/peer.h"
#include "perf/peers/guarded.h"

// Intel MPI's, whose headers the wheels lack; these three need no type of MPI.
extern "C" {
int MPI_Initialized(int* flag);
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int MPI_Finalize(void);
}

namespace {

std::unique_ptr<ccl::communicator> communicator;
std::string description;
bool startedMpi = false;
constexpr int kMpiThreadMultiple = 3;

ccl::datatype typeOf(int type) {
  switch (type) {
    case TACO_PEER_FLOAT16:
      return ccl::datatype::float16;
    case TACO_PEER_BFLOAT16:
      return ccl::datatype::bfloat16;
    default:
      return ccl::datatype::float32;
  }
}

int init(const TacoPeerJob* job) {
  return guarded([&] {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (!initialized) {
      int provided = 0;
      MPI_Init_thread(nullptr, nullptr, kMpiThreadMultiple, &provided);
      startedMpi = true;
    }
    ccl::init();
    ccl::kvs::address_type address{};
    ccl::shared_ptr_class<ccl::kvs> kvs;
    if (job->rank == 0) {
      kvs = ccl::create_main_kvs();
      address = kvs->get_address();
    }
    std::string all(address.size() * static_cast<size_t>(job->size), '\0');
    job->exchange(job->context, address.data(), all.data(), address.size());
    if (job->rank != 0) {
      std::copy(all.begin(), all.begin() + static_cast<long>(address.size()), address.begin());
      kvs = ccl::create_kvs(address);
    }
    communicator =
        std::make_unique<ccl::communicator>(ccl::create_communicator(job->size, job->rank, kvs));
    const auto version = ccl::get_library_version();
    description = "oneCCL " + std::to_string(version.major) + "." + std::to_string(version.minor) +
                  "." + std::to_string(version.update);
  });
}

int allReduce(void* data, size_t count, int type) {
  return guarded([&] {
    ccl::allreduce(data, data, count, typeOf(type), ccl::reduction::sum, *communicator).wait();
  });
}

int allGather(const void* in, void* out, size_t countEach, int type) {
  return guarded([&] { ccl::allgather(in, out, countEach, typeOf(type), *communicator).wait(); });
}

int reduceScatter(const void* in, void* out, size_t countEach, int type) {
  return guarded([&] {
    ccl::reduce_scatter(in, out, countEach, typeOf(type), ccl::reduction::sum, *communicator)
        .wait();
  });
}

int broadcast(void* data, size_t count, int type, int root) {
  return guarded([&] { ccl::broadcast(data, count, typeOf(type), root, *communicator).wait(); });
}

int allToAll(const void* in, void* out, size_t countEach, int type) {
  return guarded([&] { ccl::alltoall(in, out, countEach, typeOf(type), *communicator).wait(); });
}

void finish() {
  guarded([] {
    communicator.reset();
    if (startedMpi) MPI_Finalize();
  });
}

const TacoPeer kPeer = {
    init,
    [] { return description.c_str(); },
    [] { return lastErrorText.c_str(); },
    allReduce,
    allGather,
    reduceScatter,
    broadcast,
    allToAll,
    finish,
};

}  // namespace

extern "C" const TacoPeer* tacoPeer(void) { return &kPeer; }
