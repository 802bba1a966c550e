#include "csrc/mpi/mpi_api.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/mpi/mpi_abi.h"

namespace taco {
namespace {

// All of our messages have this tag: the packets themselves say what they are.
constexpr int kTag = 0;

template <typename Abi>
class MpiLibrary : public MpiApi {
 public:
  using Handle = typename Abi::Handle;
  using Status = typename Abi::Status;

  explicit MpiLibrary(const MpiLookup& lookup) {
    resolve(lookup, "MPI_Get_library_version", getLibraryVersion_);
    resolve(lookup, "MPI_Error_string", errorString_);
    resolve(lookup, "MPI_Initialized", initialized_);
    resolve(lookup, "MPI_Finalized", finalized_);
    resolve(lookup, "MPI_Init_thread", initThread_);
    resolve(lookup, "MPI_Query_thread", queryThread_);
    resolve(lookup, "MPI_Finalize", finalize_);
    resolve(lookup, "MPI_Comm_create_keyval", createKeyval_);
    resolve(lookup, "MPI_Comm_set_attr", setAttribute_);
    resolve(lookup, "MPI_Comm_rank", commRank_);
    resolve(lookup, "MPI_Comm_size", commSize_);
    resolve(lookup, "MPI_Comm_idup", commIdup_);
    resolve(lookup, "MPI_Comm_set_errhandler", commSetErrorHandler_);
    resolve(lookup, "MPI_Isend", isend_);
    resolve(lookup, "MPI_Irecv", irecv_);
    resolve(lookup, "MPI_Iallgather", iallgather_);
    resolve(lookup, "MPI_Ibcast", ibcast_);
    resolve(lookup, "MPI_Test", test_);
    resolve(lookup, "MPI_Get_count", getCount_);
    resolve(lookup, "MPI_Cancel", cancel_);
    resolve(lookup, "MPI_Request_free", requestFree_);
    if constexpr (std::is_same_v<Abi, OpenMpiAbi>) {
      world_ = variable(lookup, Abi::kWorldSymbol);
      self_ = variable(lookup, Abi::kSelfSymbol);
      byte_ = variable(lookup, Abi::kByteSymbol);
      errorsReturn_ = variable(lookup, Abi::kErrorsReturnSymbol);
    } else {
      world_ = Abi::kWorld;
      self_ = Abi::kSelf;
      byte_ = Abi::kByte;
      errorsReturn_ = Abi::kErrorsReturn;
    }
  }

  std::string version() const override {
    std::vector<char> text(kLongestMpiText + 1, '\0');
    int length = 0;
    if (getLibraryVersion_(text.data(), &length) != 0) return Abi::kName;
    const std::string whole = text.data();
    return whole.substr(0, whole.find_first_of("\r\n"));
  }

  bool isInitialized() override { return flag(initialized_, "MPI_Initialized"); }
  bool isFinalized() override { return flag(finalized_, "MPI_Finalized"); }

  MpiThreads init() override {
    int provided = 0;
    check(initThread_(nullptr, nullptr, static_cast<int>(MpiThreads::kMultiple), &provided),
          "MPI_Init_thread");
    return static_cast<MpiThreads>(provided);
  }

  MpiThreads threads() override {
    int provided = 0;
    check(queryThread_(&provided), "MPI_Query_thread");
    return static_cast<MpiThreads>(provided);
  }

  void finalize() override { check(finalize_(), "MPI_Finalize"); }

  // MPI_Finalize first deletes the attributes of MPI_COMM_SELF: MPI's own way to be told of it.
  void beforeFinalize(std::function<void()> body) override {
    int key = 0;
    check(createKeyval_(&doNotCopy, &runAndDelete, &key, nullptr), "MPI_Comm_create_keyval");
    check(setAttribute_(self_, key, new std::function<void()>(std::move(body))),
          "MPI_Comm_set_attr");
  }

  int rank() override { return number(commRank_, "MPI_Comm_rank"); }
  int size() override { return number(commSize_, "MPI_Comm_size"); }

  MpiRequest duplicateWorld() override {
    Handle request{};
    check(commIdup_(world_, &own_, &request), "MPI_Comm_idup");
    return pending(request);
  }

  MpiRequest send(const void* data, size_t bytes, int destination) override {
    Handle request{};
    returnErrors();
    check(isend_(data, countOf(bytes), byte_, destination, kTag, own_, &request), "MPI_Isend");
    return pending(request);
  }

  MpiRequest receive(void* data, size_t bytes) override {
    Handle request{};
    returnErrors();
    check(irecv_(data, countOf(bytes), byte_, Abi::kAnySource, kTag, own_, &request), "MPI_Irecv");
    return pending(request);
  }

  MpiRequest allGather(const void* own, void* all, size_t bytesEach) override {
    Handle request{};
    returnErrors();
    const int count = countOf(bytesEach);
    check(iallgather_(own, count, byte_, all, count, byte_, own_, &request), "MPI_Iallgather");
    return pending(request);
  }

  MpiRequest broadcast(void* data, size_t bytes, int root) override {
    Handle request{};
    returnErrors();
    check(ibcast_(data, countOf(bytes), byte_, root, own_, &request), "MPI_Ibcast");
    return pending(request);
  }

  MpiArrival test(MpiRequest& request) override {
    if (!request.pending) return {true, -1, 0};
    Handle handle = handleOf(request);
    Status status{};
    int done = 0;
    const int result = test_(&handle, &done, &status);
    request.bits = bitsOf(handle);
    if (result != 0) {
      request.pending = false;
      check(result, "an operation of MPI");
    }
    if (done == 0) return {};
    request.pending = false;
    int count = 0;
    check(getCount_(&status, byte_, &count), "MPI_Get_count");
    return {true, status.source, count < 0 ? 0 : static_cast<size_t>(count)};
  }

