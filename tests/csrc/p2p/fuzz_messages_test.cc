// A peer that has the secret and sends whatever it likes: every operation ends, and no byte is
// written or read beside the memory that was named. Meant to run under the sanitizers, which see
// the latter.
#include <cstring>
#include <deque>
#include <map>
#include <memory>

#include "csrc/p2p/messenger.h"
#include "tests/csrc/catch.h"
#include "tests/csrc/fuzzing.h"

namespace taco {
namespace {

using namespace taco::testing;

constexpr int kRanks = 3;
constexpr size_t kLargest = 200;  // bytes of an arriving payload that are really written

// Lets the test say what arrives. Frames that are sent stay until the test lets them go.
class ScriptedTransport : public Transport {
 public:
  const char* kind() const override { return "scripted"; }
  int rank() const override { return 0; }
  int size() const override { return kRanks; }
  void setReceiver(Receiver* receiver) override { receiver_ = receiver; }
  void send(int peer, const FrameHeader& header, const void* payload,
            std::function<void()> onSent) override {
    sent.push_back({peer, header, static_cast<const char*>(payload), nullptr, std::move(onSent)});
  }
  void sendCopy(int peer, const FrameHeader& header, const void* payload) override {
    sent.push_back({peer, header, static_cast<const char*>(payload), nullptr, nullptr});
    detach(sent.back());
    if (header.kind == FrameKind::kRequestToSend) asked[peer].push_back(header.p2p.id);
  }
  void watch(int) override {}
  void resume(int) override {}
  void discardPayload(int peer) override { landing_[peer] = nullptr; }
  void detachPayload(int peer, const void* data, size_t bytes) override {
    const char* const begin = static_cast<const char*>(data);
    for (Sent& one : sent) {
      if (one.peer == peer && one.payload >= begin && one.payload < begin + bytes) detach(one);
    }
  }
  bool progress(std::chrono::nanoseconds) override { return false; }
  void waitReady(std::chrono::nanoseconds) override {}
  void wake() override {}
  void fail(const Error&) override {}
  void close(std::chrono::milliseconds) override {}
  uint64_t bytesSent() const override { return 0; }
  uint64_t bytesReceived() const override { return 0; }

  // A frame from `peer`; between its header and its end `meanwhile` happens. False: the peer is cut
  // off for it.
  template <typename Meanwhile>
  bool arrive(int peer, const FrameHeader& header, const Meanwhile& meanwhile) {
    const Receiver::Landing landing = receiver_->onHeader(peer, header);
    if (landing.nonsense) return false;
    landing_[peer] = static_cast<char*>(landing.data);
    landed = landing.data != nullptr;
    // The first and the last bytes of the payload: both must be inside.
    const uint64_t half = std::min<uint64_t>(header.bytes, kLargest);
    if (landing_[peer]) std::memset(landing_[peer], 1, half);
    meanwhile();
    if (landing_[peer]) std::memset(landing_[peer] + (header.bytes - half), 2, half);
    landing_[peer] = nullptr;
    receiver_->onArrived(peer, header);
    return true;
  }
  void lose(int peer) {
    sent.erase(
        std::remove_if(sent.begin(), sent.end(), [&](auto& one) { return one.peer == peer; }),
        sent.end());
    receiver_->onLost(peer, Error(ErrorCode::kPeerFailed, "it talks nonsense", peer),
                      Receiver::Loss::kDied);
  }
  // The kernel takes the oldest frame: its payload is read now.
  void takeOne() {
    if (sent.empty()) return;
    const Sent one = std::move(sent.front());
    sent.pop_front();
    uint64_t sum = 0;
    // Some bytes of each page, and the last: the sanitizers need no more.
    for (uint64_t i = 0; i < one.header.bytes; i += 500) {
      sum += static_cast<unsigned char>(one.payload[i]);
    }
    if (one.header.bytes > 0) sum += static_cast<unsigned char>(one.payload[one.header.bytes - 1]);
    read += sum;
    if (one.onSent) one.onSent();
  }

  struct Sent {
    int peer;
    FrameHeader header;
    const char* payload;
    std::shared_ptr<char[]> own;
    std::function<void()> onSent;
  };
  std::deque<Sent> sent;
  std::map<int, std::vector<uint64_t>> asked;  // by peer: the numbers of requests to send
  bool landed = false;                         // did the last payload that arrived go anywhere
  uint64_t read = 0;

