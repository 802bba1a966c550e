#pragma once

#include <optional>
#include <string>

#include "launch/reading.h"

namespace taco {

// How many GPUs CUDA_VISIBLE_DEVICES lets a process see: the entries before the first that is
// negative, as the CUDA runtime reads it. Nothing when the variable is unset or empty.
std::optional<int> gpusInVisibleDevices(const Reading& reading);

// The same, else the argument visible_gpus, else the driver's list in /proc; nothing where no GPU
// shows.
std::optional<int> visibleGpus(const Reading& reading);

}  // namespace taco
