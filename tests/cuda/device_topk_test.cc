// What only a GPU can show, beside topk_select_test.cc and scatter_add_test.cc, which run there
// too: large buffers, CUDA graphs, and times (the cases tagged [times] print them, and check
// nothing but results).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "csrc/topk/scatter_add.h"
#include "csrc/topk/select.h"
#include "tests/csrc/catch.h"
#include "tests/cuda/device_runner.h"
#include "tests/cuda/topk_runner.h"

namespace taco::testing {
namespace {

#define CHECK_CUDA(call)                                      \
  if (const cudaError_t error = (call); error != cudaSuccess) \
  FAIL(#call << ": " << cudaGetErrorString(error))

std::vector<float> gaussians(size_t count, uint32_t seed, float scale = 1) {
  std::minstd_rand random(seed + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(random() >> 8 & 0xffff);
    value = scale * (sum - 131070.0f) / 37837.0f;
  }
  return values;
}

// A stream, and what is captured on it.
class Graph {
 public:
  Graph() { CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Graph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void* stream() const { return stream_; }
  template <typename Enqueue>
  void capture(const Enqueue& enqueue) {
    cudaGraph_t graph = nullptr;
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    enqueue();
    CHECK_CUDA(cudaStreamEndCapture(stream_, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&graph_, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
  }
  void replay() { CHECK_CUDA(cudaGraphLaunch(graph_, stream_)); }
  void wait() { CHECK_CUDA(cudaStreamSynchronize(stream_)); }

  // Microseconds a replay: the median of 15 rows of `row` replays one behind the other, so that
  // what the host does between them is hidden.
  float medianMicroseconds(int row) {
    constexpr int kRows = 15;
    cudaEvent_t begin = nullptr, end = nullptr;
    CHECK_CUDA(cudaEventCreate(&begin));
    CHECK_CUDA(cudaEventCreate(&end));
    std::vector<float> all;
    for (int i = 0; i < kRows; ++i) {
      CHECK_CUDA(cudaEventRecord(begin, stream_));
      for (int turn = 0; turn < row; ++turn) replay();
      CHECK_CUDA(cudaEventRecord(end, stream_));
      wait();
      float milliseconds = 0;
      CHECK_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
      all.push_back(1000 * milliseconds / static_cast<float>(row));
    }
    CHECK_CUDA(cudaEventDestroy(begin));
    CHECK_CUDA(cudaEventDestroy(end));
    std::nth_element(all.begin(), all.begin() + kRows / 2, all.end());
    return all[kRows / 2];
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

// All device memory of one selection, in calls that can be captured.
struct Selection {
  size_t count;
  PayloadLayout layout;
  DeviceMemory gradient, residual, payload, found, workspace;

  Selection(size_t theCount, PayloadLayout theLayout)
      : count(theCount),
        layout(theLayout),
        gradient(4 * count),
        residual(Bytes(4 * count), 0),
        payload(layout.bytes()),
        found(4),
        workspace(runner().workspaceBytes(count, layout.k)) {
    runner().begin(workspace.data(), workspace.bytes());
  }
  void enqueue(void* stream) {
    cuda::SelectCall call;
    call.gradient = gradient.data();
    call.residual = reinterpret_cast<float*>(residual.data());
    call.count = count;
    call.layout = layout;
    call.payload = payload.data();
    call.found = reinterpret_cast<uint32_t*>(found.data());
    call.workspace = workspace.data();
    call.workspaceBytes = workspace.bytes();
    call.stream = stream;
    cuda::Reason why;
    if (!entry().select(&call, &why)) FAIL(why.text);
  }
  cuda::SelectReport report() const {
    cuda::SelectReport report;
    runner().read(&report, workspace.data(), sizeof report);
    return report;
  }
};

// CUDA loads a kernel when it is first launched, which need not be possible during a capture.
void loadKernels() {
  for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
    const PayloadLayout layout = {1, values};
    const Selected selected = DeviceSelector(DType::kFloat32, 4, layout).step(Bytes(16));
    const DeviceMemory payload(selected.payload, 0), dense(16), found(4);
    cuda::ScatterAddCall call;
    call.payloads = payload.data();
    call.strideBytes = layout.bytes();
    call.payloadCount = 1;
    call.layout = layout;
    call.dense = dense.data();
    call.count = 4;
    call.found = reinterpret_cast<uint32_t*>(found.data());
    runner().scatterAdd(call);
  }
}

bool isSame(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

// `payloads`: `payloadCount` of them, one after the other; `dense`: float32.
void enqueueScatterAdd(const DeviceMemory& payloads, int payloadCount, PayloadLayout layout,
                       const DeviceMemory& dense, int64_t divisor, const DeviceMemory& found,
                       void* stream) {
  cuda::ScatterAddCall call;
  call.payloads = payloads.data();
  call.strideBytes = layout.bytes();
  call.payloadCount = payloadCount;
  call.layout = layout;
  call.dense = dense.data();
  call.count = dense.bytes() / sizeof(float);
  call.divisor = divisor;
  call.found = reinterpret_cast<uint32_t*>(found.data());
  call.stream = stream;
  cuda::Reason why;
  if (!entry().scatterAdd(&call, &why)) FAIL(why.text);
}

}  // namespace

TEST_CASE("device: large buffers, byte for byte the host's, over steps that jump") {
  for (const size_t count : {(size_t{1} << 20) - 1, (size_t{1} << 20) + 1, size_t{20'000'003}}) {
    for (const TopkValues values : {TopkValues::kFloat32, TopkValues::kFloat16}) {
      const PayloadLayout layout = {count / 100, values};
      DeviceSelector device(DType::kFloat32, count, layout);
      Selector host;
      std::vector<float> residual(count);
      for (uint32_t step = 0; step < 4; ++step) {
        const std::vector<float> gradient = gaussians(count, step, step == 2 ? 1000 : 1);
        Bytes payload(layout.bytes());
        host.select({gradient.data(), count, DType::kFloat32}, residual.data(), layout,
                    payload.data());
        const Selected selected = device.step(stored(DType::kFloat32, gradient));
        INFO(count << " elements, step " << step);
        if (selected.payload != payload) FAIL("another payload");
        if (!isSame(selected.residual, residual)) FAIL("another residual");
      }
    }
  }
}

TEST_CASE("device: a hundred repeats have the same bits") {
  constexpr size_t count = 3'000'001;
  const PayloadLayout layout = {count / 100, TopkValues::kFloat32};
  std::vector<float> gradient = gaussians(count, 7);
  for (float& value : gradient) value = static_cast<float>(static_cast<int>(16 * value));  // ties
  const Bytes bytes = stored(DType::kFloat32, gradient);
  Selected first;
  for (int turn = 0; turn < 100; ++turn) {
    const Selected selected = DeviceSelector(DType::kFloat32, count, layout).step(bytes);
    if (turn == 0) first = selected;
    if (selected.payload != first.payload || !isSame(selected.residual, first.residual)) {
      FAIL("turn " << turn << " differs");
    }
  }
}

TEST_CASE("device: a captured step selects anew at every replay, also where the guess fails") {
  constexpr size_t count = 500'000;
  const PayloadLayout layout = {count / 100, TopkValues::kFloat32};
  loadKernels();
  Selection selection(count, layout);
  Graph graph;
  graph.capture([&] { selection.enqueue(graph.stream()); });
  Selector host;
  std::vector<float> residual(count);
  for (uint32_t step = 0; step < 8; ++step) {
    const std::vector<float> gradient = gaussians(count, step, step == 4 ? 1000 : 1);
    Bytes payload(layout.bytes());
    host.select({gradient.data(), count, DType::kFloat32}, residual.data(), layout, payload.data());
    selection.gradient.write(stored(DType::kFloat32, gradient));
    graph.replay();
    graph.wait();
    INFO("step " << step);
    if (selection.payload.read() != payload) FAIL("another payload");
    if (!isSame(selection.residual.readAs<float>(), residual)) FAIL("another residual");
  }
  CHECK(selection.report().predicted >= 4);
  CHECK(selection.report().collected >= 2);
}

TEST_CASE("device: select and scatter-add in one graph") {
  constexpr size_t count = 300'000;
  const PayloadLayout layout = {count / 100, TopkValues::kFloat16};
  loadKernels();
  Selection selection(count, layout);
  DeviceMemory dense(4 * count), found(4);
  Graph graph;
  graph.capture([&] {
    selection.enqueue(graph.stream());
    enqueueScatterAdd(selection.payload, 1, layout, dense, 2, found, graph.stream());
  });
  for (uint32_t step = 0; step < 3; ++step) {
    selection.gradient.write(stored(DType::kFloat32, gaussians(count, step)));
    graph.replay();
    graph.wait();
    CHECK(dense.read() ==
          referenceScatterAdd({selection.payload.read()}, layout, count, DType::kFloat32, 2));
    CHECK(found.readAs<uint32_t>()[0] == 0);
  }
}

TEST_CASE("device: times of a selection with error feedback, against the floor of the memory",
          "[times]") {
  struct Goal {
    size_t count;
    float floor, goal;  // us, on an H200: 12.1 bytes an element at 4.3 TB/s
  };
  loadKernels();
  std::printf("\nselection + error feedback, float32, Gaussian, k = 1 %%, graph replay, median\n");
  std::printf("%10s %8s %9s %8s %13s %10s %12s\n", "elements", "us", "floor us", "goal us",
              "fall-back us", "predicted", "candidates/k");
  for (const Goal& goal : {Goal{1 << 20, 3.0f, 14}, Goal{4 << 20, 11.8f, 24},
                           Goal{16 << 20, 47, 64}, Goal{64 << 20, 189, 236}}) {
    Selection selection(goal.count, {goal.count / 100, TopkValues::kFloat32});
    selection.gradient.write(stored(DType::kFloat32, gaussians(goal.count, 1)));
    Graph step, forget, fallBack;
    const auto begin = [&](void* stream) {
      cuda::Reason why;
      if (!entry().beginSelect(selection.workspace.data(), selection.workspace.bytes(), stream,
                               &why)) {
        FAIL(why.text);
      }
    };
    step.capture([&] { selection.enqueue(step.stream()); });
    forget.capture([&] { begin(forget.stream()); });
    // Without a guess each step takes the fall-back.
    fallBack.capture([&] {
      begin(fallBack.stream());
      selection.enqueue(fallBack.stream());
    });
    for (int warm = 0; warm < 60; ++warm) step.replay();
    step.wait();
    const uint32_t before = selection.report().predicted;
    constexpr int kRow = 20;
    const float microseconds = step.medianMicroseconds(kRow);
    const cuda::SelectReport report = selection.report();
    const float cleared = forget.medianMicroseconds(kRow);
    const float slow = fallBack.medianMicroseconds(kRow) - cleared;
    std::printf("%10zu %8.1f %9.1f %8.1f %13.1f %9u%% %12.2f  %s\n", goal.count, microseconds,
                goal.floor, goal.goal, slow, (report.predicted - before) * 100 / (15 * kRow),
                static_cast<double>(report.candidates) / static_cast<double>(goal.count / 100),
                microseconds <= goal.goal ? "" : "MISSED");
    CHECK(selection.found.readAs<uint32_t>()[0] == 0);
    CHECK(selection.report().collected == 1);
  }
}

TEST_CASE("device: times of a scatter-add of 4 payloads, against writing the dense range",
          "[times]") {
  loadKernels();
  std::printf("\nscatter-add of 4 payloads of 1 %%, float32, graph replay, median\n");
  std::printf("%10s %10s %14s %8s\n", "elements", "us", "memset us", "ratio");
  for (const size_t count :
       {size_t{1} << 20, size_t{4} << 20, size_t{16} << 20, size_t{64} << 20}) {
    const PayloadLayout layout = {count / 100, TopkValues::kFloat32};
    Bytes together(4 * layout.bytes());
    std::vector<const void*> pointers;
    for (size_t p = 0; p < 4; ++p) {
      auto* const indices = reinterpret_cast<uint32_t*>(together.data() + p * layout.bytes());
      auto* const values = reinterpret_cast<float*>(indices + layout.k);
      for (size_t j = 0; j < layout.k; ++j) {
        indices[j] = static_cast<uint32_t>(100 * j + (j * 7919 + 31 * p) % 100);
        values[j] = 0.25f * static_cast<float>(j % 1000);
      }
      pointers.push_back(indices);
    }
    DeviceMemory payloads(together, 0), dense(4 * count), found(4);
    Graph graph, clear;
    graph.capture([&] {
      enqueueScatterAdd(payloads, 4, layout, dense, 4, found, graph.stream());
    });
    clear.capture([&] {
      CHECK_CUDA(
          cudaMemsetAsync(dense.data(), 0, 4 * count, static_cast<cudaStream_t>(clear.stream())));
    });
    for (int warm = 0; warm < 20; ++warm) clear.replay();
    clear.wait();
    const float writing = clear.medianMicroseconds(20);
    const float adding = graph.medianMicroseconds(20);
    std::printf("%10zu %10.1f %14.1f %8.2f\n", count, adding, writing, adding / writing);
    Bytes host(4 * count);
    scatterAdd(pointers, layout, Buffer{host.data(), count, DType::kFloat32}, 4);
    CHECK(dense.read() == host);
  }
}

}  // namespace taco::testing
