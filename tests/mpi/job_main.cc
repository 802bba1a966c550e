// One rank of a real MPI job, without torch: mpirun -np N mpi_job SCENARIO FOLDER. The ranks meet
// through files in FOLDER. Exit code 0: everything was as it should be; else stderr says what not.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <thread>

#include "csrc/base/format.h"
#include "csrc/communicator/communicator.h"
#include "csrc/mpi/mpi_job.h"
#include "csrc/mpi/mpi_rendezvous.h"
#include "tests/mpi/folder_store.h"

namespace taco {
namespace {

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

struct Job {
  int rank = 0;
  int size = 1;
  std::string folder;

  std::map<std::string, std::string> environment() const {
    auto variables = processEnvironment();
    if (variables.count("TACO_TRANSPORT") == 0) variables["TACO_TRANSPORT"] = "mpi";
    variables["TACO_SHM"] = "0";
    return variables;
  }

  // A group of these ranks of the job; null for those that are not in it.
  std::unique_ptr<Communicator> group(const std::string& name, const std::vector<int>& members,
                                      Millis timeout = Millis(60000)) const {
    const auto self = std::find(members.begin(), members.end(), rank);
    if (self == members.end()) return nullptr;
    CommunicatorConfig config;
    config.rank = static_cast<int>(self - members.begin());
    config.size = static_cast<int>(members.size());
    config.store = std::make_shared<FolderStore>(folder + "/" + name);
    config.environment = environment();
    config.timeout = timeout;
    config.groupName = name;
    return std::make_unique<Communicator>(config);
  }
  std::vector<int> everybody() const {
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

void finish(const TicketPtr& ticket) {
  expect(ticket->wait(Deadline::after(Millis(90000))), "an operation never ended");
  if (const auto error = ticket->error()) throw *error;
}

void run(Communicator& group, const std::function<void(Collectives&)>& body,
         Millis timeout = Millis(0)) {
  if (const auto error = group.run(timeout, body)) throw *error;
}

Buffer view(std::vector<int32_t>& data) { return {data.data(), data.size(), DType::kInt32}; }

int32_t element(int rank, size_t index) {
  return static_cast<int32_t>(rank * 1000003 + static_cast<int>(index % 977) * 31);
}

void allReduce(Communicator& group, size_t count) {
  std::vector<int32_t> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = element(group.rank(), i);
  run(group, [&](Collectives& c) { c.allReduce(view(data), {}); });
  for (size_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (int rank = 0; rank < group.size(); ++rank) sum += element(rank, i);
    expect(data[i] == sum, str("all_reduce of ", count, " is wrong at ", i));
  }
}

void broadcast(Communicator& group, size_t count, int root) {
  std::vector<int32_t> data(count, group.rank());
  run(group, [&](Collectives& c) { c.broadcast(view(data), root); });
  expect(std::count(data.begin(), data.end(), root) == static_cast<long>(count),
         "broadcast is wrong");
}

void allToAll(Communicator& group, size_t count) {
  const size_t size = static_cast<size_t>(group.size());
  std::vector<std::vector<int32_t>> out(size), in(size);
  std::vector<ConstBuffer> sends;
  std::vector<Buffer> receives;
  for (size_t peer = 0; peer < size; ++peer) {
    // Uneven: every pair exchanges another number of elements.
    out[peer].assign(count + peer, group.rank() * 100 + static_cast<int>(peer));
    in[peer].assign(count + static_cast<size_t>(group.rank()), -1);
    sends.push_back(view(out[peer]));
    receives.push_back(view(in[peer]));
  }
  run(group, [&](Collectives& c) { c.allToAll(sends, receives); });
  for (size_t peer = 0; peer < size; ++peer) {
    const std::vector<int32_t> wanted(in[peer].size(), static_cast<int>(peer) * 100 + group.rank());
    expect(in[peer] == wanted, "all_to_all is wrong");
  }
}

// Everybody sends to rank 0, which takes them from anybody, under one tag of two.
void anySource(Communicator& group, size_t count) {
  std::vector<int32_t> data(count, group.rank()), other(1, -group.rank());
  const auto send = [&](std::vector<int32_t>& what, int64_t tag) {
    return group.send(view(what), 0, tag, Millis(0), nullptr);
  };
  if (group.rank() != 0) {
    const TicketPtr first = send(data, 7);
    finish(send(other, 8));
    finish(first);
    return;
  }
  std::vector<bool> seen(static_cast<size_t>(group.size()));
  for (int i = 1; i < group.size(); ++i) {
    std::vector<int32_t> got(count, -1);
    const TicketPtr ticket = group.receive(view(got), -1, 7, Millis(0), nullptr);
    finish(ticket);
    const int source = ticket->sourceRank();
    expect(source > 0 && !seen[static_cast<size_t>(source)], "a source came twice");
    seen[static_cast<size_t>(source)] = true;
    expect(std::count(got.begin(), got.end(), source) == static_cast<long>(count), "recv is wrong");
    std::vector<int32_t> small(1);
    finish(group.receive(view(small), source, 8, Millis(0), nullptr));
    expect(small[0] == -source, "recv by tag is wrong");
  }
}

void operations(const Job& job) {
  const MpiMaster master = meetThroughMpi(job.environment(), job.rank == job.size - 1 ? 4711 : 0,
                                          Deadline::after(Millis(60000)));
  expect(master.host == "127.0.0.1" && master.port == 4711,
         str("the master is at ", master.host, ":", master.port));

  auto all = job.group("all", job.everybody());
  expect(all->describe().find("mpi, ") != std::string::npos, all->describe());
  for (const size_t count : {0ul, 1ul, 1000ul, 70001ul, 1500000ul}) allReduce(*all, count);
  broadcast(*all, 300000, job.size - 1);
  allToAll(*all, 1000);
  allToAll(*all, 100000);
  for (const size_t count : {10ul, 200000ul}) {
    run(*all, [](Collectives& c) { c.barrier(); });  // the next round's messages have the same tags
    anySource(*all, count);
  }
  run(*all, [](Collectives& c) { c.barrier(); });

  // Subgroups in other orders, beside each other and the large one on threads of their own.
  std::vector<int> reversed = job.everybody();
  std::reverse(reversed.begin(), reversed.end());
  auto backwards = job.group("backwards", reversed);
  auto ends = job.group("ends", {0, job.size - 1});
  std::thread beside([&] {
    for (int i = 0; i < 20; ++i) allReduce(*backwards, 5000);
  });
  if (ends) {
    for (int i = 0; i < 20; ++i) allReduce(*ends, 100);
    broadcast(*ends, 200000, 1);
    ends->shutdown();
  }
  for (int i = 0; i < 5; ++i) allReduce(*all, 200000);
  beside.join();
  backwards->shutdown();
  allReduce(*all, 3);
  expect(all->traffic().networkBytes > 0, "nothing was counted");
  all->shutdown();
}

// The Error that `body` throws.
Error errorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& why) {
    return why;
  }
  throw std::runtime_error("no error was thrown");
}

void expectText(const Error& why, const std::string& text) {
  expect(std::string(why.what()).find(text) != std::string::npos,
         str("'", why.what(), "' does not say '", text, "'"));
}

// A failure ends whatever the others are in: nobody may still be in an operation before.
void allArrived(const Job& job) {
  FolderStore arrived(job.folder + "/arrived");
  arrived.set(str(job.rank), "");
  for (int rank = 0; rank < job.size; ++rank)
    arrived.get(str(rank), Deadline::after(Millis(60000)));
}

void mismatch(const Job& job) {
  auto all = job.group("all", job.everybody());
  allReduce(*all, 10);
  allArrived(job);
  std::vector<int32_t> data(100 + static_cast<size_t>(job.rank));
  const Error why =
      errorOf([&] { run(*all, [&](Collectives& c) { c.allReduce(view(data), {}); }); });
  expectText(why, "all_reduce(SUM) of 10");
  all->shutdown();
}

void timeout(const Job& job) {
  auto all = job.group("all", job.everybody(), Millis(20000));
  allReduce(*all, 10);
  allArrived(job);
  if (job.rank == 0) {
    const Error why = errorOf([&] {
      run(
          *all, [](Collectives& c) { c.barrier(); }, Millis(300));
    });
    expect(why.code() == ErrorCode::kTimeout, why.what());
    expectText(why, "Timed out after 300 ms on rank 0 waiting for rank");
  } else {
    // Does its part, but late: rank 0 has failed by then and said so.
    FolderStore(job.folder + "/late").get("failed", Deadline::after(Millis(60000)));
    expectText(errorOf([&] { run(*all, [](Collectives& c) { c.barrier(); }); }),
               "Timed out after 300 ms");
  }
  if (job.rank == 0) FolderStore(job.folder + "/late").set("failed", "");
  all->shutdown();
}

// The last rank ends in a way that `how` says while the others wait for it. Those that mpirun does
// not end see why.
void death(const Job& job, const std::string& how) {
  auto all = job.group("all", job.everybody(), Millis(30000));
  allReduce(*all, 10);
  allArrived(job);
  if (job.rank == job.size - 1) {
    if (how == "leave") {
      all->shutdown();
      return;
    }
    if (how == "exit") ::exit(7);
    ::kill(::getpid(), SIGKILL);
  }
  const Error why = errorOf([&] { allReduce(*all, 10); });
  expect(why.code() == ErrorCode::kPeerFailed, str(name(why.code()), ": ", why.what()));
  expectText(why, str("rank ", job.size - 1));
  std::printf("survived: %s\n", why.what());
  std::fflush(stdout);
  all.reset();
}

// Messages of all sizes between all ranks at once, beside collectives of another group.
void stress(const Job& job) {
  auto all = job.group("all", job.everybody());
  auto other = job.group("other", job.everybody());
  std::thread beside([&] {
    for (int i = 0; i < 60; ++i) allReduce(*other, static_cast<size_t>(i * i * i));
  });
  const auto count = [](int round, int from, int to) {
    const int mixed = (round * 7919 + from * 104729 + to * 1299709) % 1000;
    return static_cast<size_t>(mixed < 700 ? mixed : mixed * mixed / 4);
  };
  for (int round = 0; round < 40; ++round) {
    std::vector<TicketPtr> tickets;
    std::vector<std::vector<int32_t>> out(static_cast<size_t>(job.size)), in(out);
    for (int peer = 0; peer < job.size; ++peer) {
      if (peer == job.rank) continue;
      auto& sent = out[static_cast<size_t>(peer)];
      auto& got = in[static_cast<size_t>(peer)];
      sent.assign(count(round, job.rank, peer), round * 10 + job.rank);
      got.assign(count(round, peer, job.rank), -1);
      tickets.push_back(all->receive(view(got), peer, round % 3, Millis(0), nullptr));
      tickets.push_back(all->send(view(sent), peer, round % 3, Millis(0), nullptr));
    }
    for (const TicketPtr& ticket : tickets) finish(ticket);
    for (int peer = 0; peer < job.size; ++peer) {
      const auto& got = in[static_cast<size_t>(peer)];
      expect(std::count(got.begin(), got.end(), round * 10 + peer) == static_cast<long>(got.size()),
             str("wrong data from ", peer, " in round ", round));
    }
  }
  beside.join();
  other->shutdown();
  all->shutdown();
}

void measure(const Job& job) {
  auto all = job.group("all", job.everybody());
  for (const size_t count : {2ul, 16384ul, 1048576ul, 8388608ul}) {
    std::vector<int32_t> data(count, 1);
    std::vector<double> seconds;
    for (int i = 0; i < 15; ++i) {
      run(*all, [](Collectives& c) { c.barrier(); });
      const auto began = std::chrono::steady_clock::now();
      run(*all, [&](Collectives& c) { c.allReduce(view(data), {}); });
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    std::sort(seconds.begin(), seconds.end());
    if (job.rank == 0) std::printf("%zu bytes: %.1f us\n", 4 * count, 1e6 * seconds[7]);
  }
  all->shutdown();
}

// Only rank 0 comes to MPI_Init; mpirun ends the others when it gives up.
int late() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr && std::string(rank) != "0") {
      for (;;) ::pause();
    }
  }
  for (int attempt = 0; attempt < 2; ++attempt) {  // nothing is tried a second time
    const Error why = errorOf(
        [] { MpiJob::join("this test", processEnvironment(), "", Deadline::after(Millis(500))); });
    if (why.code() != ErrorCode::kTimeout) throw why;
    std::printf("given up: %s\n", why.what());
  }
  return 5;
}

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  Job job;
  job.folder = argc > 2 ? argv[2] : ".";
  try {
    if (scenario == "late") return late();
    MpiJob& mpi =
        MpiJob::join("this test", processEnvironment(), "", Deadline::after(Millis(60000)));
    job.folder += "/" + mpi.self().job;  // a fresh one each time
    job.rank = mpi.rank();
    job.size = mpi.size();
    const char* wanted = std::getenv("WANTED_VERSION");
    expect(wanted == nullptr || mpi.version().find(wanted) != std::string::npos,
           str("the library says '", mpi.version(), "', not ", wanted == nullptr ? "" : wanted));
    const std::map<std::string, std::function<void(const Job&)>> scenarios = {
        {"operations", operations},
        {"stress", stress},
        {"mismatch", mismatch},
        {"timeout", timeout},
        {"measure", measure},
        {"leave", [](const Job& it) { death(it, "leave"); }},
        {"exit", [](const Job& it) { death(it, "exit"); }},
        {"kill", [](const Job& it) { death(it, "kill"); }}};
    expect(scenarios.count(scenario) > 0, "there is no scenario '" + scenario + "'");
    scenarios.at(scenario)(job);
  } catch (const std::exception& why) {
    std::cerr << "rank " << job.rank << ": " << why.what() << std::endl;
    return 3;
  }
  return 0;
}

}  // namespace
}  // namespace taco

int main(int argc, char** argv) { return taco::main(argc, argv); }
