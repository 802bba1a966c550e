// libtaco_cuda.so as its users meet it: through dlopen and the one exported symbol. Runs on any
// machine; where there is no GPU the library must load all the same and say what is missing.
#include "cuda/entry.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/csrc/catch.h"

namespace taco::cuda {
namespace {

// The one built beside this test, or that of tests/device.sh on another machine.
void* openLibrary() {
  const char* const path = std::getenv("TACO_CUDA_LIBRARY");
  void* const library = dlopen(path != nullptr ? path : TACO_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  INFO("dlopen: " << (library == nullptr ? dlerror() : "ok"));
  REQUIRE(library != nullptr);
  return library;
}

const Entry& openEntry() {
  auto* const getEntry = reinterpret_cast<GetEntry>(dlsym(openLibrary(), kEntryName));
  REQUIRE(getEntry != nullptr);
  const Entry* const entry = getEntry(kEntryVersion);
  REQUIRE(entry != nullptr);
  return *entry;
}

bool hasGpu(const Entry& entry) {
  int count = 0;
  Reason why;
  return entry.countDevices(&count, &why) && count > 0;
}

// Device memory for the length of a test.
class DeviceFloats {
 public:
  DeviceFloats(const DeviceApi& api, const std::vector<float>& values)
      : api_(api), bytes_(values.size() * sizeof(float)) {
    REQUIRE(api_.allocate(&pointer_, bytes_) == 0);
    REQUIRE(api_.copyAsync(pointer_, values.data(), bytes_, nullptr) == 0);
    REQUIRE(api_.synchronize(nullptr) == 0);
  }
  ~DeviceFloats() { api_.release(pointer_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  float* at(size_t offset) const { return static_cast<float*>(pointer_) + offset; }
  std::vector<float> read() const {
    std::vector<float> values(bytes_ / sizeof(float));
    REQUIRE(api_.copyAsync(values.data(), pointer_, bytes_, nullptr) == 0);
    REQUIRE(api_.synchronize(nullptr) == 0);
    return values;
  }

 private:
  const DeviceApi& api_;
  size_t bytes_;
  void* pointer_ = nullptr;
};

}  // namespace

TEST_CASE("the library loads without a driver and exports its entry alone") {
  void* const library = openLibrary();
  CHECK(dlsym(library, kEntryName) != nullptr);
  // The runtime linked inside must not take the place of the one that torch loads.
  CHECK(dlsym(library, "cudaMalloc") == nullptr);
}

TEST_CASE("a caller built for another version of the entry gets nothing") {
  auto* const getEntry = reinterpret_cast<GetEntry>(dlsym(openLibrary(), kEntryName));
  REQUIRE(getEntry != nullptr);
  CHECK(getEntry(kEntryVersion + 1) == nullptr);
}

TEST_CASE("counting GPUs gives a number or a sentence") {
  int count = -1;
  Reason why;
  if (openEntry().countDevices(&count, &why)) {
    CHECK(count >= 0);
    CHECK(std::string(why.text).empty());
  } else {
    CHECK_THAT(why.text, Catch::Matchers::StartsWith("counting the GPUs failed: "));
  }
}

TEST_CASE("a process without NCCL is told so through the entry") {
  NcclApi api;
  Reason why;
  REQUIRE_FALSE(openEntry().loadNccl(&api, &why));
  CHECK(std::string(why.text) ==
        "no NCCL is loaded in this process; GPU collectives need a torch with CUDA");
}

TEST_CASE(
    "a sum of no sources or of a type without a kernel is refused before the GPU is touched") {
  const Entry& entry = openEntry();
  SumCall call;
  Reason why;
  REQUIRE_FALSE(entry.sum(&call, &why));
  CHECK(std::string(why.text) == "a sum on the GPU takes 1 to 8 sources, not 0");

  call.sourceCount = kMaxSources + 1;
  REQUIRE_FALSE(entry.sum(&call, &why));
  CHECK(std::string(why.text) == "a sum on the GPU takes 1 to 8 sources, not 9");

  call.sourceCount = 2;
  call.dtype = DType::kBool;
  REQUIRE_FALSE(entry.sum(&call, &why));
  CHECK(std::string(why.text) == "there is no GPU kernel that sums bool");
}

TEST_CASE("a sum on a machine without a GPU is a sentence") {
  const Entry& entry = openEntry();
  if (hasGpu(entry)) return;  // the case below computes there
  float value = 1.0f;
  SumCall call;
  call.dst = &value;
  call.sources[0] = &value;
  call.sourceCount = 1;
  call.count = 1;
  Reason why;
  REQUIRE_FALSE(entry.sum(&call, &why));
  CHECK_THAT(why.text, Catch::Matchers::StartsWith("a sum on the GPU failed: "));
}

TEST_CASE("a TopK workspace grows with what it must hold and is known without a GPU") {
  const Entry& entry = openEntry();
  const size_t small = entry.selectWorkspaceBytes(1000, 10);
  CHECK(small % 256 == 0);
  CHECK(entry.selectWorkspaceBytes(10'000'000, 100'000) > small + 8 * 4 * 100'000);
  // At one percent, less than half a byte an element.
  CHECK(entry.selectWorkspaceBytes(100'000'000, 1'000'000) < 50'000'000);
}

TEST_CASE("TopK calls that cannot be done are refused before the GPU is touched") {
  const Entry& entry = openEntry();
  Reason why;
  SelectCall select;
  select.dtype = DType::kInt64;
  REQUIRE_FALSE(entry.select(&select, &why));
  CHECK(std::string(why.text) ==
        "there is no GPU kernel that selects from int64; it takes float32, float16 and bfloat16");
  ScatterAddCall scatter;
  scatter.payloadCount = -2;
  REQUIRE_FALSE(entry.scatterAdd(&scatter, &why));
  CHECK(std::string(why.text) == "a TopK scatter-add on the GPU was given -2 payloads");
}

TEST_CASE("TopK on a machine without a GPU is a sentence") {
  const Entry& entry = openEntry();
  if (hasGpu(entry)) return;  // tests/device.sh computes there
  uint32_t words[64] = {};
  Reason why;
  REQUIRE_FALSE(entry.beginSelect(words, sizeof words, nullptr, &why));
  CHECK_THAT(why.text,
             Catch::Matchers::StartsWith("clearing a TopK workspace on the GPU failed: "));

  alignas(256) static char workspace[1 << 20];
  SelectCall select;
  select.count = 4;
  select.layout = {2, TopkValues::kFloat32};
  select.found = words;
  select.workspace = workspace;
  select.workspaceBytes = sizeof workspace;
  REQUIRE_FALSE(entry.select(&select, &why));
  CHECK_THAT(why.text, Catch::Matchers::StartsWith("a TopK selection on the GPU failed: "));

  ScatterAddCall scatter;
  scatter.found = words;
  REQUIRE_FALSE(entry.scatterAdd(&scatter, &why));
  CHECK_THAT(why.text, Catch::Matchers::StartsWith("a TopK scatter-add on the GPU failed: "));
}

TEST_CASE("sums on the GPU are those of the host, to the bit") {
  const Entry& entry = openEntry();
  if (!hasGpu(entry)) return;   // the case above has checked what happens then
  constexpr size_t kGuard = 8;  // sentinels behind the end
  constexpr float kSentinel = -77.0f;
  for (const size_t count : {0, 1, 3, 4, 5, 511, 512, 2048, 100003}) {
    for (const size_t offset : {0, 1}) {  // 1: nothing is aligned to 16 bytes
      std::vector<float> a(offset + count + kGuard, kSentinel), b = a, expected = a;
      for (size_t i = 0; i < count; ++i) {
        a[offset + i] = 0.1f * static_cast<float>(i % 1000);
        b[offset + i] = 1.0f / static_cast<float>(1 + i % 77);
        expected[offset + i] = a[offset + i] + b[offset + i];
      }
      const DeviceFloats deviceA(*entry.device, a), deviceB(*entry.device, b);
      SumCall call;
      call.dst = deviceA.at(offset);
      call.sources[0] = deviceA.at(offset);
      call.sources[1] = deviceB.at(offset);
      call.sourceCount = 2;
      call.count = count;
      Reason why;
      INFO(count << " elements at offset " << offset << ": " << why.text);
      REQUIRE(entry.sum(&call, &why));
      CHECK(deviceA.read() == expected);
    }
  }
}

}  // namespace taco::cuda
