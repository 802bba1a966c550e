#pragma once

#include <memory>
#include <string>

namespace taco {

// Where segments live.
inline constexpr const char* kShmDirectory = "/dev/shm";

// A small file in /dev/shm with a random token, shown to the other ranks while a group is made:
// who can read the token shares memory with this rank. Host names and LOCAL_WORLD_SIZE prove
// nothing - containers share the first and not /dev/shm. Unlinked when destroyed; what a killed
// process left behind is removed by the next one that makes a proof: a file nobody holds locked.
class NodeProof {
 public:
  // Never throws: where the file cannot be made, path() is empty and whyNot() says why.
  NodeProof();
  ~NodeProof();
  NodeProof(const NodeProof&) = delete;

  const std::string& path() const { return path_; }
  const std::string& token() const { return token_; }
  const std::string& whyNot() const { return whyNot_; }

  // Does the file at `path` exist here, and hold `token`?
  static bool holds(const std::string& path, const std::string& token);

 private:
  std::string path_;
  std::string token_;
  std::string whyNot_;
  int fd_ = -1;  // holds the lock
  int creatorPid_;
};

}  // namespace taco
