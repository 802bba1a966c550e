// What comes over TCP, and what peers publish of themselves. Meant to run under the sanitizers too.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "csrc/transport/mesh.h"
#include "tests/csrc/fuzzing.h"
#include "tests/csrc/transport/tcp_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

template <typename T>
std::string bytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST_CASE("fuzz: published addresses") {
  Fuzz fuzz("published addresses", 20000);
  const std::vector<std::string> seeds = {"10.0.0.7:4567 boot/4/5", "[fd00::7]:1 ", "::1:80 x"};
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    try {
      const TcpAddress address = TcpAddress::decode(fuzz.mutated(fuzz.oneOf(seeds)));
      const TcpAddress again = TcpAddress::decode(address.encode());
      if (again.host != address.host || again.port != address.port) FAIL("case " << i);
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(accepted > 0);
  CHECK(refused > 0);
}

TEST_CASE("fuzz: hellos") {
  Fuzz fuzz("hellos", 20000);
  TcpHello ours;
  ours.secret = testSecret();
  ours.channel = channelId("test");
  ours.rank = 0;
  ours.size = 4;
  int entered = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    TcpHello theirs = ours;
    theirs.rank = static_cast<int32_t>(fuzz.chance(50) ? fuzz.below(4) : fuzz.number());
    std::string bytes = bytesOf(theirs);
    if (fuzz.chance(70)) bytes = fuzz.mutated(bytes);
    bytes.resize(sizeof theirs);
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    if (!refusal(theirs, ours).empty()) continue;
    ++entered;
    const bool known = theirs.secret == ours.secret && theirs.channel == ours.channel &&
                       theirs.size == 4 && theirs.rank > 0 && theirs.rank < 4;
    if (!known) FAIL("seed " << fuzz.seed() << ", case " << i << ": a stranger enters");
  }
  CHECK(entered > 0);
}

// Lets frames land in memory of exactly their size, up to a bound.
class Landings : public Transport::Receiver {
 public:
  explicit Landings(Fuzz& fuzz) : fuzz_(fuzz) {}
  Landing onHeader(int, const FrameHeader& header) override {
    ++headers;
    memory_.reset();
    if (header.bytes > 5000) return {.nonsense = true};
    if (fuzz_.chance(5)) return {true, nullptr};
    memory_.reset(new char[header.bytes]);
    return {true, memory_.get()};
  }
  void onArrived(int, const FrameHeader& header) override {
    ++arrived;
    uint64_t sum = 0;  // reads what has landed, all of it
    if (memory_) {
      for (uint64_t i = 0; i < header.bytes; ++i) sum += static_cast<unsigned char>(memory_[i]);
    }
    total += sum;
    memory_.reset();
  }
  void onLost(int, const Error&, Loss) override {}

  int headers = 0;
  int arrived = 0;
  uint64_t total = 0;

 private:
  Fuzz& fuzz_;
  std::unique_ptr<char[]> memory_;
};

std::string someFrames(Fuzz& fuzz) {
  std::string stream;
  for (size_t n = 1 + fuzz.below(6); n > 0; --n) {
    FrameHeader header;
    header.kind = static_cast<FrameKind>(1 + fuzz.below(9));
    header.bytes = header.kind == FrameKind::kGoodbye ? 0 : fuzz.below(3000);
    header.p2p = {static_cast<int64_t>(fuzz.number()), fuzz.number(), fuzz.number(), fuzz.number()};
    stream += bytesOf(header) + fuzz.bytes(header.bytes);
  }
  return stream;
}

TEST_CASE("fuzz: streams of frames") {
  Fuzz fuzz("streams of frames", 3000);
  int ends = 0;
  Landings landings(fuzz);
  for (int i = 0; i < fuzz.cases(); ++i) {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    FileDescriptor there(pair[1]);
    TcpCounters counters;
    TcpIncoming incoming(1, 0, counters);
    incoming.adopt(FileDescriptor(pair[0]));
    std::string stream = someFrames(fuzz);
    if (fuzz.chance(80)) stream = fuzz.mutated(stream);
    // In one go or in pieces.
    for (size_t at = 0; at < stream.size() && incoming.isLive();) {
      const size_t most = fuzz.chance(50) ? stream.size() : 1 + fuzz.below(200);
      const ssize_t wrote =
          ::send(there.get(), stream.data() + at, std::min(most, stream.size() - at), MSG_NOSIGNAL);
      if (wrote <= 0) break;
      at += static_cast<size_t>(wrote);
      incoming.markReadable(false);
      incoming.read(landings, 1 << 20);
      if (fuzz.chance(5)) incoming.discardPayload();
    }
    there.close();
    incoming.markReadable(true);
    incoming.read(landings, 1 << 20);
    if (incoming.isLive()) FAIL("seed " << fuzz.seed() << ", case " << i << ": it never ends");
    ends += incoming.end() == StreamEnd::kCut ? 1 : 0;
  }
  CHECK(ends > 0);
  CHECK(landings.arrived > 0);
  CHECK(landings.headers > landings.arrived);
}

