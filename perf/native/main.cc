// One rank of the native benchmark: TACO's Communicator and its peers, measured in the same
// processes on the same memory. perf/native/run starts it.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>

#include "perf/native/contender.h"
#include "perf/native/measure.h"
#include "perf/native/report.h"

namespace taco::perf {
namespace {

// 0: all right; 1: wrong elements; 2: it could not be done.
int runRank(const Options& options, StartLine& startLine) {
  const bool speaks = startLine.rank() == 0;
  const double flagNs = startLine.flagNanoseconds();
  Contenders contenders;
  // Peers first: an MPI library wants to be started before anybody makes threads.
  Contenders peers;
  for (const PeerOption& peer : options.peers) peers.push_back(makePeer(peer, startLine));
  if (options.taco) contenders.push_back(makeTaco(options.folder, startLine));
  for (auto& peer : peers) contenders.push_back(std::move(peer));
  if (contenders.empty())
    throw std::invalid_argument("--no-taco without a --peer: nothing to measure");

  const RunFacts facts = factsOf(startLine, flagNs, contenders);
  if (speaks) std::fputs(headline(options, facts).c_str(), stdout);
  std::vector<Figure> all;
  size_t wrong = 0;
  for (const size_t bytes : options.bytes) {
    const std::vector<Figure> figures = measure(options, bytes, contenders, startLine);
    if (speaks) {
      std::fputs(line(figures).c_str(), stdout);
      std::fflush(stdout);
    }
    for (const Figure& figure : figures) wrong += figure.wrong;
    all.insert(all.end(), figures.begin(), figures.end());
  }
  if (speaks && !options.json.empty()) writeJson(options.json, options, facts, all);
  startLine.wait();
  while (!contenders.empty()) contenders.pop_back();
  return wrong == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  std::optional<StartLine> startLine;
  try {
    const Options options = parseOptions(argc, argv);
    startLine.emplace(options.folder, options.rank, options.size);
    const int status = runRank(options, *startLine);
    if (status == 0) return 0;
    std::fflush(stdout);
    ::_exit(status);  // MPI says goodbye already; what is left are exit handlers that may wait
  } catch (const std::exception& error) {
    std::fprintf(stderr, "taco_native_bench: %s\n", error.what());
    std::fflush(nullptr);
    if (startLine) startLine->giveUp();
    ::_exit(
        2);  // other ranks may be in the middle of an operation: destructors would wait for them
  }
}

}  // namespace
}  // namespace taco::perf

int main(int argc, char** argv) { return taco::perf::run(argc, argv); }
