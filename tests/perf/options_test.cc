#include "perf/native/options.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/csrc/catch.h"

namespace taco::perf {
namespace {

Options parse(std::vector<std::string> words) {
  words.insert(words.begin(),
               {"taco_native_bench", "--meet", "/nowhere", "--rank", "1", "--size", "2"});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return parseOptions(static_cast<int>(pointers.size()), pointers.data());
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("sizes are a range with a factor, or one number") {
  CHECK(parse({}).bytes.size() == 13);
  CHECK(parse({"--bytes", "8-64", "--step", "4"}).bytes == std::vector<size_t>{8, 16, 64});
  CHECK(parse({"--bytes", "8-1K", "--step", "2"}).bytes ==
        std::vector<size_t>{8, 16, 32, 64, 128, 256, 512, 1024});
  CHECK(parse({"--bytes", "4M"}).bytes == std::vector<size_t>{size_t{4} << 20});
  CHECK(parse({"--bytes", "64K-1M", "--step", "4"}).bytes ==
        std::vector<size_t>{size_t{64} << 10, size_t{256} << 10, size_t{1} << 20});
}

TEST_CASE("a peer has a name, a file, an argument and what was set for it") {
  const Options options = parse({"--settings", "b=--bind-to core", "--peer", "a=/x/a.so", "--peer",
                                 "b=/x/b.so?/usr/lib/libmpi.so"});
  REQUIRE(options.peers.size() == 2);
  CHECK(options.peers[0].name == "a");
  CHECK(options.peers[0].path == "/x/a.so");
  CHECK(options.peers[0].argument.empty());
  CHECK(options.peers[0].settings.empty());
  CHECK(options.peers[1].path == "/x/b.so");
  CHECK(options.peers[1].argument == "/usr/lib/libmpi.so");
  CHECK(options.peers[1].settings == "--bind-to core");
}

TEST_CASE("what makes no sense is refused in a sentence that names it") {
  CHECK(refusal({"--bytes", "1K-8"}) == "--bytes 1K-8: expected the smaller size first");
  CHECK(refusal({"--bytes", "8Q"}).find("--bytes 8Q: expected a number of bytes") == 0);
  CHECK(refusal({"--step", "1"}) == "--step 1: expected a number of at least 2");
  CHECK(refusal({"--dtype", "int8"}) == "--dtype int8: expected one of float32, bfloat16, float16");
  CHECK(refusal({"--peer", "libx.so"}) == "--peer libx.so: expected NAME=...");
  CHECK(refusal({"--fast", "1"}).find("--fast: unknown option") == 0);
  CHECK(refusal({"--repeats"}).find("--repeats: unknown, or its value is missing") == 0);
  CHECK(refusal({"--rank", "2"}).find("which rank this is, is not known") == 0);
}

}  // namespace
}  // namespace taco::perf
