#pragma once

#include <cstddef>
#include <string>

namespace taco {

// Opens a file in /dev/shm whose path came from elsewhere (the store, a listing of the folder),
// where any user of the machine may have put anything. It must be named `prefix` and 32 hexadecimal
// digits, be a plain file of this user that nobody else may open, and have `leastBytes` at least.
// Returns -1 and says why in `whyNot` where it is not; never blocks, follows no link.
int openOwnFile(const std::string& path, const std::string& prefix, int flags, size_t leastBytes,
                std::string* whyNot);

}  // namespace taco
