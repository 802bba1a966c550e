#pragma once

#include <string>

namespace taco {

// 128 random bits as hex, one value per process: unlike a pid it is unique across pid namespaces
// and machines, and a fork gets a new one.
std::string processId();

// From the kernel's generator: for secrets, and as hex for names.
std::string randomBytes(int bytes);
std::string randomHex(int bytes);

}  // namespace taco
