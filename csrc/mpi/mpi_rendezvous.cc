#include "csrc/mpi/mpi_rendezvous.h"

#include <charconv>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "csrc/mpi/mpi_job.h"
#include "csrc/settings/settings.h"
#include "csrc/topology/fields.h"
#include "csrc/transport/tcp_address.h"

namespace taco {
namespace {

// Of a rank that cannot take part: its record has 255 bytes.
constexpr size_t kLongestReason = 230;

// What one process tells the others.
struct Record {
  std::string network;
  std::string host;
  std::string port;
  std::string trouble;

  std::string encode() const { return pack({network, host, port, trouble}); }
  static Record decode(const std::string& text) {
    const std::vector<std::string> fields = unpack(text);
    if (fields.size() != 4) {
      throw Error(ErrorCode::kPeerFailed,
                  str("a rank's record has ", fields.size(),
                      " fields instead of 4: do all ranks run the same version of torch-taco?"));
    }
    return {fields[0], fields[1], fields[2], fields[3]};
  }
};

std::string ownRecord(const Settings& settings, int rank, uint16_t port) {
  Record record;
  try {
    record.network = localNetworkId();
    record.host = chooseHost(settings.socketInterface, "");
    record.port = port == 0 ? "" : str(port);
  } catch (const Error& why) {
    record = {"", "", "", str("rank ", rank, ": ", why.what()).substr(0, kLongestReason)};
  }
  return record.encode();
}

}  // namespace

std::string chooseMasterHost(const std::vector<std::string>& hosts,
                             const std::vector<std::string>& networks, size_t master,
                             const std::string& interfaces) {
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank == master) continue;
    if (networks[rank].empty() || networks[rank] != networks[master]) {
      return chooseHost(interfaces, hosts[rank]);
    }
  }
  return "127.0.0.1";
}

MpiMaster meetThroughMpi(const std::map<std::string, std::string>& environment, uint16_t port,
                         const Deadline& deadline) {
  const Settings settings = readSettings(environment);
  MpiJob& job =
      MpiJob::join("a rendezvous without MASTER_ADDR", environment, settings.mpiLibrary, deadline);
  const std::string own = ownRecord(settings, job.rank(), port);
  std::vector<std::string> hosts;
  std::vector<std::string> networks;
  std::vector<size_t> masters;
  uint16_t masterPort = 0;
  for (const std::string& text : job.allGather(own, deadline)) {
    const Record record = Record::decode(text);
    if (!record.trouble.empty()) throw Error(ErrorCode::kInvalidSettings, record.trouble);
    if (!record.port.empty()) {
      masters.push_back(hosts.size());
      const char* const end = record.port.data() + record.port.size();
      const auto [stop, trouble] = std::from_chars(record.port.data(), end, masterPort);
      if (trouble != std::errc() || stop != end) {
        throw Error(ErrorCode::kPeerFailed,
                    str("a rank says '", record.port, "' is the port of rank 0, which is no port"));
      }
    }
    networks.push_back(record.network);
    hosts.push_back(record.host);
  }
  if (masters.size() != 1) {
    throw Error(ErrorCode::kInvalidSettings,
                str(masters.size(),
                    " processes of the mpirun, instead of one, are rank 0 of the "
                    "job: the ranks that they were given explicitly are not unique"));
  }
  const bool mine = static_cast<size_t>(job.rank()) == masters[0];
  const std::string host = job.broadcast(
      mine ? chooseMasterHost(hosts, networks, masters[0], settings.socketInterface) : "",
      static_cast<int>(masters[0]), deadline);
  return {host, masterPort};
}

}  // namespace taco
