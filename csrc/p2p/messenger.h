#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/p2p/matcher.h"
#include "csrc/p2p/operation.h"
#include "csrc/transport/transport.h"

namespace taco {

// The protocol of point-to-point messages over a transport. Used by one thread at a time.
//
// Eager: a message of up to kEagerBytes goes at once, and its send is complete; the receiver
// buffers it if nobody has asked for it. The sender counts what it has sent and the receiver has
// not consumed; above kCreditBytes it uses the rendezvous for small messages too, so nobody's
// memory fills up.
//
// Rendezvous: the sender asks (request to send), the receiver answers once a receive matches (clear
// to send), and the data go straight from the sender's memory into the receiver's, in pieces of at
// most kPieceBytes, so that other messages get between them. Requests travel in order with eager
// messages; that keeps the matching in order.
//
// A message and its receive must agree on the size. If not, the receiver tells the sender and both
// fail, nothing else does. (An eager send is complete by then: there only the receive fails.)
class Messenger : private Transport::Receiver {
 public:
  static constexpr size_t kEagerBytes = 64 << 10;
  static constexpr size_t kPieceBytes = 1 << 20;
  static constexpr size_t kCreditBytes = 8 << 20;

  // `group` names the group in messages.
  Messenger(Transport& transport, std::string group);

  void send(const SendPtr& send);
  void receive(const ReceivePtr& receive);

  // Moves what can be moved without waiting; true if anything did.
  bool progress() { return transport_.progress(std::chrono::nanoseconds(0)); }
  // Fails what is overdue, and makes sure that the death of those who are waited for is noticed.
  void tend();
  std::chrono::nanoseconds untilNextDeadline(std::chrono::nanoseconds most) const;

  // Fails everything pending. Operations that come later fail with the same error.
  void fail(const Error& why);
  const std::optional<Error>& failure() const { return failure_; }

  bool isIdle() const { return pending_.empty(); }
  bool hasSendsUnderWay() const;  // to other ranks

  // Operations decided since the last call: their tickets are to be finished without any lock held,
  // because that runs callbacks of users, and drops what keeps their memory alive.
  struct Finished {
    std::shared_ptr<Operation> operation;
    std::optional<Error> why;  // empty: success

    void tell();
  };
  std::vector<Finished> takeFinished() { return std::exchange(finished_, {}); }

 private:
  // What a buffered message costs its receiver beside its bytes; so that empty ones are counted
  // too.
  static constexpr size_t kMessageOverhead = 64;

  // What the receiver of a rendezvous answers.
  enum class Answer : uint64_t { kGo, kWrongSize, kGaveUp };

  // A rendezvous that this rank receives.
  struct Inbound {
    ReceivePtr receive;  // finished: the rest is dropped
    size_t arrived = 0;
  };

  struct Peer {
    size_t creditUsed = 0;                 // by our eager messages that the peer has not consumed
    size_t creditOwed = 0;                 // consumed by us and not reported yet
    size_t buffered = 0;                   // by its eager messages that we have not consumed
    std::map<uint64_t, SendPtr> outbound;  // rendezvous by id
    std::map<uint64_t, Inbound> inbound;
    // The payload that is arriving: into a receive, or into an unexpected message, or nowhere.
    ReceivePtr arrivingReceive;
    UnexpectedPtr arrivingMessage;
    bool watched = false;
    std::optional<Error> lost;
  };

  void begin(const std::shared_ptr<Operation>& operation);
  void finish(std::shared_ptr<Operation> operation, std::optional<Error> why);
  void giveUp(const std::shared_ptr<Operation>& operation, const Error& why);
  void giveUpSend(const SendPtr& send, const Error& why);
  void giveUpReceive(const ReceivePtr& receive, const Error& why);

  void sendToSelf(const SendPtr& send);
  void sendPiece(const SendPtr& send);
  void pieceSent(const SendPtr& send, size_t bytes);
  void control(int peer, FrameKind kind, int64_t tag, uint64_t id, uint64_t size,
               Answer answer = Answer::kGo);
  void take(const ReceivePtr& receive, const UnexpectedPtr& message);
  void accept(const ReceivePtr& receive, int source, uint64_t id, size_t bytes);
  void consumed(int source, size_t bytes);
  Error wrongSize(int source, int destination, int64_t tag, size_t sent, size_t received) const;

  Landing onHeader(int peer, const FrameHeader& header) override;
  void onArrived(int peer, const FrameHeader& header) override;
  void onLost(int peer, const Error& why, Loss how) override;
  Landing eagerHeader(int source, const FrameHeader& header);
  void eagerArrived(int source, const FrameHeader& header);
  void requestArrived(int source, const FrameHeader& header);
  void answerArrived(int destination, const FrameHeader& header);
  Landing dataHeader(int source, const FrameHeader& header);
  void dataArrived(int source, const FrameHeader& header);
  void withdrawArrived(int source, const FrameHeader& header);
  bool isAlone() const;  // every other rank is lost

  Transport& transport_;
  const std::string group_;
  const int rank_;
  std::vector<Peer> peers_;
  Matcher matcher_;
  uint64_t nextId_ = 1;
  std::map<Operation*, std::shared_ptr<Operation>> pending_;
  std::set<std::pair<Clock::time_point, Operation*>>
      deadlines_;  // of pending operations that have one
  Clock::time_point nextWatchAt_ = Clock::time_point::min();
  std::vector<Finished> finished_;
  std::optional<Error> failure_;
};

}  // namespace taco
