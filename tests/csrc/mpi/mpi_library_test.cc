#include "csrc/mpi/mpi_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "csrc/base/error.h"
#include "csrc/base/format.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

using Catch::Matchers::ContainsSubstring;
using Environment = std::map<std::string, std::string>;

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "taco-mpi-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST_CASE("what started this process is told by its environment") {
  const MpiLauncher open = findMpiLauncher({{"OMPI_COMM_WORLD_RANK", "3"}}, "x");
  CHECK(open.family == MpiFamily::kOpenMpi);
  CHECK(open.sign == "OMPI_COMM_WORLD_RANK=3");
  CHECK(findMpiLauncher({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "x").family == MpiFamily::kMpich);
  CHECK(findMpiLauncher({{"PMIX_RANK", "0"}}, "x").family == MpiFamily::kOpenMpi);
  // TI's variables and a job of Slurm around it say nothing.
  CHECK(findMpiLauncher({{"OMPI_COMM_WORLD_RANK", "1"},
                         {"RANK", "0"},
                         {"WORLD_SIZE", "2"},
                         {"SLURM_PROCID", "0"}},
                        "x")
            .family == MpiFamily::kOpenMpi);
}

TEST_CASE("a process that mpirun has not started is told so") {
  const Environment environment =
      GENERATE(Environment{}, Environment{{"RANK", "0"}, {"WORLD_SIZE", "2"}},
               Environment{{"PMI_RANK", "0"}}, Environment{{"OMPI_COMM_WORLD_RANK", ""}});
  try {
    findMpiLauncher(environment, "TACO_TRANSPORT=mpi");
    FAIL("no error");
  } catch (const Error& why) {
    CHECK(why.code() == ErrorCode::kInvalidSettings);
    CHECK_THAT(why.what(), ContainsSubstring("TACO_TRANSPORT=mpi needs MPI") &&
                               ContainsSubstring("OMPI_COMM_WORLD_RANK") &&
                               ContainsSubstring("mpirun -np N python script.py"));
  }
}

TEST_CASE("torchrun below mpirun is refused: its children would all be one rank") {
  CHECK_THROWS_WITH(
      findMpiLauncher({{"OMPI_COMM_WORLD_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "none"}}, "x"),
      ContainsSubstring("torchrun (TORCHELASTIC_RUN_ID=none)") &&
          ContainsSubstring("OMPI_COMM_WORLD_RANK=1"));
}

TEST_CASE("the library beside the launcher comes first, a chosen one alone") {
  Folder folder;
  const std::string lib = folder.path + "/lib";
  std::filesystem::create_directories(lib);
  std::ofstream(lib + "/libmpi.so.40") << "";
  std::ofstream(lib + "/libmpich.so.12") << "";
  const MpiLauncher openMpi{MpiFamily::kOpenMpi, ""};
  const MpiLauncher mpich{MpiFamily::kMpich, ""};
  using List = std::vector<std::string>;
  CHECK(mpiLibraryCandidates(openMpi, {}, "", {folder.path}) ==
        List{lib + "/libmpi.so.40", "libmpi.so.40"});
  CHECK(mpiLibraryCandidates(mpich, {}, "", {folder.path}) ==
        List{lib + "/libmpich.so.12", "libmpi.so.12", "libmpich.so.12"});
  CHECK(mpiLibraryCandidates(openMpi, {{"OMPI_LIBDIR_LOC", lib}}, "", {}) ==
        List{lib + "/libmpi.so.40", "libmpi.so.40"});
  CHECK(mpiLibraryCandidates(openMpi, {}, "", {"/nowhere"}) == List{"libmpi.so.40"});
  CHECK(mpiLibraryCandidates(openMpi, {}, "/my/libmpi.so", {folder.path}) == List{"/my/libmpi.so"});
}

TEST_CASE("the launcher is found among the ancestors") {
  // This process below python, below the launcher's daemon, below init.
  Folder proc;
  const auto process = [&](int pid, int parent, const std::string& exe) {
    const std::string folder = str(proc.path, "/", pid);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/stat") << pid << " (a) strange) name) S " << parent << " 1 1";
    std::filesystem::create_symlink(exe, folder + "/exe");
  };
  process(static_cast<int>(::getpid()), 5003, "/usr/bin/python3");
  process(5003, 5002, "/bin/bash");
  process(5002, 5001, "/opt/openmpi/bin/prted");
  process(5001, 5000, "/opt/openmpi/bin/prterun");
  process(5000, 1, "/usr/bin/mpiexec.hydra");
  process(1, 0, "/sbin/init");
  CHECK(mpiLauncherPrefixes(proc.path) == std::vector<std::string>{"/opt/openmpi", "/usr"});
  CHECK(mpiLauncherPrefixes("/nowhere").empty());
}

TEST_CASE("a library that cannot be opened is an error that says what was tried") {
  try {
    loadMpi({MpiFamily::kMpich, "PMI_RANK=0"}, {}, "/nowhere/libmpi.so.12");
    FAIL("no error");
  } catch (const Error& why) {
    CHECK(why.code() == ErrorCode::kSystem);
    CHECK_THAT(why.what(), ContainsSubstring("started by MPICH (PMI_RANK=0)") &&
                               ContainsSubstring("TACO_MPI_LIBRARY") &&
                               ContainsSubstring("/nowhere/libmpi.so.12"));
  }
}

TEST_CASE("a library that is no MPI, or none that is known, is refused") {
  CHECK_THROWS_WITH(makeMpiApi([](const char*) -> void* { return nullptr; }),
                    ContainsSubstring("MPI_Get_library_version"));
  static const auto other = [](char* text, int* length) {
    std::strcpy(text, "Wondrous MPI 1.0");
    *length = 16;
    return 0;
  };
  static int (*const getVersion)(char*, int*) = other;
  CHECK_THROWS_WITH(makeMpiApi([](const char* name) -> void* {
                      return std::string(name) == "MPI_Get_library_version"
                                 ? reinterpret_cast<void*>(getVersion)
                                 : nullptr;
                    }),
                    ContainsSubstring("'Wondrous MPI 1.0'") && ContainsSubstring("OpenMPI"));
  // An OpenMPI of before MPI 3.
  static int variable = 0;
  CHECK_THROWS_WITH(makeMpiApi([](const char* name) -> void* {
                      return std::string(name) == "ompi_mpi_comm_world" ? &variable : nullptr;
                    }),
                    ContainsSubstring("OpenMPI") && ContainsSubstring("MPI 3 or later"));
}

}  // namespace
}  // namespace taco
