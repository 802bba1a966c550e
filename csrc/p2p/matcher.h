#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "csrc/p2p/operation.h"

namespace taco {

// A message that has come before anybody asked for it.
struct UnexpectedMessage {
  // Eager: the bytes are here, or are arriving. Rendezvous: the sender waits for our word. Local: a
  // send of this rank to itself.
  enum class Kind { kEager, kRendezvous, kLocal };
  Kind kind = Kind::kEager;
  int source = 0;
  int64_t tag = 0;
  size_t bytes = 0;
  uint64_t id = 0;               // rendezvous
  std::unique_ptr<char[]> data;  // eager
  bool arrived = false;          // eager: completely
  ReceivePtr taker;              // eager: who gets it when it has arrived
  SendPtr local;                 // local; null if the bytes are in `data`
};
using UnexpectedPtr = std::shared_ptr<UnexpectedMessage>;

// Who gets which message. Posted receives stand in the order of their posting, messages in the
// order of their arrival; each takes the first of the other kind that has its tag and a fitting
// source. Since the messages of one sender arrive in the order of sending, none overtakes another
// of the same sender and tag.
class Matcher {
 public:
  void post(const ReceivePtr& receive);
  void add(const UnexpectedPtr& message);

  // The receive that a message from `source` belongs to, removed from the list; null if none waits.
  ReceivePtr takePosted(int source, int64_t tag);
  // The message that a receive gets, removed from the list; null if none has come.
  UnexpectedPtr takeUnexpected(int source, int64_t tag);

  void remove(const ReceivePtr& receive);
  void removeUnexpected(const std::function<bool(const UnexpectedMessage&)>& which);

  std::vector<ReceivePtr> posted(const std::function<bool(const ReceiveOperation&)>& which) const;

 private:
  // Deques of one tag are kept only while they hold something.
  std::map<int64_t, std::deque<ReceivePtr>> posted_;
  std::map<int64_t, std::deque<UnexpectedPtr>> unexpected_;
};

}  // namespace taco
