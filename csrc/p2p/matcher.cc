#include "csrc/p2p/matcher.h"

#include <algorithm>

namespace taco {
namespace {

// The first element of lists[tag] that `fits`, taken out; null if there is none.
template <typename Pointer, typename Fits>
Pointer takeFirst(std::map<int64_t, std::deque<Pointer>>& lists, int64_t tag, const Fits& fits) {
  const auto list = lists.find(tag);
  if (list == lists.end()) return nullptr;
  const auto at = std::find_if(list->second.begin(), list->second.end(), fits);
  if (at == list->second.end()) return nullptr;
  const Pointer found = *at;
  list->second.erase(at);
  if (list->second.empty()) lists.erase(list);
  return found;
}

}  // namespace

void Matcher::post(const ReceivePtr& receive) { posted_[receive->tag].push_back(receive); }

void Matcher::add(const UnexpectedPtr& message) { unexpected_[message->tag].push_back(message); }

ReceivePtr Matcher::takePosted(int source, int64_t tag) {
  return takeFirst(posted_, tag, [source](const ReceivePtr& receive) {
    return receive->peer == source || receive->peer == kAnySource;
  });
}

UnexpectedPtr Matcher::takeUnexpected(int source, int64_t tag) {
  return takeFirst(unexpected_, tag, [source](const UnexpectedPtr& message) {
    return source == message->source || source == kAnySource;
  });
}

void Matcher::remove(const ReceivePtr& receive) {
  takeFirst(posted_, receive->tag, [&](const ReceivePtr& other) { return other == receive; });
}

void Matcher::removeUnexpected(const std::function<bool(const UnexpectedMessage&)>& which) {
  for (auto list = unexpected_.begin(); list != unexpected_.end();) {
    std::erase_if(list->second, [&](const UnexpectedPtr& message) { return which(*message); });
    list = list->second.empty() ? unexpected_.erase(list) : std::next(list);
  }
}

std::vector<ReceivePtr> Matcher::posted(
    const std::function<bool(const ReceiveOperation&)>& which) const {
  std::vector<ReceivePtr> found;
  for (const auto& [tag, list] : posted_) {
    std::copy_if(list.begin(), list.end(), std::back_inserter(found),
                 [&](const ReceivePtr& receive) { return which(*receive); });
  }
  return found;
}

}  // namespace taco
