#include "csrc/transport/tcp_transport.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cstring>
#include <deque>
#include <random>

#include "csrc/base/format.h"
#include "tests/csrc/transport/tcp_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;
using Catch::Matchers::ContainsSubstring;
using std::chrono::nanoseconds;

// Notes what happens; takes frames into buffers of its own while `open`.
class Recorder : public Transport::Receiver {
 public:
  struct Frame {
    int peer;
    FrameHeader header;
    std::vector<char> payload;
  };
  bool open = true;
  std::deque<Frame> frames;  // a deque: payloads stay where they are
  std::vector<std::string> losses;
  int arrived = 0;

  Landing onHeader(int peer, const FrameHeader& header) override {
    if (!open) return {};
    frames.push_back({peer, header, std::vector<char>(header.bytes)});
    return {true, frames.back().payload.data()};
  }
  void onArrived(int, const FrameHeader&) override { ++arrived; }
  void onLost(int peer, const Error& why, Loss how) override {
    const char* names[] = {"left", "failed", "died"};
    losses.push_back(str(peer, " ", names[static_cast<int>(how)], ": ", why.what()));
  }
};

struct Pair {
  explicit Pair(
      int size = 2, const std::function<void(TcpConfig&)>& adapt = [](TcpConfig&) {})
      : transports(makeTransports(size, adapt)), recorders(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) transports[rank]->setReceiver(&recorders[rank]);
  }
  // Lets all ranks progress until `done` or two seconds are over.
  bool until(const std::function<bool()>& done, Millis most = Millis(2000)) {
    const Deadline deadline = Deadline::after(most);
    while (!done()) {
      if (deadline.expired()) return false;
      bool moved = false;
      for (auto& transport : transports) {
        if (transport) moved |= transport->progress(nanoseconds(0));
      }
      if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  void forAWhile(int millis) {
    until([] { return false; }, Millis(millis));
  }
  TcpTransport& operator[](int rank) { return *transports[rank]; }

  std::vector<std::unique_ptr<TcpTransport>> transports;
  std::vector<Recorder> recorders;
};

FrameHeader frameOf(size_t bytes, uint32_t step = 0) {
  FrameHeader header;
  header.kind = FrameKind::kEager;
  header.step = step;
  header.bytes = bytes;
  return header;
}

// A stranger's connection to a transport's port.
class Stranger {
 public:
  explicit Stranger(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress address = socketAddress("127.0.0.1", port);
    REQUIRE(::connect(fd_, address.get(), address.length) == 0);
  }
  ~Stranger() { ::close(fd_); }
  void say(const void* data, size_t bytes) {
    REQUIRE(::send(fd_, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
  }
  bool isClosedByPeer() {
    char byte;
    const ssize_t got = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

 private:
  int fd_;
};

uint16_t portOf(const std::string& address) { return TcpAddress::decode(address).port; }

TcpHello helloOf(int rank, int size) {
  TcpHello hello;
  hello.secret = testSecret();
  hello.channel = channelId("test/ordered");
  hello.rank = rank;
  hello.size = size;
  return hello;
}

TEST_CASE("strangers are shown the door, and nobody waits for them") {
  std::vector<std::string> addresses;
  Pair pair(2, [&](TcpConfig& config) {
    config.helloTimeout = Millis(200);
    addresses = config.addresses;
  });
  const uint16_t port = portOf(addresses[1]);

  TcpHello wrongSecret = helloOf(0, 2), otherGroup = helloOf(0, 2), impossible = helloOf(7, 2),
           self = helloOf(1, 2), otherVersion = helloOf(0, 2), otherOrder = helloOf(0, 2);
  wrongSecret.secret[15] ^= 1;
  otherGroup.channel += 1;
  otherVersion.headerBytes = 40;
  otherOrder.byteOrder = 0x04030201;
  std::string noise(1000, 'x');
  std::mt19937 random(3);
  for (char& c : noise) c = static_cast<char>(random());

  std::vector<std::unique_ptr<Stranger>> strangers;
  const auto come = [&](const void* data, size_t bytes) {
    strangers.push_back(std::make_unique<Stranger>(port));
    if (bytes > 0) strangers.back()->say(data, bytes);
  };
  for (const TcpHello& hello :
       {wrongSecret, otherGroup, impossible, self, otherVersion, otherOrder}) {
    come(&hello, sizeof hello);
  }
  come(noise.data(), noise.size());
  come("GET / HTTP/1.1\r\nHost: there\r\nUser-Agent: a scanner of ports\r\n\r\n", 63);
  const TcpHello half = helloOf(0, 2);
  come(&half, 20);           // and then says nothing more
  come(nullptr, 0);          // says nothing at all
  { Stranger brief(port); }  // comes and goes

  char sent[100] = "through all of them";
  pair[0].send(1, frameOf(sizeof sent), sent, nullptr);
  REQUIRE(pair.until([&] { return pair.recorders[1].arrived == 1; }));
  CHECK(std::string(pair.recorders[1].frames[0].payload.data()) == sent);
  CHECK(pair.until([&] {
    return std::all_of(strangers.begin(), strangers.end(),
                       [](auto& stranger) { return stranger->isClosedByPeer(); });
  }));
  CHECK(pair.recorders[1].losses.empty());
}

TEST_CASE("a second connection in the name of a rank is refused") {
  std::vector<std::string> addresses;
  Pair pair(2, [&](TcpConfig& config) { addresses = config.addresses; });
  pair[0].send(1, frameOf(0), nullptr, nullptr);
  REQUIRE(pair.until([&] { return pair.recorders[1].arrived == 1; }));
  Stranger second(portOf(addresses[1]));
  const TcpHello hello = helloOf(0, 2);
  second.say(&hello, sizeof hello);
  CHECK(pair.until([&] { return second.isClosedByPeer(); }));
  CHECK(pair.recorders[1].losses.empty());
}

TEST_CASE("many strangers at once do not use up the descriptors") {
  std::vector<std::string> addresses;
  Pair pair(2, [&](TcpConfig& config) { addresses = config.addresses; });
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(std::make_unique<Stranger>(portOf(addresses[1])));
    if (i % 50 == 0) pair.forAWhile(1);
  }
  pair.forAWhile(20);
  int closed = 0;
  for (auto& stranger : strangers) closed += stranger->isClosedByPeer();
  CHECK(closed >= 140);
  CHECK(closed < 400);
  pair[0].send(1, frameOf(0), nullptr, nullptr);
  CHECK(pair.until([&] { return pair.recorders[1].arrived == 1; }));
}

TEST_CASE("a rank that was taken for a stranger connects anew") {
  Pair pair(2, [](TcpConfig& config) { config.helloTimeout = Millis(1); });
  // Connected, but the hello is held back, as by a rank that computes for long: here its side
  // simply does not progress, and the other drops it.
  for (int i = 0; i < 5; ++i) {
    pair[0].watch(1);
    std::this_thread::sleep_for(Millis(3));
    pair[1].progress(nanoseconds(0));
  }
  pair[0].send(1, frameOf(0), nullptr, nullptr);
  CHECK(pair.until([&] { return pair.recorders[1].arrived == 1; }));
  CHECK(pair.recorders[0].losses.empty());
}

TEST_CASE("a refused frame waits, what the peer says meanwhile is heard") {
  Pair pair;
  pair.recorders[1].open = false;
  char data[1000] = {};
  std::vector<char> large(20 << 20);
  int sent = 0;
  pair[1].watch(0);
  for (int i = 0; i < 3; ++i) pair[0].send(1, frameOf(sizeof data, i), data, [&] { ++sent; });
  pair[0].send(1, frameOf(large.size(), 3), large.data(), [&] { ++sent; });
  pair.forAWhile(50);
  CHECK(pair.recorders[1].frames.empty());
  CHECK(sent == 3);
  SECTION("until it is wanted") {
    pair.recorders[1].open = true;
    pair.forAWhile(10);
    CHECK(pair.recorders[1].frames.empty());  // nobody has said resume()
    pair[1].resume(0);
    REQUIRE(pair.until([&] { return pair.recorders[1].arrived == 4; }));
    for (uint32_t i = 0; i < 4; ++i) CHECK(pair.recorders[1].frames[i].header.step == i);
    CHECK(sent == 4);
  }
  SECTION("a failure is told past it, in the middle of a frame") {
    pair[0].fail(Error(ErrorCode::kTimeout, "it took too long", 1));
    REQUIRE(pair.until([&] { return !pair.recorders[1].losses.empty(); }));
    CHECK(pair.recorders[1].losses[0] == "0 failed: rank 0 failed: it took too long");
    CHECK(sent == 3);  // and never more
  }
}

TEST_CASE("a paused stream costs no CPU, also when its peer has died") {
  const bool dies = GENERATE(false, true);
  Pair pair;
  pair.recorders[1].open = false;
  std::vector<char> large(20 << 20);
  pair[0].send(1, frameOf(large.size()), large.data(), nullptr);
  pair.forAWhile(50);
  if (dies) pair.transports[0].reset();
  int rounds = 0;
  const Deadline deadline = Deadline::after(Millis(500));
  while (!deadline.expired()) {
    pair[1].progress(Millis(100));
    ++rounds;
  }
  CHECK(rounds < 40);
}

TEST_CASE("payloads can be dropped in the middle, and left in the middle") {
  Pair pair;
  std::vector<char> large(30 << 20, 'a');
  bool sent = false;
  pair[0].send(1, frameOf(large.size()), large.data(), [&] { sent = true; });
  REQUIRE(pair.until([&] { return !pair.recorders[1].frames.empty(); }));
  SECTION("by the receiver") {
    pair[1].discardPayload(0);
    pair.recorders[1].frames[0].payload = {};
  }
  SECTION("by the sender") {
    pair[0].detachPayload(1, large.data(), large.size());
    large = {};
  }
  REQUIRE(pair.until([&] { return pair.recorders[1].arrived == 1; }));
  CHECK(sent);
  if (!pair.recorders[1].frames[0].payload.empty()) {
    CHECK((pair.recorders[1].frames[0].payload == std::vector<char>(30 << 20, 'a')));
  }
  // The stream goes on.
  char data[8] = "next";
  pair[0].sendCopy(1, frameOf(8), data);
  REQUIRE(pair.until([&] { return pair.recorders[1].arrived == 2; }));
  CHECK(std::string(pair.recorders[1].frames[1].payload.data()) == "next");
}

TEST_CASE("a goodbye comes after what was sent before it, whoever connected to whom") {
  enum Streams { kFromLeaver, kToLeaver, kBoth };
  const Streams streams = GENERATE(kFromLeaver, kToLeaver, kBoth);
  Pair pair;
  std::vector<char> data(100000, 'x');
  if (streams != kFromLeaver) pair[1].watch(0);
  pair.forAWhile(5);
  if (streams != kToLeaver) pair[0].send(1, frameOf(data.size()), data.data(), nullptr);
  std::thread other([&] {
    for (int i = 0; i < 400 && pair.recorders[1].losses.empty(); ++i) pair[1].progress(Millis(5));
  });
  pair[0].close(Millis(5000));
  other.join();
  CHECK(pair.recorders[1].arrived == (streams == kToLeaver ? 0 : 1));
  REQUIRE(pair.recorders[1].losses.size() == 1);
  CHECK_THAT(pair.recorders[1].losses[0], ContainsSubstring("0 left: rank 0 has closed its side"));
}

TEST_CASE("leaving without a goodbye is a death") {
  Pair pair;
  pair[1].watch(0);
  pair.forAWhile(5);
  pair.transports[0].reset();
  REQUIRE(pair.until([&] { return !pair.recorders[1].losses.empty(); }));
  CHECK_THAT(pair.recorders[1].losses[0], ContainsSubstring("0 died: rank 0 is gone"));
  // Only told once; and what is sent to it afterwards goes nowhere, quietly.
  bool sent = false;
  char byte = 0;
  pair[1].send(0, frameOf(1), &byte, [&] { sent = true; });
  pair.forAWhile(150);
  CHECK(pair.recorders[1].losses.size() == 1);
  CHECK(!sent);
}

TEST_CASE("a rank that never was at its address") {
  Pair pair;
  pair.transports[0].reset();
  char byte = 0;
  pair[1].send(0, frameOf(1), &byte, nullptr);
  REQUIRE(pair.until([&] { return !pair.recorders[1].losses.empty(); }));
  CHECK_THAT(pair.recorders[1].losses[0],
             ContainsSubstring("0 died: rank 0 is gone: nobody listens at its address 127.0.0.1:"));
}

TEST_CASE("news that go round do not grow") {
  Pair trio(3);
  trio[1].watch(2);
  trio[0].watch(1);
  trio.forAWhile(10);
  const Error died(ErrorCode::kPeerFailed, "rank 2 is gone", 2);
  trio[1].fail(died);
  REQUIRE(trio.until([&] { return !trio.recorders[0].losses.empty(); }));
  CHECK(trio.recorders[0].losses[0] == "1 failed: rank 2 is gone (said by rank 1)");

  FrameHeader header;
  const std::string first =
      failMessage(Error(ErrorCode::kPeerFailed, "rank 2 is gone (said by rank 1)", 2));
  std::memcpy(&header, first.data(), sizeof header);
  CHECK(failureToldBy(0, 3, header, first.substr(sizeof header)).what() ==
        std::string("rank 2 is gone (said by rank 1)"));
  const std::string endless = failMessage(Error(ErrorCode::kAborted, std::string(100000, 'x')));
  CHECK(endless.size() == sizeof(FrameHeader) + kLongestReason);
}

TEST_CASE("the counters count, and wake() wakes") {
  Pair pair;
  std::vector<char> data(1000);
  pair[0].send(1, frameOf(data.size()), data.data(), nullptr);
  REQUIRE(pair.until([&] { return pair.recorders[1].arrived == 1; }));
  CHECK(pair[0].bytesSent() == 1000 + sizeof(FrameHeader) + sizeof(TcpHello));
  CHECK(pair[1].bytesReceived() == pair[0].bytesSent());

  const auto began = Clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(Millis(50));
    pair[0].wake();
  });
  pair[0].progress(Millis(60000));
  other.join();
  CHECK(Clock::now() - began < Millis(20000));
  pair[1].wake();
  pair[1].waitReady(Millis(60000));
  CHECK(Clock::now() - began < Millis(20000));
}

TEST_CASE("without descriptors for new connections it waits until there are some") {
  Pair pair;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int next = ::dup(0);
  ::close(next);
  char byte = 1;
  pair[0].send(1, frameOf(1), &byte, nullptr);  // its own socket
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next) + 1;
  ::setrlimit(RLIMIT_NOFILE, &tight);
  pair.forAWhile(30);
  const int arrivedBefore = pair.recorders[1].arrived;
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(arrivedBefore == 0);
  CHECK(pair.until([&] { return pair.recorders[1].arrived == 1; }));
}

TEST_CASE("every descriptor is closed on exec") {
  Pair pair;
  char byte = 1;
  pair[0].send(1, frameOf(1), &byte, nullptr);
  REQUIRE(pair.until([&] { return pair.recorders[1].arrived == 1; }));
  int checked = 0;
  for (int fd = 3; fd < 64; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    if (flags < 0 || ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) continue;
    if (name.ss_family != AF_INET && name.ss_family != AF_INET6) continue;
    ++checked;
    CHECK((flags & FD_CLOEXEC) != 0);
  }
  CHECK(checked >= 4);  // two listeners, both ends of a stream
}

}  // namespace
}  // namespace taco
