#include "launch/visible_gpus.h"

#include "launch/text.h"

namespace taco {

std::optional<int> gpusInVisibleDevices(const Reading& reading) {
  const auto devices = reading.text("CUDA_VISIBLE_DEVICES");
  if (!devices) return std::nullopt;
  int count = 0;
  for (const std::string& part : splitAt(*devices, ',')) {
    const std::string device = trimmed(part);
    if (device.empty() || device[0] == '-') break;
    ++count;
  }
  return count;
}

std::optional<int> visibleGpus(const Reading& reading) {
  if (const auto count = gpusInVisibleDevices(reading)) return count;
  if (const auto count = reading.argument("visible_gpus")) {
    return parseInteger(*count, "the argument visible_gpus");
  }
  const LaunchSeams& seams = reading.seams();
  if (!seams.listDirectory) return std::nullopt;
  const auto gpus = seams.listDirectory(seams.procRoot + "/driver/nvidia/gpus");
  if (gpus.empty()) return std::nullopt;
  return static_cast<int>(gpus.size());
}

}  // namespace taco
