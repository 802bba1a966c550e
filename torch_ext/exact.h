#pragma once

namespace taco {

// Whether all-reduces that this thread calls are exact, whatever LIGHT_TOPK_ALLREDUCE says
// (torch_taco.exact()).
bool isExact();
bool setExact(bool exact);  // returns what it was

}  // namespace taco
