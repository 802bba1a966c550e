#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/mpi/mpi_api.h"

namespace taco {

enum class MpiFamily { kOpenMpi, kMpich };

// What started this process.
struct MpiLauncher {
  MpiFamily family = MpiFamily::kOpenMpi;
  std::string sign;  // the variable that shows it, with its value
};

// Reads `environment` for the marks of mpirun (OpenMPI: OMPI_COMM_WORLD_RANK), mpiexec (MPICH:
// PMI_RANK and PMI_SIZE) and srun --mpi=pmix (PMIX_RANK). Throws Error(kInvalidSettings), which
// begins with `what`, where there are none, and where torchrun stands between mpirun and this
// process: its children would all be the same rank of MPI.
MpiLauncher findMpiLauncher(const std::map<std::string, std::string>& environment,
                            const std::string& what);

// Where the MPI library may be, most trusted first: `chosen` (TACO_MPI_LIBRARY) alone if it is set,
// else beside the launcher, whose version is then the same, else where the loader looks.
// `launcherPrefixes`: of the executables among this process's ancestors, "/usr" of
// /usr/bin/orterun.
std::vector<std::string> mpiLibraryCandidates(const MpiLauncher& launcher,
                                              const std::map<std::string, std::string>& environment,
                                              const std::string& chosen,
                                              const std::vector<std::string>& launcherPrefixes);

// Prefixes of the MPI launchers among this process's ancestors. `procRoot` stands for "/proc".
std::vector<std::string> mpiLauncherPrefixes(const std::string& procRoot = "/proc");

// Opens the library: the one that is loaded already (by mpi4py, say), else the first candidate that
// opens. Throws Error(kSystem) that lists what was tried and what to do.
std::unique_ptr<MpiApi> loadMpi(const MpiLauncher& launcher,
                                const std::map<std::string, std::string>& environment,
                                const std::string& chosen);

}  // namespace taco
