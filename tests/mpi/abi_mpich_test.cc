// Compiled with MPICH's mpi.h: is mpi_abi.h what it says?
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <type_traits>

#include "csrc/mpi/mpi_abi.h"
#include "csrc/mpi/mpi_api.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

using Abi = MpichAbi;

static_assert(std::is_same_v<MPI_Comm, int> && std::is_same_v<MPI_Request, int> &&
              std::is_same_v<MPI_Datatype, int> && std::is_same_v<MPI_Errhandler, int>);
static_assert(sizeof(MPI_Status) == sizeof(Abi::Status));
static_assert(offsetof(MPI_Status, MPI_SOURCE) == offsetof(Abi::Status, source));
static_assert(offsetof(MPI_Status, MPI_TAG) == offsetof(Abi::Status, tag));
static_assert(offsetof(MPI_Status, MPI_ERROR) == offsetof(Abi::Status, error));
static_assert(MPI_SUCCESS == 0);
static_assert(MPI_THREAD_SINGLE == static_cast<int>(MpiThreads::kSingle));
static_assert(MPI_THREAD_FUNNELED == static_cast<int>(MpiThreads::kFunneled));
static_assert(MPI_THREAD_SERIALIZED == static_cast<int>(MpiThreads::kSerialized));
static_assert(MPI_THREAD_MULTIPLE == static_cast<int>(MpiThreads::kMultiple));
static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= kLongestMpiText);
static_assert(MPI_MAX_ERROR_STRING <= kLongestMpiText);

TEST_CASE("MPICH's handles are the numbers that mpi_abi.h names") {
  CHECK(MPI_COMM_WORLD == Abi::kWorld);
  CHECK(MPI_COMM_SELF == Abi::kSelf);
  CHECK(MPI_BYTE == Abi::kByte);
  CHECK(MPI_ERRORS_RETURN == Abi::kErrorsReturn);
  CHECK(MPI_ANY_SOURCE == Abi::kAnySource);
}

}  // namespace
}  // namespace taco
