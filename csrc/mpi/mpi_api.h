#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace taco {

// A pending operation of MPI. Null once it is done.
struct MpiRequest {
  uint64_t bits = 0;
  bool pending = false;
};

struct MpiArrival {
  bool done = false;
  int source = -1;   // of a receive: its rank in MPI_COMM_WORLD
  size_t bytes = 0;  // of a receive
};

enum class MpiThreads { kSingle = 0, kFunneled = 1, kSerialized = 2, kMultiple = 3 };

// The seam to MPI: the few calls that are used, none of which waits for another process except
// init() and finalize(). Calls of one process must not overlap: the user holds a lock. Whatever MPI
// refuses is thrown as Error(kSystem) with MPI's own words.
class MpiApi {
 public:
  virtual ~MpiApi() = default;

  virtual std::string version() const = 0;  // "Open MPI v4.1.4, package: ..."

  virtual bool isInitialized() = 0;
  virtual bool isFinalized() = 0;
  virtual MpiThreads init() = 0;  // asks for kMultiple; what it gave
  virtual MpiThreads threads() = 0;
  virtual void finalize() = 0;
  // `body` runs at the beginning of MPI_Finalize, whoever calls it; MPI still works then.
  virtual void beforeFinalize(std::function<void()> body) = 0;

  virtual int rank() = 0;  // in MPI_COMM_WORLD
  virtual int size() = 0;

  // Begins to make a communicator of our own from MPI_COMM_WORLD, so that no message of the
  // program's meets one of ours. All calls below use it, once this request is done.
  virtual MpiRequest duplicateWorld() = 0;

  virtual MpiRequest send(const void* data, size_t bytes, int destination) = 0;
  virtual MpiRequest receive(void* data, size_t bytes) = 0;  // from any source
  virtual MpiRequest allGather(const void* own, void* all, size_t bytesEach) = 0;
  virtual MpiRequest broadcast(void* data, size_t bytes, int root) = 0;

  virtual MpiArrival test(MpiRequest& request) = 0;  // also moves everything else along
  virtual void cancelReceive(MpiRequest& request) = 0;
};

// Finds a function or variable of an opened MPI library; nullptr if it has none of that name.
using MpiLookup = std::function<void*(const char* name)>;

// The calls of the library behind `lookup`. MPI has two binary interfaces in use, whose handles and
// constants differ: OpenMPI's, and MPICH's, which Intel MPI and MVAPICH share. Both are written out
// in mpi_api.cc, so that building needs no MPI and one binary works with either; a test compares
// them with the headers of each. Throws Error(kSystem) for a library that is neither.
std::unique_ptr<MpiApi> makeMpiApi(const MpiLookup& lookup);

}  // namespace taco
