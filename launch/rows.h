#pragma once

#include "launch/launch.h"
#include "launch/reading.h"

namespace taco {

// What each row of the decision table takes from its variables (rows_process.cc, rows_node.cc,
// rows_cluster.cc, rows_mpi.cc).
void extractExplicit(Reading& reading, Launch& launch);
void extractTorchrun(Reading& reading, Launch& launch);
void extractHorovod(Reading& reading, Launch& launch);
void extractOpenMpi(Reading& reading, Launch& launch);
void extractSlurm(Reading& reading, Launch& launch);
void extractMpich(Reading& reading, Launch& launch);
void extractTorch(Reading& reading, Launch& launch);
void extractRankWorld(Reading& reading, Launch& launch);
void extractSingle(Reading& reading, Launch& launch);

void extractKubeflow(Reading& reading, Launch& launch);
void extractTiDdp(Reading& reading, Launch& launch);
void extractTfConfig(Reading& reading, Launch& launch);
void extractTiRay(Reading& reading, Launch& launch);
void extractTiMpi(Reading& reading, Launch& launch);

// The hosts of the default hostfile that OpenMPI's variables name, recorded as `field`; none when
// they name none. E1 when the file cannot be read.
std::vector<HostSlots> takeHostfile(Reading& reading, const char* field);

}  // namespace taco
