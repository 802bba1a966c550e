#include "csrc/mpi/mpi_library.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <set>

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {
namespace {

std::string variable(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

const char* familyName(MpiFamily family) {
  return family == MpiFamily::kOpenMpi ? "OpenMPI" : "MPICH";
}

// libmpich: Debian's name for MPICH's libmpi, which would clash with OpenMPI's there.
std::vector<std::string> fileNames(MpiFamily family) {
  if (family == MpiFamily::kOpenMpi) return {"libmpi.so.40"};
  return {"libmpi.so.12", "libmpich.so.12"};
}

std::vector<std::string> libraryFolders(const std::string& prefix) {
  return {prefix + "/lib", prefix + "/lib64", prefix + "/lib/x86_64-linux-gnu",
          prefix + "/lib/aarch64-linux-gnu", prefix + "/lib/release"};
}

bool isLauncher(const std::string& name) {
  for (const char* known : {"mpirun", "mpiexec", "orterun", "orted", "prterun", "prte", "prted",
                            "hydra_pmi_proxy", "hydra_bstrap_proxy"}) {
    if (name.rfind(known, 0) == 0) return true;
  }
  return false;
}

int parentOf(const std::string& procRoot, int pid) {
  std::ifstream stat(str(procRoot, "/", pid, "/stat"));
  std::string text;
  std::getline(stat, text);
  const size_t nameEnd = text.rfind(')');  // the name may hold anything, also parentheses
  if (nameEnd == std::string::npos || nameEnd + 4 > text.size()) return 0;
  return std::atoi(text.c_str() + nameEnd + 4);  // ") S 123"
}

}  // namespace

MpiLauncher findMpiLauncher(const std::map<std::string, std::string>& environment,
                            const std::string& what) {
  MpiLauncher found;
  const std::string openMpi = variable(environment, "OMPI_COMM_WORLD_RANK");
  const std::string pmi = variable(environment, "PMI_RANK");
  const std::string pmix = variable(environment, "PMIX_RANK");
  if (!openMpi.empty()) {
    found = {MpiFamily::kOpenMpi, "OMPI_COMM_WORLD_RANK=" + openMpi};
  } else if (!pmi.empty() && !variable(environment, "PMI_SIZE").empty()) {
    found = {MpiFamily::kMpich, "PMI_RANK=" + pmi};
  } else if (!pmix.empty()) {
    found = {MpiFamily::kOpenMpi, "PMIX_RANK=" + pmix};
  } else {
    throw Error(ErrorCode::kInvalidSettings,
                str(what,
                    " needs MPI, but nothing of MPI has started this process: none of "
                    "OMPI_COMM_WORLD_RANK (mpirun of OpenMPI), PMI_RANK with PMI_SIZE (mpiexec of "
                    "MPICH) and PMIX_RANK (srun --mpi=pmix) is set; start it with mpirun -np N "
                    "python script.py"));
  }
  const std::string elastic = variable(environment, "TORCHELASTIC_RUN_ID");
  if (!elastic.empty()) {
    throw Error(ErrorCode::kInvalidSettings,
                str(what, " needs MPI, but torchrun (TORCHELASTIC_RUN_ID=", elastic,
                    ") has started this process below mpirun (", found.sign,
                    "), so that several processes would be one rank of MPI; start the script with "
                    "mpirun alone"));
  }
  return found;
}

std::vector<std::string> mpiLauncherPrefixes(const std::string& procRoot) {
  std::vector<std::string> prefixes;
  int pid = parentOf(procRoot, static_cast<int>(::getpid()));
  for (int generation = 0; pid > 1 && generation < 64; ++generation) {
    char target[PATH_MAX];
    const std::string link = str(procRoot, "/", pid, "/exe");
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
    if (length > 0) {
      const std::string path(target, static_cast<size_t>(length));
      const size_t slash = path.rfind('/');
      const size_t folder = slash == std::string::npos ? slash : path.rfind('/', slash - 1);
      if (folder != std::string::npos && isLauncher(path.substr(slash + 1))) {
        const std::string prefix = path.substr(0, folder);
        if (std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end()) {
          prefixes.push_back(prefix);
        }
      }
    }
    pid = parentOf(procRoot, pid);
  }
  return prefixes;
}

std::vector<std::string> mpiLibraryCandidates(const MpiLauncher& launcher,
                                              const std::map<std::string, std::string>& environment,
                                              const std::string& chosen,
                                              const std::vector<std::string>& launcherPrefixes) {
  if (!chosen.empty()) return {chosen};
  std::vector<std::string> folders;
  if (launcher.family == MpiFamily::kOpenMpi) {
    const std::string said = variable(environment, "OMPI_LIBDIR_LOC");  // OpenMPI 5
    if (!said.empty()) folders.push_back(said);
  }
  for (const std::string& prefix : launcherPrefixes) {
    for (const std::string& folder : libraryFolders(prefix)) folders.push_back(folder);
  }
  std::vector<std::string> candidates;
  for (const std::string& folder : folders) {
    for (const std::string& name : fileNames(launcher.family)) {
      struct stat status {};
      const std::string path = folder + "/" + name;
      if (::stat(path.c_str(), &status) == 0) candidates.push_back(path);
    }
  }
  for (const std::string& name : fileNames(launcher.family)) candidates.push_back(name);
  return candidates;
}

std::unique_ptr<MpiApi> loadMpi(const MpiLauncher& launcher,
                                const std::map<std::string, std::string>& environment,
                                const std::string& chosen) {
  // RTLD_GLOBAL: the plug-ins of OpenMPI look for its symbols there. Never closed: MPI keeps
  // threads and exit handlers.
  std::string tried;
  for (const MpiFamily family : {MpiFamily::kOpenMpi, MpiFamily::kMpich}) {
    for (const std::string& name : fileNames(family)) {
      if (void* loaded = ::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD)) {
        return makeMpiApi([loaded](const char* symbol) { return ::dlsym(loaded, symbol); });
      }
    }
  }
  for (const std::string& path :
       mpiLibraryCandidates(launcher, environment, chosen, mpiLauncherPrefixes())) {
    if (void* opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      return makeMpiApi([opened](const char* symbol) { return ::dlsym(opened, symbol); });
    }
    const char* why = ::dlerror();
    tried += str("\n  ", why == nullptr ? path : why);
  }
  throw Error(ErrorCode::kSystem,
              str("this process was started by ", familyName(launcher.family), " (", launcher.sign,
                  "), but its library cannot be opened; install it, or set TACO_MPI_LIBRARY to the "
                  "path of its libmpi. Tried:",
                  tried));
}

}  // namespace taco
