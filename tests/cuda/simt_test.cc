// The shim itself: kernels with known results, and mistakes that it must find.
#include "tests/cuda/simt.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/csrc/catch.h"

namespace taco::simt {
namespace {

using Catch::Matchers::ContainsSubstring;
constexpr uint32_t kAll = 0xffffffff;

int run(const std::function<void()>& kernel, unsigned blocks = 1, unsigned threads = 64) {
  return TACO_LAUNCH(kernel, blocks, threads, nullptr);
}

// What the launch complains about; "" when it does not.
std::string complaint(const std::function<void()>& kernel, unsigned blocks = 1,
                      unsigned threads = 64) {
  try {
    run(kernel, blocks, threads);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Options for the length of a test.
class With {
 public:
  explicit With(const Options& wanted) : before_(options()) { options() = wanted; }
  ~With() { options() = before_; }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  Options before_;
};

// Sums a block's values in shared memory.
void sumBlock(const uint32_t* values, uint32_t* sums) {
  __shared__ uint32_t shared[256];
  shared[threadIdx.x] = values[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) shared[threadIdx.x] += shared[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

uint32_t scanWarp(uint32_t value) {
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const uint32_t below = __shfl_up_sync(kAll, value, distance);
    if (lane() >= static_cast<int>(distance)) value += below;
  }
  return value;
}

// Half the block at one barrier, half at another.
void parted() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

}  // namespace

TEST_CASE("simt: every thread of every block runs once, whatever the order and the workers") {
  for (const int workers : {1, 2, 4}) {
    for (const uint32_t seed : {0u, 1u, 2u}) {
      const With with({.workers = workers, .seed = seed});
      std::vector<uint32_t> seen(37 * 96);
      run([&] { ++seen[blockIdx.x * blockDim.x + threadIdx.x]; }, 37, 96);
      CHECK(seen == std::vector<uint32_t>(seen.size(), 1));
    }
  }
}

TEST_CASE("simt: a seed changes the order of blocks and of threads, 0 is ascending") {
  const auto order = [](uint32_t seed) {
    const With with({.workers = 1, .seed = seed});
    std::vector<uint32_t> came;
    run([&] { came.push_back(blockIdx.x * blockDim.x + threadIdx.x); }, 4, 32);
    return came;
  };
  const std::vector<uint32_t> ascending = order(0), shuffled = order(5);
  CHECK(std::is_sorted(ascending.begin(), ascending.end()));
  CHECK(shuffled != ascending);
  CHECK(shuffled == order(5));
}

TEST_CASE("simt: a reduction in shared memory") {
  std::vector<uint32_t> values(20 * 256), sums(20);
  std::iota(values.begin(), values.end(), 1u);
  for (const uint32_t seed : {0u, 3u}) {
    const With with({.seed = seed});
    run([&] { sumBlock(values.data(), sums.data()); }, 20, 256);
    for (uint32_t block = 0; block < 20; ++block) {
      CHECK(sums[block] == 256 * (256 * block) + 256 * 257 / 2);
    }
  }
}

TEST_CASE("simt: a scan with shuffles") {
  std::vector<uint32_t> sums(64);
  run([&] { sums[threadIdx.x] = scanWarp(threadIdx.x % 32 + 1); });
  for (uint32_t i = 0; i < 64; ++i) CHECK(sums[i] == (i % 32 + 1) * (i % 32 + 2) / 2);
}

TEST_CASE("simt: shuffles of every kind, of 32 and 64 bits and of floats") {
  std::vector<uint64_t> from5(32), down(32), across(32);
  std::vector<float> up(32);
  run(
      [&] {
        const unsigned i = threadIdx.x;
        from5[i] = __shfl_sync(kAll, uint64_t{1} << (i + 20), 5);
        up[i] = __shfl_up_sync(kAll, static_cast<float>(i) + 0.5f, 3);
        down[i] = __shfl_down_sync(kAll, i, 4);
        across[i] = __shfl_xor_sync(kAll, i, 7);
      },
      1, 32);
  for (uint32_t i = 0; i < 32; ++i) {
    CHECK(from5[i] == uint64_t{1} << 25);
    CHECK(up[i] == static_cast<float>(i < 3 ? i : i - 3) + 0.5f);
    CHECK(down[i] == (i + 4 > 31 ? i : i + 4));
    CHECK(across[i] == (i ^ 7));
  }
}

TEST_CASE("simt: warp functions with partial masks, two groups of a warp at different places") {
  std::vector<uint32_t> ballots(32), values(32);
  run(
      [&] {
        const unsigned i = threadIdx.x;
        if (i % 2 == 0) {
          ballots[i] = __ballot_sync(0x55555555, i >= 16);
        } else {
          for (unsigned turn = 0; turn < i % 4; ++turn) {
            values[i] += __shfl_sync(i % 4 == 1 ? 0x22222222u : 0x88888888u, i, i % 4 == 1 ? 5 : 7);
          }
        }
      },
      1, 32);
  for (uint32_t i = 0; i < 32; ++i) {
    if (i % 2 == 0) CHECK(ballots[i] == 0x55550000);
    if (i % 4 == 1) CHECK(values[i] == 5);
    if (i % 4 == 3) CHECK(values[i] == 3 * 7);
  }
}

TEST_CASE("simt: ballots, any, all, match and counts of bits") {
  std::vector<uint32_t> match(32), counts(32);
  bool any = false, none = true, all = false, notAll = true;
  run(
      [&] {
        const unsigned i = threadIdx.x;
        match[i] = __match_any_sync(kAll, i % 3);
        counts[i] = static_cast<uint32_t>(__popc(match[i])) * 10000 +
                    static_cast<uint32_t>(__ffs(static_cast<int>(match[i]))) * 100 +
                    static_cast<uint32_t>(__clz(static_cast<int>(match[i])));
        const bool isAny = __any_sync(kAll, i == 9), isNone = __any_sync(kAll, i == 32);
        const bool isAll = __all_sync(kAll, i < 32), isNotAll = __all_sync(kAll, i != 9);
        __syncwarp();
        if (i == 31) any = isAny, none = isNone, all = isAll, notAll = isNotAll;
      },
      1, 32);
  CHECK((any && !none && all && !notAll));
  CHECK(match[0] == 0x49249249);
  CHECK(match[4] == 0x92492492);
  CHECK(counts[0] == 11 * 10000 + 1 * 100 + 1);
  CHECK(counts[2] == 10 * 10000 + 3 * 100 + 2);
}

TEST_CASE("simt: atomics from all blocks at once, 32 and 64 bits") {
  uint32_t sum = 0, bits = 0, largest = 0, won = 0, lock = 0;
  unsigned long long wide = 0;
  const With with({.workers = 4, .seed = 9});
  run(
      [&] {
        const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
        atomicAdd(&sum, 1u);
        atomicAdd(&wide, 1ull << 33);
        atomicOr(&bits, 1u << i % 31);
        atomicMax(&largest, i);
        if (atomicCAS(&lock, 0u, 1u) == 0) atomicAdd(&won, 1u);
      },
      50, 128);
  CHECK(sum == 6400);
  CHECK(wide == 6400ull << 33);
  CHECK(bits == 0x7fffffff);
  CHECK(largest == 6399);
  CHECK(won == 1);
  CHECK(lock == 1);
}

TEST_CASE("simt: a block that waits for an earlier one goes on") {
  // By ticket, in any order of the blocks: each adds to what the one before has published.
  for (const uint32_t seed : {0u, 1u, 2u, 3u}) {
    const With with({.workers = 4, .seed = seed});
    std::vector<uint32_t> sums(200, 0);
    uint32_t ticket = 0;
    run(
        [&] {
          __shared__ uint32_t turn;
          if (threadIdx.x == 0) turn = atomicAdd(&ticket, 1u);
          __syncthreads();
          if (threadIdx.x != 0) return;
          uint32_t before = 0;
          while (turn > 0 && (before = cuda::loadVolatile(&sums[turn - 1])) == 0) __nanosleep(20);
          cuda::storeVolatile(&sums[turn], before + 1);
        },
        200, 32);
    for (uint32_t i = 0; i < 200; ++i) CHECK(sums[i] == i + 1);
  }
}

TEST_CASE("simt: a thread that waits for another of its block goes on") {
  uint32_t flag = 0, seen = 0;
  run([&] {
    if (threadIdx.x == 0) {
      while (cuda::loadVolatile(&flag) == 0) __nanosleep(20);
      seen = 1;
    }
    if (threadIdx.x == 40) cuda::storeVolatile(&flag, 1u);
  });
  CHECK(seen == 1);
}

TEST_CASE("simt: a wait that never ends is an error") {
  const With with({.workers = 2, .waitSeconds = 0.02});
  const uint32_t never = 0;
  const std::string why = complaint(
      [&] {
        if (blockIdx.x == 1 && threadIdx.x == 3) {
          while (cuda::loadVolatile(&never) == 0) __nanosleep(20);
        }
      },
      4);
  CHECK(why == "something that is waited for does not come (block 1, thread 3)");
}

TEST_CASE(
    "simt: blocks that wait in the order of their index, which nothing promises, are found out") {
  const With with({.workers = 2, .seed = 1, .waitSeconds = 0.05});
  std::vector<uint32_t> done(64, 0);
  const std::string why = complaint(
      [&] {
        while (blockIdx.x > 0 && cuda::loadVolatile(&done[blockIdx.x - 1]) == 0) __nanosleep(20);
        cuda::storeVolatile(&done[blockIdx.x], 1u);
      },
      64, 1);
  CHECK_THAT(why, ContainsSubstring("something that is waited for does not come"));
}

TEST_CASE("simt: a barrier that some threads do not reach is an error") {
  CHECK_THAT(
      complaint([] {
        if (threadIdx.x < 63) __syncthreads();
      }),
      ContainsSubstring("is reached by 63 of 64 threads in block 0, the others have finished"));
}

TEST_CASE("simt: threads at different barriers are an error") {
  CHECK_THAT(complaint(parted),
             ContainsSubstring("threads of a block are at the barriers at simt_test.cc:"));
}

TEST_CASE("simt: a warp function that a lane of its mask does not call is an error") {
  CHECK_THAT(complaint([] {
               if (threadIdx.x != 7) __ballot_sync(kAll, true);
             }),
             ContainsSubstring("waits for ever in block 0: lane 7 of its mask has finished"));
  CHECK_THAT(complaint([] {
               if (threadIdx.x != 7) __ballot_sync(kAll, true);
               __syncthreads();
             }),
             ContainsSubstring("lane 7 of its mask is at the barrier at simt_test.cc:"));
  CHECK_THAT(complaint([] { __ballot_sync(threadIdx.x == 7 ? 0x80u : kAll, true); }),
             ContainsSubstring("lane 7 of its mask has finished"));
  CHECK_THAT(complaint([] { __ballot_sync(threadIdx.x == 7 ? 0xf0u : kAll, true); }),
             ContainsSubstring("lane 7 of its mask has called with another mask"));
  CHECK_THAT(complaint([] {
               threadIdx.x == 7 ? __syncwarp() : static_cast<void>(__ballot_sync(kAll, true));
             }),
             ContainsSubstring("lane 7 of its mask is in __syncwarp"));
  CHECK_THAT(complaint([] { __syncwarp(); }, 1, 40),
             ContainsSubstring("lane 8 of its mask does not exist"));
}

TEST_CASE("simt: a lane outside its own mask, and a shuffle from outside the mask, are errors") {
  CHECK_THAT(complaint([] { __ballot_sync(0xffff, true); }),
             ContainsSubstring("is called by lane 16, which is not in its mask"));
  CHECK_THAT(complaint([] {
               if (threadIdx.x % 32 < 16) __shfl_sync(0xffff, 1, 20);
             }),
             ContainsSubstring("reads lane 20, which is not in its mask"));
}

TEST_CASE("simt: after an error the next launch is as good as any") {
  const With with({.workers = 3});
  for (int i = 0; i < 20; ++i) {
    CHECK(complaint(
              [] {
                if (threadIdx.x == 5) __syncthreads();
              },
              9) != "");
    std::vector<uint32_t> values(9 * 64, 1), sums(9);
    run([&] { sumBlock(values.data(), sums.data()); }, 9, 64);
    CHECK(sums == std::vector<uint32_t>(9, 64));
  }
}

TEST_CASE("simt: no blocks and too many threads are refused, as a GPU refuses them") {
  CHECK_THAT(complaint([] {}, 0), ContainsSubstring("a launch of 0 blocks"));
  CHECK_THAT(complaint([] {}, 1, 1025), ContainsSubstring("1 to 1024 threads"));
}

}  // namespace taco::simt
