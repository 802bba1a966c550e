#pragma once

// Whole groups of communicators, for ranks that are threads of this process.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/communicator/communicator.h"
#include "tests/csrc/ranks.h"

namespace taco::testing {

using Environment = std::map<std::string, std::string>;

// Who shares memory with whom.
struct Layout {
  const char* name;
  std::function<Environment(int rank, int size)> environment;
};

inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"shared memory", [](int, int) { return Environment{}; }},
      {"mesh",
       [](int, int) {
         return Environment{{"TACO_SHM", "0"}};
       }},
      {"nodes of two",
       [](int rank, int) {
         return Environment{{"TACO_NODE_ID", str(rank / 2)}};
       }},
      {"one and the others, 2D",
       [](int rank, int) {
         return Environment{{"TACO_NODE_ID", rank == 0 ? "a" : "b"}, {"LIGHT_2D_ALLREDUCE", "1"}};
       }},
      {"forced grid of two on a mesh",
       [](int, int) {
         return Environment{{"TACO_SHM", "0"}, {"LIGHT_INTRA_SIZE", "2"}};
       }},
  };
  return all;
}

class Group {
 public:
  Group(int size, const std::function<Environment(int rank, int size)>& environment,
        Millis timeout = Millis(60000))
      : ranks_(static_cast<size_t>(size)) {
    const auto store = std::make_shared<MemoryStore>();
    runRanks(size, [&](int rank) {
      CommunicatorConfig config;
      config.rank = rank;
      config.size = size;
      config.store = store;
      config.environment = environment(rank, size);
      config.environment["MASTER_ADDR"] = "127.0.0.1";
      config.timeout = timeout;
      ranks_[static_cast<size_t>(rank)] = std::make_unique<Communicator>(config);
    });
  }
  explicit Group(int size, Millis timeout = Millis(60000))
      : Group(size, layouts()[0].environment, timeout) {}

  Communicator& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  void destroy(int rank) { ranks_[static_cast<size_t>(rank)].reset(); }
  int size() const { return static_cast<int>(ranks_.size()); }

  ~Group() {
    tryRanks(size(), [&](int rank) { destroy(rank); });
  }

 private:
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

using Body = std::function<void(Collectives&)>;

// Communicator::run() or submit(): the caller's thread, or the lane's.
enum class Mode { kSync, kAsync };

// Both ways with a ticket; that of run() is done.
inline TicketPtr issue(Communicator& rank, Mode mode, Millis timeout, const Body& body) {
  if (mode == Mode::kAsync) return rank.submit(timeout, body);
  const TicketPtr ticket = std::make_shared<Ticket>();
  const auto why = rank.run(timeout, body);
  why ? ticket->fail(*why) : ticket->complete();
  return ticket;
}

// Issues, waits, and throws the ticket's error.
inline void runOn(Communicator& rank, const Body& body, Millis timeout = Millis(0),
                  Mode mode = Mode::kSync) {
  const TicketPtr ticket = issue(rank, mode, timeout, body);
  expect(ticket->wait(Deadline::after(Millis(90000))), "an operation never ended");
  if (const auto error = ticket->error()) throw *error;
}

template <typename T>
Buffer view(std::vector<T>& data, DType dtype) {
  return {data.data(), data.size(), dtype};
}
inline Buffer view(std::vector<int32_t>& data) { return view(data, DType::kInt32); }
inline Buffer view(std::vector<float>& data) { return view(data, DType::kFloat32); }

inline void allReduceOnes(Collectives& c, size_t count = 100) {
  std::vector<float> data(count, 1.0f);
  c.allReduce(view(data), {});
  for (const float one : data) {
    // The text is made only where it is needed: millions of elements pass here.
    if (one != static_cast<float>(c.size())) throw std::runtime_error(str("wrong: ", one));
  }
}

}  // namespace taco::testing