  void cancelReceive(MpiRequest& request) override {
    if (!request.pending) return;
    Handle handle = handleOf(request);
    request.pending = false;
    check(cancel_(&handle), "MPI_Cancel");
    check(requestFree_(&handle), "MPI_Request_free");
  }

 private:
  template <typename Function>
  static void resolve(const MpiLookup& lookup, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(lookup(name));
    if (function == nullptr) {
      throw Error(ErrorCode::kSystem, str("the MPI library (", Abi::kName, ") has no function ",
                                          name, ": TACO needs MPI 3 or later"));
    }
  }

  static void* variable(const MpiLookup& lookup, const char* name) {
    void* const found = lookup(name);
    if (found == nullptr) {
      throw Error(ErrorCode::kSystem,
                  str("the MPI library (", Abi::kName, ") has no variable ", name));
    }
    return found;
  }

  static int doNotCopy(Handle, int, void*, void*, void*, int* copied) {
    *copied = 0;
    return 0;
  }
  static int runAndDelete(Handle, int, void* body, void*) {
    auto* const function = static_cast<std::function<void()>*>(body);
    (*function)();
    delete function;
    return 0;
  }

  static uint64_t bitsOf(Handle handle) {
    uint64_t bits = 0;
    std::memcpy(&bits, &handle, sizeof handle);
    return bits;
  }
  static Handle handleOf(const MpiRequest& request) {
    Handle handle{};
    std::memcpy(&handle, &request.bits, sizeof handle);
    return handle;
  }
  static MpiRequest pending(Handle handle) { return {bitsOf(handle), true}; }

  static int countOf(size_t bytes) {
    if (bytes > static_cast<size_t>(std::numeric_limits<int>::max())) {
      throw Error(ErrorCode::kInvalidArgument,
                  str("a message of ", bytes, " bytes is too long for MPI"));
    }
    return static_cast<int>(bytes);
  }

  void check(int result, const char* what) const {
    if (result == 0) return;
    std::vector<char> text(kLongestMpiText + 1, '\0');
    int length = 0;
    errorString_(result, text.data(), &length);
    throw Error(ErrorCode::kSystem, str(what, " failed: ", text.data()));
  }

  bool flag(int (*function)(int*), const char* what) {
    int value = 0;
    check(function(&value), what);
    return value != 0;
  }

  int number(int (*function)(Handle, int*), const char* what) {
    int value = 0;
    check(function(world_, &value), what);
    return value;
  }

  // By default MPI ends the process at the first error. Ours returns it; the program's
  // MPI_COMM_WORLD stays as it is.
  void returnErrors() {
    if (returnsErrors_) return;
    check(commSetErrorHandler_(own_, errorsReturn_), "MPI_Comm_set_errhandler");
    returnsErrors_ = true;
  }

  int (*getLibraryVersion_)(char*, int*) = nullptr;
  int (*errorString_)(int, char*, int*) = nullptr;
  int (*initialized_)(int*) = nullptr;
  int (*finalized_)(int*) = nullptr;
  int (*initThread_)(int*, char***, int, int*) = nullptr;
  int (*queryThread_)(int*) = nullptr;
  int (*finalize_)() = nullptr;
  int (*createKeyval_)(int (*)(Handle, int, void*, void*, void*, int*),
                       int (*)(Handle, int, void*, void*), int*, void*) = nullptr;
  int (*setAttribute_)(Handle, int, void*) = nullptr;
  int (*commRank_)(Handle, int*) = nullptr;
  int (*commSize_)(Handle, int*) = nullptr;
  int (*commIdup_)(Handle, Handle*, Handle*) = nullptr;
  int (*commSetErrorHandler_)(Handle, Handle) = nullptr;
  int (*isend_)(const void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*irecv_)(void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*iallgather_)(const void*, int, Handle, void*, int, Handle, Handle, Handle*) = nullptr;
  int (*ibcast_)(void*, int, Handle, int, Handle, Handle*) = nullptr;
  int (*test_)(Handle*, int*, Status*) = nullptr;
  int (*getCount_)(const Status*, Handle, int*) = nullptr;
  int (*cancel_)(Handle*) = nullptr;
  int (*requestFree_)(Handle*) = nullptr;

  Handle world_{};
  Handle self_{};
  Handle byte_{};
  Handle errorsReturn_{};
  Handle own_{};  // the duplicate
  bool returnsErrors_ = false;
};

}  // namespace

std::unique_ptr<MpiApi> makeMpiApi(const MpiLookup& lookup) {
  if (lookup(OpenMpiAbi::kWorldSymbol) != nullptr) {
    return std::make_unique<MpiLibrary<OpenMpiAbi>>(lookup);
  }
  auto* const getVersion =
      reinterpret_cast<int (*)(char*, int*)>(lookup("MPI_Get_library_version"));
  if (getVersion == nullptr) {
    throw Error(ErrorCode::kSystem,
                "the library has no function MPI_Get_library_version: it is no MPI of version 3 or "
                "later");
  }
  std::vector<char> text(kLongestMpiText + 1, '\0');
  int length = 0;
  getVersion(text.data(), &length);
  const std::string version = text.data();
  for (const char* family : {"MPICH", "Intel", "MVAPICH"}) {
    if (version.find(family) != std::string::npos) {
      return std::make_unique<MpiLibrary<MpichAbi>>(lookup);
    }
  }
  throw Error(ErrorCode::kSystem,
              str("the MPI library says that it is '", version.substr(0, version.find('\n')),
                  "'; TACO knows the binary interfaces of OpenMPI and of MPICH (with Intel MPI and "
                  "MVAPICH)"));
}

}  // namespace taco
