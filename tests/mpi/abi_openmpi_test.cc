// Compiled with OpenMPI's mpi.h: is mpi_abi.h what it says?
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <map>
#include <string>
#include <type_traits>

#include "csrc/mpi/mpi_abi.h"
#include "csrc/mpi/mpi_api.h"
#include "tests/csrc/catch.h"

// The library's variables, so that this test needs its header only.
struct ompi_predefined_communicator_t {};
struct ompi_predefined_datatype_t {};
struct ompi_predefined_errhandler_t {};
ompi_predefined_communicator_t ompi_mpi_comm_world;
ompi_predefined_communicator_t ompi_mpi_comm_self;
ompi_predefined_datatype_t ompi_mpi_byte;
ompi_predefined_errhandler_t ompi_mpi_errors_return;

namespace taco {
namespace {

using Abi = OpenMpiAbi;

static_assert(std::is_pointer_v<MPI_Comm> && std::is_pointer_v<MPI_Request> &&
              std::is_pointer_v<MPI_Datatype> && std::is_pointer_v<MPI_Errhandler>);
static_assert(sizeof(MPI_Status) == sizeof(Abi::Status));
static_assert(offsetof(MPI_Status, MPI_SOURCE) == offsetof(Abi::Status, source));
static_assert(offsetof(MPI_Status, MPI_TAG) == offsetof(Abi::Status, tag));
static_assert(offsetof(MPI_Status, MPI_ERROR) == offsetof(Abi::Status, error));
static_assert(MPI_ANY_SOURCE == Abi::kAnySource);
static_assert(MPI_SUCCESS == 0);
static_assert(MPI_THREAD_SINGLE == static_cast<int>(MpiThreads::kSingle));
static_assert(MPI_THREAD_FUNNELED == static_cast<int>(MpiThreads::kFunneled));
static_assert(MPI_THREAD_SERIALIZED == static_cast<int>(MpiThreads::kSerialized));
static_assert(MPI_THREAD_MULTIPLE == static_cast<int>(MpiThreads::kMultiple));
static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= kLongestMpiText);
static_assert(MPI_MAX_ERROR_STRING <= kLongestMpiText);

TEST_CASE("OpenMPI's handles are the addresses of the variables that mpi_abi.h names") {
  const std::map<std::string, const void*> variables = {
      {"ompi_mpi_comm_world", &ompi_mpi_comm_world},
      {"ompi_mpi_comm_self", &ompi_mpi_comm_self},
      {"ompi_mpi_byte", &ompi_mpi_byte},
      {"ompi_mpi_errors_return", &ompi_mpi_errors_return}};
  CHECK(variables.at(Abi::kWorldSymbol) == static_cast<const void*>(MPI_COMM_WORLD));
  CHECK(variables.at(Abi::kSelfSymbol) == static_cast<const void*>(MPI_COMM_SELF));
  CHECK(variables.at(Abi::kByteSymbol) == static_cast<const void*>(MPI_BYTE));
  CHECK(variables.at(Abi::kErrorsReturnSymbol) == static_cast<const void*>(MPI_ERRORS_RETURN));
}

}  // namespace
}  // namespace taco
