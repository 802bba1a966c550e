#pragma once

#include <cstddef>

namespace taco {

// What a program compiled with the headers of OpenMPI (4.x, 5.x: libmpi.so.40) knows by heart.
struct OpenMpiAbi {
  static constexpr const char* kName = "OpenMPI";
  using Handle = void*;  // a communicator, datatype, request: the address of an object
  struct Status {
    int source;
    int tag;
    int error;
    int cancelled;
    size_t count;
  };
  static constexpr int kAnySource = -1;
  // The handles of predefined objects are the addresses of these variables of the library.
  static constexpr const char* kWorldSymbol = "ompi_mpi_comm_world";
  static constexpr const char* kSelfSymbol = "ompi_mpi_comm_self";
  static constexpr const char* kByteSymbol = "ompi_mpi_byte";
  static constexpr const char* kErrorsReturnSymbol = "ompi_mpi_errors_return";
};

// The same of MPICH and of those that follow the MPICH ABI initiative (libmpi.so.12).
struct MpichAbi {
  static constexpr const char* kName = "MPICH";
  using Handle = int;
  struct Status {
    int countLow;
    int countHighAndCancelled;
    int source;
    int tag;
    int error;
  };
  static constexpr int kAnySource = -2;
  static constexpr Handle kWorld = 0x44000000;
  static constexpr Handle kSelf = 0x44000001;
  static constexpr Handle kByte = 0x4c00010d;
  static constexpr Handle kErrorsReturn = 0x54000001;
};

// The longest text that MPI_Error_string and MPI_Get_library_version write, in either.
inline constexpr size_t kLongestMpiText = 8192;

}  // namespace taco
