#include "csrc/transport/tcp_wire.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include "csrc/base/format.h"

namespace taco {
namespace {

std::string message(FrameHeader header, const std::string& text) {
  header.bytes = text.size();
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes + text;
}

// Takes as long wherever the first difference is.
bool isSame(const TcpSecret& a, const TcpSecret& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

uint64_t channelId(const std::string& group) {
  uint64_t hash = 0;
  for (const char c : group) hash = mixHash(hash, static_cast<unsigned char>(c));
  return hash;
}

std::string refusal(const TcpHello& hello, const TcpHello& expected) {
  if (std::memcmp(hello.magic, expected.magic, sizeof hello.magic) != 0) return "not a TACO rank";
  if (hello.byteOrder != expected.byteOrder) return "a machine of another byte order";
  if (hello.version != expected.version || hello.headerBytes != expected.headerBytes) {
    return "another version of TACO";
  }
  if (!isSame(hello.secret, expected.secret)) return "a rank of another job (wrong secret)";
  if (hello.channel != expected.channel || hello.size != expected.size) {
    return "a rank of another group";
  }
  if (hello.rank < 0 || hello.rank >= expected.size || hello.rank == expected.rank) {
    return str("an impossible rank, ", hello.rank);
  }
  return "";
}

std::string failMessage(const Error& why) {
  FrameHeader header;
  header.kind = FrameKind::kFail;
  header.p2p.tag = static_cast<int64_t>(why.code());
  header.p2p.id = static_cast<uint64_t>(static_cast<int64_t>(why.rank()) + 1);  // 0: nobody
  return message(header, std::string(why.what()).substr(0, kLongestReason));
}

std::string goodbyeMessage(uint64_t framesSent) {
  FrameHeader header;
  header.kind = FrameKind::kGoodbye;
  header.p2p.size = framesSent;
  return message(header, "");
}

Error failureToldBy(int peer, int self, const FrameHeader& header, const std::string& reason) {
  // Whatever the peer says is a rank, or nobody.
  const int64_t atFault =
      header.p2p.id <= INT32_MAX ? static_cast<int64_t>(header.p2p.id) - 1 : -1;
  const bool hearsay = header.p2p.tag == static_cast<int64_t>(ErrorCode::kPeerFailed) &&
                       atFault >= 0 && atFault != peer && atFault != self;
  if (!hearsay) return Error(ErrorCode::kPeerFailed, str("rank ", peer, " failed: ", reason), peer);
  // Passed on as it is, so that news that goes round does not grow a prefix at every rank.
  const char* mark = " (said by rank ";
  const bool marked = reason.find(mark) != std::string::npos;
  return Error(ErrorCode::kPeerFailed, marked ? reason : str(reason, mark, peer, ")"),
               static_cast<int>(atFault));
}

std::string goneBecause(int errnoValue) {
  const std::string text = std::generic_category().message(errnoValue);
  if (errnoValue == ETIMEDOUT || errnoValue == EHOSTUNREACH || errnoValue == ENETUNREACH) {
    return str("is gone: its machine has stopped or the network to it is broken (", text, ")");
  }
  return str("is gone: it closed the connection to this rank without a goodbye (", text,
             "), its process has probably died");
}

}  // namespace taco
