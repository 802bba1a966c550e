// The seam to libnccl: the NCCL that torch loaded, found by name at run time. NCCL must be one per
// process (two would not see each other's communicators), so nothing is linked and no second copy is
// opened. Types are plain, so that no nccl.h is needed: toolkits generally lack it.
#pragma once

#include <cstddef>
#include <functional>

namespace taco::cuda {

struct NcclUniqueId {
  char bytes[128];
};
using NcclComm = struct ncclComm*;

// Results are ncclResult_t (0 is success), dtype and op are ncclDataType_t and ncclRedOp_t.
struct NcclApi {
  int version = 0;  // 22809 is 2.28.9

  int (*getUniqueId)(NcclUniqueId* id) = nullptr;
  int (*commInitRank)(NcclComm* comm, int size, NcclUniqueId id, int rank) = nullptr;
  int (*commDestroy)(NcclComm comm) = nullptr;
  int (*commAbort)(NcclComm comm) = nullptr;
  int (*commGetAsyncError)(NcclComm comm, int* error) = nullptr;
  int (*groupStart)() = nullptr;
  int (*groupEnd)() = nullptr;
  int (*allReduce)(const void* src, void* dst, size_t count, int dtype, int op, NcclComm comm,
                   void* stream) = nullptr;
  int (*reduceScatter)(const void* src, void* dst, size_t countPerRank, int dtype, int op,
                       NcclComm comm, void* stream) = nullptr;
  int (*allGather)(const void* src, void* dst, size_t countPerRank, int dtype, NcclComm comm,
                   void* stream) = nullptr;
  int (*broadcast)(const void* src, void* dst, size_t count, int dtype, int root, NcclComm comm,
                   void* stream) = nullptr;
  int (*send)(const void* src, size_t count, int dtype, int peer, NcclComm comm,
              void* stream) = nullptr;
  int (*receive)(void* dst, size_t count, int dtype, int peer, NcclComm comm,
                 void* stream) = nullptr;
  const char* (*errorText)(int result) = nullptr;
};

// Name of a function -> its address, nullptr where there is none.
using SymbolLookup = std::function<void*(const char* name)>;

// In the libnccl that this process has loaded already, wherever its symbols are visible.
void* findLoadedNcclSymbol(const char* name);

// Fills the table. Throws taco::Error when no NCCL is loaded, when it is older than 2.18 or of another
// major version than 2, or lacks one of the functions; the message says which.
NcclApi loadNcclApi(const SymbolLookup& lookup = findLoadedNcclSymbol);

}  // namespace taco::cuda
