#include "csrc/p2p/operation.h"

#include "csrc/base/format.h"

namespace taco {
namespace {

std::string nameOf(int peer) {
  return peer == kAnySource ? std::string("any rank") : str("rank ", peer);
}

}  // namespace

std::string SendOperation::describe() const {
  return str("send of ", bytes, " bytes to ", nameOf(peer), " with tag ", tag);
}

std::string SendOperation::waitsFor() const { return nameOf(peer) + " to receive"; }

std::string ReceiveOperation::describe() const {
  return str("receive of ", bytes, " bytes from ", nameOf(peer), " with tag ", tag);
}

std::string ReceiveOperation::waitsFor() const {
  return stage == Stage::kPosted ? nameOf(peer) + " to send"
                                 : str("the rest of the message from rank ", source);
}

}  // namespace taco
