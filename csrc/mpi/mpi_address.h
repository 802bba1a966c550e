#pragma once

#include <string>

namespace taco {

// Who a process is, for the other ranks of its MPI job.
struct MpiAddress {
  std::string job;      // random, the same for all processes of one mpirun; "" before it is known
  int worldRank = -1;   // in MPI_COMM_WORLD
  std::string machine;  // boot id and pid namespace: where `pid` means something; "" = unknown
  int pid = 0;
  std::string started;  // start time of the process, since pids are used again

  std::string encode() const;
  // Throws Error(kInvalidSettings) if `text` is not an encoded MpiAddress, as when another rank of
  // the group uses another transport.
  static MpiAddress decode(const std::string& text);

  static MpiAddress ofThisProcess();

  // Is it certain, seen from this machine, that the process has ended?
  bool isDead(const std::string& thisMachine) const;
};

}  // namespace taco
