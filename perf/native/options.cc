#include "perf/native/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "csrc/base/format.h"

namespace taco::perf {

const char* const kUsage =
    "mpirun -np N taco_native_bench --meet FOLDER [options]\n"
    "  --meet FOLDER      an empty folder, best in /dev/shm, where the ranks meet\n"
    "  --op OP            all_reduce (default), all_gather, reduce_scatter, broadcast, all_to_all\n"
    "  --dtype TYPE       float32 (default), bfloat16, float16\n"
    "  --bytes A-B        sizes, 8-64M unless given; one number for one size\n"
    "  --step N           factor between sizes, from the largest down: 4\n"
    "  --repeats N        of every size; unless given 7 (64 MiB and more) to 301 (small)\n"
    "  --batch-bytes N    operations between two clock reads: as many as touch this much, at most "
    "50\n"
    "  --peer NAME=PATH[?ARGUMENT]   a shared object with the interface of peer.h; may be "
    "repeated\n"
    "  --settings NAME=TEXT          what was set for that peer, for the results\n"
    "  --no-taco          only the peers\n"
    "  --json FILE        rank 0 writes its results there\n"
    "  --corrupt NAME     spoils one element of NAME's first result: the check must find it\n"
    "  --rank R --size N  unless mpirun or mpiexec has set them\n";

const char* name(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllToAll:
      return "all_to_all";
  }
  return "?";
}

const char* name(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBFloat16:
      return "bfloat16";
  }
  return "?";
}

size_t elementBytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& value,
                         const std::string& wanted) {
  throw std::invalid_argument(str(option, " ", value, ": expected ", wanted));
}

size_t parseBytes(const std::string& option, const std::string& text) {
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  size_t factor = 0;
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (suffix.empty()) factor = 1;
  if (suffix == "K") factor = size_t{1} << 10;
  if (suffix == "M") factor = size_t{1} << 20;
  if (suffix == "G") factor = size_t{1} << 30;
  if (error != std::errc() || value == 0 || factor == 0) {
    refuse(option, text, "a number of bytes such as 8, 64K or 16M");
  }
  return value * factor;
}

int parseNumber(const std::string& option, const std::string& text, int least) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least) {
    refuse(option, text, str("a number of at least ", least));
  }
  return value;
}

std::vector<size_t> parseSizes(const std::string& range, int step) {
  const size_t dash = range.find('-');
  const size_t first = parseBytes("--bytes", range.substr(0, dash));
  const size_t last =
      dash == std::string::npos ? first : parseBytes("--bytes", range.substr(dash + 1));
  if (last < first) refuse("--bytes", range, "the smaller size first");
  std::vector<size_t> sizes;
  // From the largest down: round numbers are on that side.
  for (size_t bytes = last; bytes > first; bytes /= static_cast<size_t>(step)) {
    sizes.push_back(bytes);
  }
  sizes.push_back(first);
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

template <typename Enum>
Enum parseEnum(const std::string& option, const std::string& text, std::vector<Enum> all) {
  std::string names;
  for (const Enum one : all) {
    if (text == name(one)) return one;
    names += str(names.empty() ? "" : ", ", name(one));
  }
  refuse(option, text, str("one of ", names));
}

std::pair<std::string, std::string> splitName(const std::string& option, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) refuse(option, text, "NAME=...");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

PeerOption parsePeer(const std::string& text) {
  auto [name, path] = splitName("--peer", text);
  const size_t mark = path.find('?');
  PeerOption peer;
  peer.name = name;
  peer.path = path.substr(0, mark);
  if (mark != std::string::npos) peer.argument = path.substr(mark + 1);
  return peer;
}

// Of the launchers in use: OpenMPI, MPICH and Intel MPI.
std::optional<int> fromEnvironment(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const char* value = std::getenv(variable)) return parseNumber(variable, value, 0);
  }
  return std::nullopt;
}

}  // namespace

Options parseOptions(int argc, char** argv) {
  Options options;
  std::string range = "8-64M";
  int step = 4;
  std::vector<std::pair<std::string, std::string>> settings;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--no-taco") {
      options.taco = false;
      continue;
    }
    if (i + 1 == argc) {
      throw std::invalid_argument(str(option, ": unknown, or its value is missing\n", kUsage));
    }
    const std::string value = argv[++i];
    if (option == "--meet") {
      options.folder = value;
    } else if (option == "--op") {
      options.operation = parseEnum(
          option, value,
          std::vector{Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
                      Operation::kBroadcast, Operation::kAllToAll});
    } else if (option == "--dtype") {
      options.type = parseEnum(
          option, value,
          std::vector{ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16});
    } else if (option == "--bytes") {
      range = value;
    } else if (option == "--step") {
      step = parseNumber(option, value, 2);
    } else if (option == "--repeats") {
      options.repeats = parseNumber(option, value, 1);
    } else if (option == "--batch-bytes") {
      options.batchBytes = parseBytes(option, value);
    } else if (option == "--peer") {
      options.peers.push_back(parsePeer(value));
    } else if (option == "--settings") {
      settings.push_back(splitName(option, value));
    } else if (option == "--json") {
      options.json = value;
    } else if (option == "--corrupt") {
      options.corrupt = value;
    } else if (option == "--rank") {
      options.rank = parseNumber(option, value, 0);
    } else if (option == "--size") {
      options.size = parseNumber(option, value, 1);
    } else {
      throw std::invalid_argument(str(option, ": unknown option\n", kUsage));
    }
  }
  for (PeerOption& peer : options.peers) {
    for (const auto& [name, text] : settings) {
      if (peer.name == name) peer.settings = text;
    }
  }
  if (options.rank < 0) {
    options.rank = fromEnvironment({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}).value_or(-1);
  }
  if (options.size == 0) {
    options.size = fromEnvironment({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}).value_or(0);
  }
  if (options.folder.empty()) throw std::invalid_argument(str("--meet is missing\n", kUsage));
  if (options.rank < 0 || options.size < 1 || options.rank >= options.size) {
    throw std::invalid_argument(
        "which rank this is, is not known: start it with mpirun -np N, or give --rank and --size");
  }
  options.bytes = parseSizes(range, step);
  return options;
}

}  // namespace taco::perf
