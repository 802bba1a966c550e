#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace taco::perf {

enum class Operation { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll };
enum class ElementType { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2 };  // as in peer.h

const char* name(Operation operation);
const char* name(ElementType type);
size_t elementBytes(ElementType type);

struct PeerOption {
  std::string name;
  std::string path;      // of the shared object
  std::string argument;  // for the peer
  std::string settings;  // what the launcher has set for it; goes into the results
};

struct Options {
  std::string folder;  // where the ranks meet: empty, on this host, the same for all of them
  int rank = -1;
  int size = 0;
  Operation operation = Operation::kAllReduce;
  ElementType type = ElementType::kFloat32;
  std::vector<size_t> bytes;  // sizes, ascending
  std::optional<int> repeats;
  size_t batchBytes = 0;  // 0: chosen by whether there are cores for all ranks
  std::vector<PeerOption> peers;
  bool taco = true;
  std::string json;     // file for rank 0's results; empty: none
  std::string corrupt;  // the contender of whose first result one element is spoiled
};

// Rank and size come from --rank and --size, else from what mpirun or mpiexec has set. Throws
// std::invalid_argument with a sentence for the user.
Options parseOptions(int argc, char** argv);

extern const char* const kUsage;

}  // namespace taco::perf
