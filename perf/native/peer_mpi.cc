// Any MPI as a peer, without its headers: the library is opened at run time, and what a program
// knows of it by heart stands in csrc/mpi/mpi_abi.h. The argument is the path of libmpi.

#include <dlfcn.h>

#include <climits>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "csrc/base/format.h"
#include "csrc/mpi/mpi_abi.h"
#include "perf/native/peer.h"

namespace taco::perf {
namespace {

struct Mpi {
  virtual ~Mpi() = default;
  virtual void start() = 0;
  virtual std::string version() = 0;
  virtual int allReduce(void* data, size_t count, int type) = 0;
  virtual int allGather(const void* in, void* out, size_t count, int type) = 0;
  virtual int reduceScatter(const void* in, void* out, size_t count, int type) = 0;
  virtual int broadcast(void* data, size_t count, int type, int root) = 0;
  virtual int allToAll(const void* in, void* out, size_t count, int type) = 0;
  virtual void finish() = 0;
};

std::unique_ptr<Mpi> mpi;
std::string lastErrorText;
std::string description;

// Beyond csrc/mpi/mpi_abi.h: what only collectives of numbers need.
template <typename Abi>
struct More;

template <>
struct More<OpenMpiAbi> {
  static void* inPlace() { return reinterpret_cast<void*>(1); }
};
template <>
struct More<MpichAbi> {
  static void* inPlace() { return reinterpret_cast<void*>(-1); }
  static constexpr MpichAbi::Handle kFloat = 0x4c00040a;
  static constexpr MpichAbi::Handle kSum = 0x58000003;
};

template <typename Abi>
class Library : public Mpi {
 public:
  using Handle = typename Abi::Handle;

  explicit Library(void* opened) : opened_(opened) {
    if constexpr (std::is_same_v<Abi, OpenMpiAbi>) {
      world_ = symbol(Abi::kWorldSymbol);
      byte_ = symbol(Abi::kByteSymbol);
      float_ = symbol("ompi_mpi_float");
      sum_ = symbol("ompi_mpi_op_sum");
    } else {
      world_ = Abi::kWorld;
      byte_ = Abi::kByte;
      float_ = More<Abi>::kFloat;
      sum_ = More<Abi>::kSum;
    }
  }

  void start() override {
    int given = 0;
    check(function<int(int*, char***, int, int*)>("MPI_Init_thread")(nullptr, nullptr, 0, &given),
          "MPI_Init_thread");
    allReduce_ = function<Reduction>("MPI_Allreduce");
    reduceScatter_ = function<Reduction>("MPI_Reduce_scatter_block");
    allGather_ = function<Exchange>("MPI_Allgather");
    allToAll_ = function<Exchange>("MPI_Alltoall");
    broadcast_ = function<int(void*, int, Handle, int, Handle)>("MPI_Bcast");
  }

  std::string version() override {
    std::vector<char> text(kLongestMpiText + 1, '\0');
    int length = 0;
    check(function<int(char*, int*)>("MPI_Get_library_version")(text.data(), &length),
          "MPI_Get_library_version");
    const std::string whole = text.data();
    return whole.substr(0, whole.find_first_of("\r\n,"));
  }

  int allReduce(void* data, size_t count, int type) override {
    if (type != TACO_PEER_FLOAT32) return TACO_PEER_UNSUPPORTED;
    return answer(allReduce_(More<Abi>::inPlace(), data, number(count), float_, sum_, world_));
  }
  int reduceScatter(const void* in, void* out, size_t count, int type) override {
    if (type != TACO_PEER_FLOAT32) return TACO_PEER_UNSUPPORTED;
    return answer(reduceScatter_(in, out, number(count), float_, sum_, world_));
  }
  // What is only moved is bytes, whatever its type.
  int allGather(const void* in, void* out, size_t count, int type) override {
    const int bytes = number(count * bytesOf(type));
    return answer(allGather_(in, bytes, byte_, out, bytes, byte_, world_));
  }
  int allToAll(const void* in, void* out, size_t count, int type) override {
    const int bytes = number(count * bytesOf(type));
    return answer(allToAll_(in, bytes, byte_, out, bytes, byte_, world_));
  }
  int broadcast(void* data, size_t count, int type, int root) override {
    return answer(broadcast_(data, number(count * bytesOf(type)), byte_, root, world_));
  }