 private:
  static void detach(Sent& one) {
    if (one.own || one.header.bytes == 0) return;
    one.own.reset(new char[one.header.bytes]);
    std::memcpy(one.own.get(), one.payload, one.header.bytes);
    one.payload = one.own.get();
  }

  Receiver* receiver_ = nullptr;
  std::map<int, char*> landing_;
};

const std::vector<FrameKind> kKinds = {FrameKind::kEager,       FrameKind::kRequestToSend,
                                       FrameKind::kClearToSend, FrameKind::kRendezvousData,
                                       FrameKind::kWithdraw,    FrameKind::kCredit,
                                       FrameKind::kCollective};

class Session {
 public:
  explicit Session(Fuzz& fuzz) : fuzz_(fuzz), messenger_(transport_, "fuzzed") {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      tell();
    }
    for (int peer = 1; peer < kRanks; ++peer) lose(peer);
    messenger_.fail(Error(ErrorCode::kAborted, "the end"));
    tell();
  }

  int completed = 0;
  int failed = 0;
  int cut = 0;
  int open() const { return started_ - completed - failed; }

 private:
  void step() {
    switch (fuzz_.below(6)) {
      case 0:
        return post(true);
      case 1:
        return post(false);
      case 2:
        return take();
      default:
        return frame();
    }
  }

  void take() {
    for (size_t frames = fuzz_.below(10); frames > 0; --frames) transport_.takeOne();
  }

  void post(bool sends) {
    static const std::vector<size_t> kSmall = {0, 1, 64, 1000};
    // Eager; in one piece; in two.
    const size_t bytes = fuzz_.chance(70)   ? fuzz_.oneOf(kSmall)
                         : fuzz_.chance(85) ? Messenger::kEagerBytes + 1
                                            : Messenger::kPieceBytes + 1000;
    // Its own piece of memory, of exactly that size.
    const std::shared_ptr<char[]> memory(new char[bytes]);
    if (bytes > 0) memory[0] = memory[bytes - 1] = 0;
    ++started_;
    const int64_t tag = static_cast<int64_t>(fuzz_.below(2));
    const Deadline deadline = Deadline::after(Millis(fuzz_.chance(50) ? 1 : 100000));
    const auto prepare = [&](auto operation, int peer) {
      operation->peer = peer;
      operation->tag = tag;
      operation->data = memory.get();
      operation->bytes = bytes;
      operation->deadline = deadline;
      operation->keepAlive = memory;
      return operation;
    };
    const int peer = static_cast<int>(fuzz_.below(kRanks));
    if (sends) {
      messenger_.send(prepare(std::make_shared<SendOperation>(), peer));
    } else {
      messenger_.receive(
          prepare(std::make_shared<ReceiveOperation>(), fuzz_.chance(30) ? kAnySource : peer));
    }
  }

  void frame() {
    const int peer = 1 + static_cast<int>(fuzz_.below(kRanks - 1));
    if (lost_[peer]) return;
    FrameHeader header;
    header.kind = fuzz_.chance(95) ? fuzz_.oneOf(kKinds) : static_cast<FrameKind>(fuzz_.number());
    header.p2p.tag = static_cast<int64_t>(fuzz_.below(2));
    header.p2p.id = fuzz_.chance(90) ? 1 + fuzz_.below(3) : fuzz_.number();
    header.p2p.size = size();
    header.p2p.extra = fuzz_.chance(80) ? fuzz_.below(4) : size();
    const bool carries =
        header.kind == FrameKind::kEager || header.kind == FrameKind::kRendezvousData;
    header.bytes = carries || fuzz_.chance(2) ? size() : 0;
    // Too large a one ends the stream: now and then only.
    if (header.kind == FrameKind::kEager && fuzz_.chance(95)) header.bytes %= 1001;
    // Often what a rank of ours would say next: an answer to what was asked, the piece that follows.
    if (header.kind == FrameKind::kClearToSend && !transport_.asked[peer].empty() &&
        fuzz_.chance(80)) {
      header.p2p.id = fuzz_.oneOf(transport_.asked[peer]);
      if (fuzz_.chance(70)) header.p2p.extra = 0;
    }
    uint64_t& arrived = arrived_[{peer, header.p2p.id}];
    if (header.kind == FrameKind::kRendezvousData && fuzz_.chance(80)) header.p2p.extra = arrived;
    if (!transport_.arrive(peer, header, [&] {
          if (fuzz_.chance(30)) messenger_.tend();  // somebody's deadline passes in the middle
          tell();
        })) {
      ++cut;
      lose(peer);
    } else if (header.kind == FrameKind::kRendezvousData && transport_.landed) {
      arrived += header.bytes;
    }
  }

