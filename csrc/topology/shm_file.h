#pragma once

#include <string>

namespace taco {

// The names of files in /dev/shm begin so, and go on with 32 hexadecimal digits.
inline constexpr const char* kProofPrefix = "taco-proof-";
inline constexpr const char* kSegmentPrefix = "taco-";

// Makes a file that nobody else may open (0600), and keeps it locked (flock) as long as the returned
// descriptor is open. -1: `whyNot` says why. The name appears when the file is locked already, so
// a file of ours that is not locked belongs to nobody alive.
int makeShmFile(const std::string& path, std::string* whyNot);

// Removes what processes left behind that were killed while they made a group: locked by nobody.
// Not a file that was made just now, or that another thread of this process is about to attach.
void removeShmLeftovers();

// While it lives, removeShmLeftovers() does not open `path`: to close any descriptor of a file drops
// the record locks that this process has on it, by which the others know that it lives.
class ShmFileInUse {
 public:
  explicit ShmFileInUse(const std::string& path);
  ~ShmFileInUse();
  ShmFileInUse(const ShmFileInUse&) = delete;

 private:
  std::string path_;
};

}  // namespace taco
