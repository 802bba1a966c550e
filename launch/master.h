#pragma once

#include <string>

#include "launch/launch.h"
#include "launch/reading.h"

namespace taco {

// Reads the master from the arguments, else from `addressVariable` and `portVariable`, into
// `launch`; "host:port" in the address is understood. E6: exchanged address and port, a port
// outside 1-65535, two ports; E8: no address.
void takeMaster(Reading& reading, Launch& launch, const std::string& addressVariable,
                const std::string& portVariable);

// E6: a master that every node takes for itself, where there are several.
void refuseLoopbackMaster(const Reading& reading, const Launch& launch);

}  // namespace taco