  void finish() override { function<int()>("MPI_Finalize")(); }

 private:
  using Reduction = int(const void*, void*, int, Handle, Handle, Handle);
  using Exchange = int(const void*, int, Handle, void*, int, Handle, Handle);

  static size_t bytesOf(int type) { return type == TACO_PEER_FLOAT32 ? 4 : 2; }

  void* symbol(const char* name) {
    void* found = ::dlsym(opened_, name);
    if (found == nullptr) throw str("this MPI library has no ", name);
    return found;
  }
  template <typename Signature>
  Signature* function(const char* name) {
    return reinterpret_cast<Signature*>(symbol(name));
  }
  static int number(size_t count) {
    if (count > INT_MAX) throw str("MPI counts no further than 2^31 - 1, not to ", count);
    return static_cast<int>(count);
  }
  static void check(int status, const char* what) {
    if (status != 0) throw str(what, " returned ", status);
  }
  static int answer(int status) {
    if (status == 0) return TACO_PEER_OK;
    lastErrorText = str("MPI returned ", status);
    return TACO_PEER_FAILED;
  }

  void* opened_;
  Handle world_{}, byte_{}, float_{}, sum_{};
  Reduction* allReduce_ = nullptr;
  Reduction* reduceScatter_ = nullptr;
  Exchange* allGather_ = nullptr;
  Exchange* allToAll_ = nullptr;
  int (*broadcast_)(void*, int, Handle, int, Handle) = nullptr;
};

// Errors are thrown as std::string inside this file and end at the C interface.
template <typename Body>
int guarded(Body body) {
  try {
    return body();
  } catch (const std::string& text) {
    lastErrorText = text;
    return TACO_PEER_FAILED;
  }
}

int init(const TacoPeerJob* job) {
  return guarded([&] {
    const std::string path = *job->argument == '\0' ? "libmpi.so.40" : job->argument;
    // RTLD_GLOBAL: the plug-ins of OpenMPI look for its symbols there.
    void* opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) throw std::string(::dlerror());
    if (::dlsym(opened, OpenMpiAbi::kWorldSymbol) != nullptr) {
      mpi = std::make_unique<Library<OpenMpiAbi>>(opened);
    } else {
      mpi = std::make_unique<Library<MpichAbi>>(opened);
    }
    mpi->start();
    description = str(mpi->version(), " (", path, ")");
    return static_cast<int>(TACO_PEER_OK);
  });
}

const TacoPeer kPeer = {
    .init = init,
    .describe = [] { return description.c_str(); },
    .lastError = [] { return lastErrorText.c_str(); },
    .allReduce =
        [](void* data, size_t count, int type) {
          return guarded([&] { return mpi->allReduce(data, count, type); });
        },
    .allGather =
        [](const void* in, void* out, size_t count, int type) {
          return guarded([&] { return mpi->allGather(in, out, count, type); });
        },
    .reduceScatter =
        [](const void* in, void* out, size_t count, int type) {
          return guarded([&] { return mpi->reduceScatter(in, out, count, type); });
        },
    .broadcast =
        [](void* data, size_t count, int type, int root) {
          return guarded([&] { return mpi->broadcast(data, count, type, root); });
        },
    .allToAll =
        [](const void* in, void* out, size_t count, int type) {
          return guarded([&] { return mpi->allToAll(in, out, count, type); });
        },
    .finish =
        [] {
          guarded([] {
            mpi->finish();
            return static_cast<int>(TACO_PEER_OK);
          });
        },
};

}  // namespace
}  // namespace taco::perf

extern "C" const TacoPeer* tacoPeer(void) { return &taco::perf::kPeer; }