// A rank of a group that nobody but this test's strangers connects to.
struct Door {
  Door() : listener(loopbackListener()) {
    const std::string address = listener->address();
    port = listener->where().port;
    TcpConfig config = tcpConfig(0, {address, address, address});
    config.helloTimeout = Millis(150);
    transport = std::make_unique<TcpTransport>(std::move(config), std::move(listener));
    mesh = std::make_unique<Mesh>(std::move(transport), abort);
  }
  TcpHello hello(int rank) const {
    TcpHello it;
    it.secret = testSecret();
    it.channel = channelId("test/ordered");
    it.rank = rank;
    it.size = 3;
    return it;
  }
  FileDescriptor knock() const {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress address = socketAddress("127.0.0.1", port);
    REQUIRE(::connect(socket.get(), address.get(), address.length) == 0);
    return socket;
  }
  std::unique_ptr<TcpListener> listener;
  uint16_t port = 0;
  std::unique_ptr<TcpTransport> transport;
  AbortSignal abort;
  std::unique_ptr<Mesh> mesh;
};

void say(const FileDescriptor& socket, const std::string& text) {
  // The other side may have closed it already.
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::send(socket.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (wrote <= 0) return;
    at += static_cast<size_t>(wrote);
  }
}

bool isClosed(const FileDescriptor& socket) {
  char byte;
  const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

TEST_CASE("fuzz: strangers at the port of a rank, and members that talk nonsense") {
  Fuzz fuzz("strangers", 150);
  int failures = 0;
  int quiet = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    Door door;
    std::vector<FileDescriptor> sockets;
    for (size_t n = 1 + fuzz.below(3); n > 0; --n) {
      sockets.push_back(door.knock());
      const bool member = fuzz.chance(50);
      std::string words = bytesOf(door.hello(1 + static_cast<int>(fuzz.below(2))));
      if (!member) words = fuzz.mutated(words);
      words += fuzz.chance(50) ? fuzz.mutated(someFrames(fuzz)) : someFrames(fuzz);
      say(sockets.back(), words);
      if (fuzz.chance(50)) sockets.back().close();
    }
    Call call;
    call.sequence = 1;
    call.op = OpKind::kAllReduce;
    call.count = 25;
    std::unique_ptr<char[]> memory(new char[100]);
    Transfer transfer;
    try {
      door.mesh->receive(1, call, 0, memory.get(), 100, transfer);
      door.mesh->wait(transfer, call, Deadline::after(Millis(5)), nullptr);
      FAIL("seed " << fuzz.seed() << ", case " << i << ": noise is taken for data");
    } catch (const Error& error) {
      ++(error.code() == ErrorCode::kTimeout ? quiet : failures);
    }
  }
  CHECK(failures > 0);
  CHECK(quiet > 0);
}

