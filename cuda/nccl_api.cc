#include "cuda/nccl_api.h"

#include <dlfcn.h>

#include <string>

#include "csrc/base/error.h"

namespace taco::cuda {
namespace {

// ncclCommAbort works on a communicator that is stuck in a collective from 2.18 on.
constexpr int kOldestVersion = 21800;
constexpr int kFirstOtherMajor = 30000;

std::string versionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

template <typename Function>
void resolve(const SymbolLookup& lookup, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(lookup(name));
  if (*function == nullptr) {
    throw Error(ErrorCode::kSystem, std::string("the loaded NCCL has no function ") + name +
                                        "; install the NCCL that torch was built with");
  }
}

}  // namespace

void* findLoadedNcclSymbol(const char* name) {
  if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
  // torch may have opened it for itself alone. RTLD_NOLOAD: never a second copy. The handle is not
  // closed, because the addresses are kept.
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr ? dlsym(library, name) : nullptr;
}

NcclApi loadNcclApi(const SymbolLookup& lookup) {
  auto* const getVersion = reinterpret_cast<int (*)(int*)>(lookup("ncclGetVersion"));
  if (getVersion == nullptr) {
    throw Error(ErrorCode::kSystem,
                "no NCCL is loaded in this process; GPU collectives need a torch with CUDA");
  }
  NcclApi api;
  if (const int result = getVersion(&api.version); result != 0) {
    throw Error(ErrorCode::kSystem, "ncclGetVersion failed with result " + std::to_string(result));
  }
  if (api.version < kOldestVersion || api.version >= kFirstOtherMajor) {
    throw Error(ErrorCode::kSystem, "the loaded NCCL is " + versionText(api.version) +
                                        "; TACO works with 2.18 and later versions of 2");
  }
  resolve(lookup, "ncclGetUniqueId", &api.getUniqueId);
  resolve(lookup, "ncclCommInitRank", &api.commInitRank);
  resolve(lookup, "ncclCommDestroy", &api.commDestroy);
  resolve(lookup, "ncclCommAbort", &api.commAbort);
  resolve(lookup, "ncclCommGetAsyncError", &api.commGetAsyncError);
  resolve(lookup, "ncclGroupStart", &api.groupStart);
  resolve(lookup, "ncclGroupEnd", &api.groupEnd);
  resolve(lookup, "ncclAllReduce", &api.allReduce);
  resolve(lookup, "ncclReduceScatter", &api.reduceScatter);
  resolve(lookup, "ncclAllGather", &api.allGather);
  resolve(lookup, "ncclBroadcast", &api.broadcast);
  resolve(lookup, "ncclSend", &api.send);
  resolve(lookup, "ncclRecv", &api.receive);
  resolve(lookup, "ncclGetErrorString", &api.errorText);
  return api;
}

}  // namespace taco::cuda
