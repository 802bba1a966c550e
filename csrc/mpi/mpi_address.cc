#include "csrc/mpi/mpi_address.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {
namespace {

// Field 22 of /proc/PID/stat; "" for a process that has ended, also one that its parent has not yet
// asked for its status.
std::string startTime(int pid) {
  std::ifstream stat(str("/proc/", pid, "/stat"));
  std::string text;
  std::getline(stat, text);
  const size_t nameEnd = text.rfind(')');
  if (nameEnd == std::string::npos) return "";
  std::istringstream fields(text.substr(nameEnd + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return "";
  for (int number = 4; number <= 22; ++number) fields >> field;
  return field;
}

std::string thisMachineId() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &status) != 0) return "";
  return str(boot, "/", status.st_ino);
}

}  // namespace

std::string MpiAddress::encode() const {
  return str("mpi ", job.empty() ? "-" : job, " ", worldRank, " ", machine.empty() ? "-" : machine,
             " ", pid, " ", started.empty() ? "-" : started);
}

MpiAddress MpiAddress::decode(const std::string& text) {
  std::istringstream fields(text);
  std::string kind;
  MpiAddress address;
  fields >> kind >> address.job >> address.worldRank >> address.machine >> address.pid >>
      address.started;
  if (fields.fail() || kind != "mpi" || address.worldRank < 0) {
    throw Error(ErrorCode::kInvalidSettings,
                str("a rank published '", text,
                    "' as its address, which is not one of the MPI "
                    "transport: TACO_TRANSPORT must have the same value on all ranks"));
  }
  for (std::string* part : {&address.job, &address.machine, &address.started}) {
    if (*part == "-") part->clear();
  }
  return address;
}

MpiAddress MpiAddress::ofThisProcess() {
  MpiAddress address;
  address.pid = static_cast<int>(::getpid());
  address.machine = thisMachineId();
  address.started = startTime(address.pid);
  return address;
}

bool MpiAddress::isDead(const std::string& thisMachine) const {
  if (machine.empty() || machine != thisMachine || started.empty()) return false;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::string now = startTime(pid);
  return now != started && ::access("/proc/self/stat", R_OK) == 0;
}

}  // namespace taco
