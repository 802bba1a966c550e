#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/mpi/mpi_address.h"
#include "csrc/mpi/mpi_api.h"
#include "csrc/mpi/mpi_port.h"

namespace taco {

// This process as one of those that an mpirun has started. MPI is opened and initialised when it is
// first asked for, and ended when the process exits with status 0: with any other status mpirun is
// to see it and to end the job, which MPI_Finalize would wait for instead.
class MpiJob {
 public:
  // The job of this process; the first call is collective over all processes of the mpirun, which
  // nothing but their number of calls to join() and to the verbs below may tell apart. `what` needs
  // it, for messages; `library` is TACO_MPI_LIBRARY. Throws Error: kInvalidSettings where mpirun
  // has not started this process, kSystem where there is no MPI library, kTimeout if the other
  // processes do not come.
  static MpiJob& join(const std::string& what,
                      const std::map<std::string, std::string>& environment,
                      const std::string& library, const Deadline& deadline);

  int rank() const { return self_.worldRank; }
  int size() const { return static_cast<int>(addresses_.size()); }
  std::string version() const { return api_->version(); }
  const MpiAddress& self() const { return self_; }
  MpiPort& port() { return *port_; }

  // Collective over the job. Records of all processes, by rank; each at most kRecordBytes long.
  static constexpr size_t kRecordBytes = 255;
  std::vector<std::string> allGather(const std::string& record, const Deadline& deadline);
  // The text of rank `root`, of at most kRecordBytes.
  std::string broadcast(const std::string& text, int root, const Deadline& deadline);

 private:
  explicit MpiJob(std::unique_ptr<MpiApi> api);

  void initialise(const Deadline& deadline);
  void meet(const Deadline& deadline);
  void complete(MpiRequest& request, std::shared_ptr<std::vector<char>> memory, const char* what,
                const Deadline& deadline);
  void endWithProcess();
  static void atExit(int status, void* job);
  void finalize();

  std::shared_ptr<MpiApi> api_;
  std::unique_ptr<MpiPort> port_;
  MpiAddress self_;
  std::vector<MpiAddress> addresses_;  // by rank in MPI_COMM_WORLD
};

}  // namespace taco