  uint64_t size() {
    static const std::vector<uint64_t> kLikely = {
        0, 1, 64, 1000, 1000, Messenger::kEagerBytes, Messenger::kPieceBytes};
    return fuzz_.chance(85) ? fuzz_.oneOf(kLikely) : fuzz_.number();
  }

  void lose(int peer) {
    if (std::exchange(lost_[peer], true)) return;
    transport_.lose(peer);
  }

  void tell() {
    for (Messenger::Finished& one : messenger_.takeFinished()) {
      ++(one.why ? failed : completed);
      one.tell();
    }
  }

  Fuzz& fuzz_;
  ScriptedTransport transport_;
  Messenger messenger_;
  std::map<int, bool> lost_;
  std::map<std::pair<int, uint64_t>, uint64_t> arrived_;  // by peer and number: bytes
  int started_ = 0;
};

TEST_CASE("fuzz: messages from a member that lies") {
  Fuzz fuzz("messages", 1200);
  int completed = 0;
  int failed = 0;
  int cut = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    Session session(fuzz);
    session.run(100);
    if (session.open() != 0) {
      FAIL("seed " << fuzz.seed() << ", case " << i << ": " << session.open() << " never ended");
    }
    completed += session.completed;
    failed += session.failed;
    cut += session.cut;
  }
  CHECK(completed > 0);
  CHECK(failed > 0);
  CHECK(cut > 0);
}

TEST_CASE("messages: nobody fills this rank's memory") {
  ScriptedTransport transport;
  Messenger messenger(transport, "test");
  FrameHeader header;
  header.kind = FrameKind::kEager;
  header.bytes = 1ull << 40;
  CHECK_FALSE(transport.arrive(1, header, [] {}));
  header.bytes = Messenger::kEagerBytes;
  size_t taken = 0;
  while (taken <= Messenger::kCreditBytes && transport.arrive(2, header, [] {})) {
    taken += header.bytes;
  }
  CHECK(taken > Messenger::kCreditBytes / 2);
  CHECK(taken <= Messenger::kCreditBytes);
}

TEST_CASE("messages: a second message under the number of a first is refused") {
  ScriptedTransport transport;
  Messenger messenger(transport, "test");
  const auto receive = [&](size_t bytes) {
    auto operation = std::make_shared<ReceiveOperation>();
    const std::shared_ptr<char[]> memory(new char[bytes]());
    operation->peer = 1;
    operation->data = memory.get();
    operation->bytes = bytes;
    operation->keepAlive = memory;
    messenger.receive(operation);
    return operation->ticket;
  };
  FrameHeader request;
  request.kind = FrameKind::kRequestToSend;
  request.p2p = {0, 7, 1000, 0};
  const TicketPtr large = receive(1000);
  REQUIRE(transport.arrive(1, request, [] {}));
  FrameHeader piece;
  piece.kind = FrameKind::kRendezvousData;
  piece.p2p = {0, 7, 1000, 0};
  piece.bytes = 500;
  REQUIRE(transport.arrive(1, piece, [] {}));
  const TicketPtr small = receive(100);
  request.p2p.size = 100;
  REQUIRE(transport.arrive(1, request, [] {}));
  for (Messenger::Finished& one : messenger.takeFinished()) one.tell();
  REQUIRE(small->error().has_value());
  CHECK(std::string(small->error()->what()).find("under one number") != std::string::npos);
  piece.p2p.extra = 500;
  REQUIRE(transport.arrive(1, piece, [] {}));
  for (Messenger::Finished& one : messenger.takeFinished()) one.tell();
  CHECK(large->isDone());
  CHECK_FALSE(large->error().has_value());
}

}  // namespace
}  // namespace taco