TEST_CASE("fuzz: what answers at the address of a peer") {
  Fuzz fuzz("answers", 100);
  int refused = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    const auto impostor = loopbackListener();
    auto own = loopbackListener();
    const std::string address = own->address();
    TcpConfig config = tcpConfig(0, {address, impostor->address()});
    AbortSignal abort;
    Mesh mesh(std::make_unique<TcpTransport>(std::move(config), std::move(own)), abort);
    Call call;
    call.sequence = 1;
    std::vector<char> payload(1000);
    Transfer transfer;
    mesh.send(1, call, 0, payload.data(), payload.size(), transfer);
    FileDescriptor there(::accept4(impostor->fd(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(there);
    std::string words = goodbyeMessage(0);
    if (fuzz.chance(60)) {
      words = failMessage(Error(static_cast<ErrorCode>(fuzz.below(20)),
                                fuzz.bytes(fuzz.below(5000)), static_cast<int>(fuzz.number())));
    }
    if (fuzz.chance(80)) words = fuzz.mutated(words);
    FrameHeader header;
    if (words.size() >= sizeof header) {
      std::memcpy(&header, words.data(), sizeof header);
      // A goodbye that announces frames is waited for, two seconds: not in every case.
      if (header.kind == FrameKind::kGoodbye) header.p2p.size = 0;
      std::memcpy(words.data(), &header, sizeof header);
    }
    say(there, words);
    there.close();
    uint64_t answer = 0;
    Transfer receives;
    try {
      mesh.receive(1, call, 0, &answer, sizeof answer, receives);
      mesh.wait(receives, call, Deadline::after(Millis(20000)), nullptr);
      FAIL("seed " << fuzz.seed() << ", case " << i << ": an answer out of nothing");
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused == fuzz.cases());
}

TEST_CASE(
    "strangers: who has not the secret is closed out, who is silent too, and ranks still meet") {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    listeners.push_back(loopbackListener());
    addresses.push_back(listeners.back()->address());
  }
  const uint16_t port = listeners[0]->where().port;
  const auto knock = [&] {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress address = socketAddress("127.0.0.1", port);
    REQUIRE(::connect(socket.get(), address.get(), address.length) == 0);
    return socket;
  };
  // Silent ones and slow ones come first, more than a rank keeps.
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(knock());
    if (i % 2 == 0) say(silent.back(), "T");
  }
  FileDescriptor guesser = knock();
  TcpHello hello;
  hello.channel = channelId("test/ordered");
  hello.rank = 1;
  hello.size = 2;
  hello.secret = testSecret();
  hello.secret.back() ^= 1;
  say(guesser, bytesOf(hello));

  TcpConfig config = tcpConfig(0, addresses);
  config.helloTimeout = Millis(200);
  AbortSignal abort;
  Mesh zero(std::make_unique<TcpTransport>(std::move(config), std::move(listeners[0])), abort);
  Mesh one(std::make_unique<TcpTransport>(tcpConfig(1, addresses), std::move(listeners[1])), abort);
  Call call;
  call.sequence = 1;
  call.count = 8;
  uint64_t word = 42;
  uint64_t got = 0;
  runThreads(2, [&](int rank) {
    Transfer transfer;
    const Deadline deadline = Deadline::after(Millis(30000));
    if (rank == 1) {
      one.send(0, call, 0, &word, sizeof word, transfer);
      one.wait(transfer, call, deadline, nullptr);
    } else {
      zero.receive(1, call, 0, &got, sizeof got, transfer);
      zero.wait(transfer, call, deadline, nullptr);
    }
  });
  CHECK(got == 42);
  CHECK(isClosed(guesser));
  const Deadline deadline = Deadline::after(Millis(20000));
  const auto allClosed = [&] {
    for (const FileDescriptor& socket : silent) {
      if (!isClosed(socket)) return false;
    }
    return true;
  };
  while (!allClosed() && !deadline.expired()) {
    zero.poll();
    std::this_thread::sleep_for(Millis(10));
  }
  CHECK(allClosed());
}

TEST_CASE("strangers: a rank that was told its interface listens there only") {
  const TcpListener everywhere("", "127.0.0.1");
  const TcpListener onlyLoopback("lo", "");
  CHECK(onlyLoopback.where().host == "127.0.0.1");
  CHECK(onlyLoopback.where().networkId.empty());  // so that neighbours come to this very address
  const auto boundTo = [](int fd) {
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) == 0);
    return bound;
  };
  const sockaddr_storage one = boundTo(onlyLoopback.fd());
  REQUIRE(one.ss_family == AF_INET);
  CHECK(reinterpret_cast<const sockaddr_in&>(one).sin_addr.s_addr == htonl(INADDR_LOOPBACK));
  const sockaddr_storage any = boundTo(everywhere.fd());
  const bool isAny =
      any.ss_family == AF_INET6
          ? IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(any).sin6_addr)
          : reinterpret_cast<const sockaddr_in&>(any).sin_addr.s_addr == htonl(INADDR_ANY);
  CHECK(isAny);
}

}  // namespace
}  // namespace taco
