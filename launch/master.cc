#include "launch/master.h"

#include "csrc/base/format.h"
#include "launch/address.h"
#include "launch/text.h"

namespace taco {
namespace {

// torch's own default.
constexpr int kDefaultPort = 29500;

// Below the range from which Linux takes ports for outgoing connections (32768 on).
constexpr int kFirstJobPort = 15000;
constexpr int kJobPorts = 16000;

// A value and where it came from.
struct Given {
  std::optional<std::string> value;
  std::string origin;
};

Given given(const Reading& reading, const std::string& key, const std::string& variable) {
  if (const auto value = reading.argument(key)) return {value, str("the argument ", key)};
  return {reading.text(variable), variable};
}

std::string described(const Given& one) {
  const bool isArgument = one.origin.compare(0, 4, "the ") == 0;
  return isArgument ? one.origin : str("the environment variable ", one.origin);
}

// Two jobs on one host must not meet: the port of a Slurm step follows from its numbers.
int portOfJob(const Launch& launch) {
  for (const LaunchValue& value : launch.values) {
    if (value.field != "job") continue;
    unsigned hash = 0;
    for (const char c : value.value) hash = hash * 31 + static_cast<unsigned char>(c);
    return kFirstJobPort + static_cast<int>(hash % kJobPorts);
  }
  return kDefaultPort;
}

}  // namespace

void takeMaster(Reading& reading, Launch& launch, const std::string& addressVariable,
                const std::string& portVariable) {
  const Given address = given(reading, "master_addr", addressVariable);
  const Given port = given(reading, "master_port", portVariable);
  if (address.value && port.value && wholeNumber(*address.value) && !wholeNumber(*port.value) &&
      port.value->find_first_of(".:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
          std::string::npos) {
    reading.fail(LaunchRule::kE6,
                 str(described(address), " is ", inQuotes(*address.value), " and ", described(port),
                     " is ", inQuotes(*port.value),
                     ": address and port are exchanged; set them the other way round"));
  }
  std::optional<int> portInAddress;
  if (address.value) {
    const Address parsed = parseAddress(*address.value, described(address));
    launch.masterAddress = parsed.host;
    portInAddress = parsed.port;
    reading.record("master_address", parsed.host, address.origin);
  }
  if (port.value) {
    launch.masterPort = parsePort(*port.value, described(port));
    reading.record("master_port", std::to_string(*launch.masterPort), port.origin);
  }
  if (!portInAddress) return;
  if (launch.masterPort && *launch.masterPort != *portInAddress) {
    reading.fail(LaunchRule::kE6, str(described(address), " (", inQuotes(*address.value),
                                      ") has the port ", *portInAddress, " and ", described(port),
                                      " is '", *launch.masterPort, "'; leave one of the two"));
  }
  if (!launch.masterPort) {
    launch.masterPort = portInAddress;
    reading.record("master_port", std::to_string(*portInAddress), address.origin);
  }
}

void refuseLoopbackMaster(const Reading& reading, const Launch& launch) {
  // torchrun's agents have met through this very address before they started a process.
  if (launch.row == "torchrun") return;
  if (!launch.masterAddress || !isLoopback(*launch.masterAddress) || !hasSeveralNodes(launch)) {
    return;
  }
  const std::string origin = reading.originOf("master_address");
  const std::string several = launch.nodes ? str(*launch.nodes, " nodes")
                                           : str(*launch.worldSize, " processes, ",
                                                 *launch.localWorldSize, " of them here");
  const std::string message =
      str(described({{}, origin}), " is ", inQuotes(*launch.masterAddress), ", but the job has ",
          several, " (", reading.originOf(launch.nodes ? "nodes" : "local_world_size"),
          "), and each of them would take itself for the master; set it to the address of rank 0's "
          "host");
  reading.fail(LaunchRule::kE6, message);
}

bool wantsMasterFromMpi(const Launch& launch) {
  return !launch.masterAddress && (launch.row == "openmpi" || launch.row == "mpich");
}

Master requireMaster(const Launch& launch) {
  const auto originOf = [&](const std::string& field) {
    for (const LaunchValue& value : launch.values) {
      if (value.field == field) return value.origin;
    }
    return field;
  };
  if (launch.masterAddress && launch.masterPort) {
    return {*launch.masterAddress, *launch.masterPort, originOf("master_address")};
  }
  // One of the two is a mistake where several processes must agree, but not where they could not
  // have been meant to.
  const bool isAlone = launch.level == LaunchLevel::kProcess && launch.worldSize == 1;
  if (launch.masterAddress.has_value() != launch.masterPort.has_value() && !isAlone) {
    const bool hasAddress = launch.masterAddress.has_value();
    const bool isPet = launch.row == "kubeflow";
    const std::string missing =
        str(isPet ? "PET_" : "", hasAddress ? "MASTER_PORT" : "MASTER_ADDR");
    // The port alone is enough where the address follows from the launcher.
    const bool follows = !hasAddress && (!hasSeveralNodes(launch) || !launch.hosts.empty()) &&
                         (launch.localWorldSize || launch.nodes || !launch.hosts.empty());
    if (!follows) {
      throw LaunchError(
          LaunchRule::kE1,
          str(hasAddress ? originOf("master_address") : originOf("master_port"), " is ",
              hasAddress ? inQuotes(*launch.masterAddress) : str("'", *launch.masterPort, "'"),
              ", but ", missing, " is missing [launch row ", launch.row, "]; set both"));
    }
  }
  const int port = launch.masterPort.value_or(portOfJob(launch));
  const bool isOneNode =
      !hasSeveralNodes(launch) && (launch.nodes == 1 || launch.localWorldSize.has_value());
  if (isAlone || (isOneNode && launch.level != LaunchLevel::kRole)) {
    return {"127.0.0.1", port, "the whole job runs on this host"};
  }
  if (!launch.hosts.empty()) {
    return {launch.hosts.front().host, port, str("the first host of ", originOf("hosts"))};
  }
  const bool isMpi = launch.row == "openmpi" || launch.row == "mpich" || launch.row == "horovod";
  throw LaunchError(
      LaunchRule::kE1,
      str("MASTER_ADDR is missing [launch row ", launch.row, "]: nothing says where rank 0 is; ",
          isMpi ? "start with mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500 ... "
                  "(MPICH: "
                  "-genv MASTER_ADDR <host>)"
                : "set MASTER_ADDR to its host and MASTER_PORT to a free port there"));
}

}  // namespace taco
