#include "csrc/p2p/matcher.h"

#include "tests/csrc/catch.h"

namespace taco {
namespace {

ReceivePtr receiveFrom(int peer, int64_t tag) {
  auto receive = std::make_shared<ReceiveOperation>();
  receive->peer = peer;
  receive->tag = tag;
  return receive;
}

UnexpectedPtr messageOf(int source, int64_t tag) {
  auto message = std::make_shared<UnexpectedMessage>();
  message->source = source;
  message->tag = tag;
  return message;
}

TEST_CASE("a message belongs to the first receive that fits") {
  Matcher matcher;
  const auto fromTwo = receiveFrom(2, 5), any = receiveFrom(kAnySource, 5),
             fromOne = receiveFrom(1, 5), otherTag = receiveFrom(1, 6);
  for (const auto& receive : {fromTwo, any, fromOne, otherTag}) matcher.post(receive);
  CHECK(matcher.takePosted(3, 4) == nullptr);
  CHECK(matcher.takePosted(1, 5) == any);
  CHECK(matcher.takePosted(3, 5) == nullptr);
  CHECK(matcher.takePosted(1, 5) == fromOne);
  CHECK(matcher.takePosted(2, 5) == fromTwo);
  CHECK(matcher.takePosted(2, 5) == nullptr);
  CHECK(matcher.takePosted(1, 6) == otherTag);
}

TEST_CASE("a receive gets the first message that fits") {
  Matcher matcher;
  const auto first = messageOf(2, 5), second = messageOf(1, 5), third = messageOf(1, 5);
  for (const auto& message : {first, second, third}) matcher.add(message);
  CHECK(matcher.takeUnexpected(1, 4) == nullptr);
  CHECK(matcher.takeUnexpected(1, 5) == second);
  CHECK(matcher.takeUnexpected(kAnySource, 5) == first);
  CHECK(matcher.takeUnexpected(2, 5) == nullptr);
  CHECK(matcher.takeUnexpected(kAnySource, 5) == third);
}

TEST_CASE("what is removed is not matched") {
  Matcher matcher;
  const auto one = receiveFrom(1, 5), two = receiveFrom(1, 5);
  matcher.post(one);
  matcher.post(two);
  CHECK(matcher.posted([](const ReceiveOperation& it) { return it.peer == 1; }).size() == 2);
  matcher.remove(one);
  matcher.remove(one);
  CHECK(matcher.takePosted(1, 5) == two);

  const auto kept = messageOf(1, 5), dropped = messageOf(2, 5), alone = messageOf(2, 6);
  for (const auto& message : {dropped, kept, alone}) matcher.add(message);
  matcher.removeUnexpected([](const UnexpectedMessage& it) { return it.source == 2; });
  CHECK(matcher.takeUnexpected(kAnySource, 6) == nullptr);
  CHECK(matcher.takeUnexpected(kAnySource, 5) == kept);
  CHECK(matcher.takeUnexpected(kAnySource, 5) == nullptr);
}

}  // namespace
}  // namespace taco
