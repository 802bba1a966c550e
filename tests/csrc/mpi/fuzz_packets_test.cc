// Packets of MPI that no rank of ours would send, and addresses that none would publish. Meant to
// run under the sanitizers too.
#include <cstring>

#include "csrc/mpi/mpi_address.h"
#include "csrc/mpi/mpi_packet.h"
#include "tests/csrc/fuzzing.h"
#include "tests/csrc/mpi/mpi_ranks.h"

namespace taco {
namespace {

using namespace taco::testing;

TEST_CASE("fuzz: addresses of the MPI transport") {
  Fuzz fuzz("MPI addresses", 20000);
  MpiAddress whole;
  whole.job = "job";
  whole.worldRank = 3;
  whole.machine = "boot/1";
  whole.pid = 77;
  whole.started = "12345";
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < fuzz.cases(); ++i) {
    try {
      if (MpiAddress::decode(fuzz.mutated(whole.encode())).worldRank < 0) FAIL("case " << i);
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(accepted > 0);
  CHECK(refused > 0);
}

// What rank 1 really sends to rank 0, packet by packet.
std::vector<std::string> truePackets() {
  FakeMpiWorld world(2);
  const auto reader = world.api(0);
  const auto writer = world.api(1);
  MpiPort port(*writer);
  MpiTransport transport(configOf(1, 2), port);
  Taker taker;
  transport.setReceiver(&taker);
  std::vector<char> payload = pattern(3000, 1);
  for (const uint64_t bytes : {0, 10, 3000})
    transport.send(0, frame(bytes), payload.data(), nullptr);
  transport.watch(0);
  std::vector<std::string> packets;
  std::vector<char> memory(kPacketBytes);
  const Deadline deadline = Deadline::after(Millis(20000));
  while (packets.size() < 2 && !deadline.expired()) {
    transport.progress(kNoWait);
    MpiRequest request = reader->receive(memory.data(), memory.size());
    for (int i = 0; i < 100; ++i) {
      const MpiArrival arrival = reader->test(request);
      if (!request.pending) {
        packets.emplace_back(memory.data(), arrival.bytes);
        break;
      }
      transport.progress(kNoWait);
    }
    if (request.pending) {
      reader->cancelReceive(request);
      break;
    }
  }
  port.stop();
  return packets;
}

// Lets payloads land in memory of exactly their size, up to a bound.
struct Landings : Transport::Receiver {
  explicit Landings(Fuzz& theFuzz) : fuzz(theFuzz) {}
  Landing onHeader(int, const FrameHeader& header) override {
    if (header.bytes > 5000) return {.nonsense = true};
    memory.reset(new char[header.bytes]);
    return {true, fuzz.chance(90) ? memory.get() : nullptr};
  }
  void onArrived(int, const FrameHeader&) override {
    memory.reset();
    ++arrived;
  }
  void onLost(int, const Error&, Loss) override { ++lost; }
  Fuzz& fuzz;
  std::unique_ptr<char[]> memory;
  int arrived = 0;
  int lost = 0;
};

TEST_CASE("fuzz: packets of MPI") {
  const std::vector<std::string> packets = truePackets();
  REQUIRE_FALSE(packets.empty());
  Fuzz fuzz("MPI packets", 500);
  Landings landings(fuzz);
  for (int i = 0; i < fuzz.cases(); ++i) {
    FakeMpiWorld world(2);
    const auto reader = world.api(0);
    const auto liar = world.api(1);
    MpiPort port(*reader);
    MpiTransport transport(configOf(0, 2), port);
    transport.setReceiver(&landings);
    for (size_t n = 1 + fuzz.below(5); n > 0; --n) {
      std::string packet = fuzz.oneOf(packets);
      // Mostly behind the channel, which no stranger can guess.
      if (fuzz.chance(80)) {
        packet = packet.substr(0, sizeof(uint64_t)) + fuzz.mutated(packet.substr(sizeof(uint64_t)));
      }
      if (fuzz.chance(20)) {
        PacketHeader header;
        if (packet.size() < sizeof header) packet.resize(sizeof header);
        std::memcpy(&header, packet.data(), sizeof header);
        header.kind = static_cast<PacketKind>(fuzz.below(8));
        header.rank = fuzz.chance(90) ? 1 : static_cast<int32_t>(fuzz.number());
        header.credit = fuzz.number();
        std::memcpy(packet.data(), &header, sizeof header);
      }
      packet.resize(std::min(packet.size(), kPacketBytes));  // what MPI itself would truncate
      liar->send(packet.data(), packet.size(), 0);
      transport.progress(kNoWait);
    }
    for (int round = 0; round < 5; ++round) transport.progress(kNoWait);
    transport.fail(Error(ErrorCode::kAborted, "the end"));
    port.stop();
  }
  CHECK(landings.arrived > 0);
  CHECK(landings.lost > 0);
}

}  // namespace
}  // namespace taco
