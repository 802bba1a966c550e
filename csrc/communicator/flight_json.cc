#include "csrc/communicator/flight_json.h"

#include <cinttypes>
#include <cstdio>
#include <string_view>

#include "csrc/base/format.h"

namespace taco {
namespace {

// Is `text` UTF-8? Error texts carry what peers have said, which may be anything.
bool isUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || i + length > text.size()) return false;
    uint32_t code = first & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

std::string quoted(std::string_view text) {
  const bool whole = isUtf8(text);
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      json += escape;
    } else if (byte >= 0x80 && !whole) {
      json += '?';
    } else {
      json += c;
    }
  }
  return json + "\"";
}

std::string seconds(std::chrono::nanoseconds sinceEpoch) {
  const int64_t micros = std::chrono::duration_cast<std::chrono::microseconds>(sinceEpoch).count();
  char text[40];
  std::snprintf(text, sizeof text, "%" PRId64 ".%06" PRId64, micros / 1000000, micros % 1000000);
  return text;
}

// Two fields: the moment by the wall clock, and by the monotonic one; null while it has not come.
std::string moment(const char* name, Clock::time_point at, const FlightDump& dump) {
  if (at == Clock::time_point{}) {
    return str("\"", name, "\": null, \"", name, "_monotonic\": null");
  }
  const auto wall = dump.wall.time_since_epoch() - (dump.now - at);
  return str("\"", name, "\": ", seconds(wall), ", \"", name,
             "_monotonic\": ", seconds(at.time_since_epoch()));
}

std::string groupJson(const FlightGroups::Listed& listed, const FlightDump& dump) {
  const FlightGroup& group = *listed.group;
  std::string globalRanks;
  for (const int rank : group.globalRanks)
    globalRanks += str(globalRanks.empty() ? "" : ", ", rank);
  std::string failure = "null";
  if (listed.end && listed.end->failure) failure = quoted(*listed.end->failure);
  return str("{\"number\": ", group.number, ", \"id\": ", quoted(group.id),
             ", \"name\": ", quoted(group.name), ", \"rank\": ", group.rank,
             ", \"size\": ", group.size, ", \"global_ranks\": [", globalRanks,
             "], \"begun\": ", group.begun.load(), ", \"completed\": ", group.completed.load(),
             ", \"messages\": ", group.messages.load(), ", ", moment("made", group.made, dump),
             ", ", moment("ended", listed.end ? listed.end->at : Clock::time_point{}, dump),
             ", \"failure\": ", failure, "}");
}

const char* opName(const FlightOperation& one) {
  switch (one.kind) {
    case FlightKind::kCollective:
      return name(one.call.op);
    case FlightKind::kSend:
      return "send";
    case FlightKind::kReceive:
      return "recv";
    case FlightKind::kNotKnownYet:
      break;
  }
  return nullptr;
}

std::string operationJson(const FlightOperation& one, const FlightDump& dump) {
  const bool known = one.kind != FlightKind::kNotKnownYet;
  const bool message = one.kind == FlightKind::kSend || one.kind == FlightKind::kReceive;
  const char* const op = opName(one);
  std::string json = str("{\"number\": ", one.number, ", \"group\": ", one.group);
  json += str(", \"sequence\": ", known ? str(one.call.sequence) : "null");
  json += str(", \"op\": ", op ? quoted(op) : "null");
  json += str(", \"title\": ", one.title ? quoted(one.title) : "null");
  json += str(", \"state\": ", quoted(name(one.state)));
  json += str(", \"dtype\": ", known ? quoted(name(one.call.dtype)) : "null");
  json += str(", \"count\": ", known ? str(one.call.count) : "null");
  json += str(", \"elements\": ", known ? str(one.elements) : "null",
              ", \"bytes\": ", known ? str(one.elements * elementBytes(one.call.dtype)) : "null");
  json += str(", \"reduce_op\": ",
              known && one.call.hasReduceOp ? quoted(name(one.call.reduceOp)) : "null");
  json +=
      str(", \"root\": ", known && !message && one.call.root >= 0 ? str(one.call.root) : "null");
  json += str(", \"peer\": ", message ? str(one.call.root) : "null");
  json += str(", \"tag\": ", message ? str(one.tag) : "null");
  json += str(", ", moment("queued", one.queued, dump), ", ", moment("started", one.started, dump),
              ", ", moment("finished", one.finished, dump));
  json += str(", \"error\": ", one.state == FlightState::kFailed ? quoted(one.error) : "null", "}");
  return json;
}

}  // namespace

std::string toJson(const FlightDump& dump) {
  std::string json =
      str("{\"format\": \"taco-flight-record\", \"version\": 1,\n \"host\": ", quoted(dump.host),
          ", \"pid\": ", dump.pid, ", \"rank\": ", dump.rank,
          ",\n \"reason\": ", quoted(dump.reason), ",\n ", moment("written", dump.now, dump),
          ", \"forgotten\": ", dump.forgotten, ",\n \"groups\": [");
  const char* separator = "\n  ";
  for (const FlightGroups::Listed& group : dump.groups) {
    json += separator + groupJson(group, dump);
    separator = ",\n  ";
  }
  json += "],\n \"operations\": [";
  separator = "\n  ";
  for (const FlightOperation& one : dump.operations) {
    json += separator + operationJson(one, dump);
    separator = ",\n  ";
  }
  return json + "]}\n";
}

}  // namespace taco
