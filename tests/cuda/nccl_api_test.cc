#include "cuda/nccl_api.h"

#include <cstring>
#include <string>

#include "csrc/base/error.h"
#include "tests/csrc/catch.h"

namespace taco::cuda {
namespace {

int theVersion = 0;
int reportVersion(int* version) {
  *version = theVersion;
  return 0;
}
int refuseVersion(int*) { return 3; }
int anyFunction() { return 0; }

template <typename Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

// A libnccl of version `version` with every function but `missing`.
SymbolLookup library(int version, const std::string& missing = "") {
  theVersion = version;
  return [missing](const char* name) -> void* {
    if (name == missing) return nullptr;
    return std::strcmp(name, "ncclGetVersion") == 0 ? address(reportVersion) : address(anyFunction);
  };
}

std::string messageOf(const SymbolLookup& lookup) {
  try {
    loadNcclApi(lookup);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kSystem);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a complete NCCL of a supported version fills the whole table") {
  for (const int version : {21800, 22809, 29999}) {
    const NcclApi api = loadNcclApi(library(version));
    CHECK(api.version == version);
    CHECK(address(api.getUniqueId) == address(anyFunction));
    CHECK(address(api.allReduce) == address(anyFunction));
    CHECK(address(api.receive) == address(anyFunction));
    CHECK(address(api.errorText) == address(anyFunction));
  }
}

TEST_CASE("an NCCL that is too old or of another major version is refused by its number") {
  CHECK(messageOf(library(21705)) == "the loaded NCCL is 2.17.5; TACO works with 2.18 and later versions of 2");
  CHECK(messageOf(library(30001)) == "the loaded NCCL is 3.0.1; TACO works with 2.18 and later versions of 2");
}

TEST_CASE("a function that the loaded NCCL lacks is named") {
  for (const char* name : {"ncclGetUniqueId", "ncclCommInitRank", "ncclCommAbort", "ncclGroupEnd",
                           "ncclReduceScatter", "ncclSend", "ncclRecv", "ncclGetErrorString"}) {
    CHECK(messageOf(library(22809, name)) == std::string("the loaded NCCL has no function ") + name +
                                                 "; install the NCCL that torch was built with");
  }
}

TEST_CASE("an NCCL that cannot tell its version is an error") {
  CHECK(messageOf([](const char*) { return address(refuseVersion); }) ==
        "ncclGetVersion failed with result 3");
}

TEST_CASE("a process without NCCL is told so") {
  // Nothing in this test loads it, so the real lookup finds none.
  CHECK(messageOf(findLoadedNcclSymbol) ==
        "no NCCL is loaded in this process; GPU collectives need a torch with CUDA");
}

}  // namespace taco::cuda
