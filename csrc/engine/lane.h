#pragma once

#include <functional>
#include <memory>

#include "csrc/base/function_ref.h"
#include "csrc/base/ticket.h"

namespace taco {

// Runs the operations of a group one after the other, in the order they were submitted.
//
// The caller runs: a synchronous task that finds the lane idle runs on the calling thread, without
// a hand-over and a wake-up (5-10 us each), and enters and leaves with one atomic exchange each. A
// thread of the lane's own is made at the first asynchronous task, and sleeps while there is
// nothing to do.
//
// A ticket is finished, and its callbacks run, after the lane is free for the next task: a callback
// may wait for another ticket of the lane (one on a failed operation, for those queued behind it),
// which some other thread must then finish. So there are as many threads as callbacks that wait
// inside each other, plus one.
class Lane {
 public:
  using Task = std::function<void()>;  // throws taco::Error to fail its ticket

  Lane();
  // Stops, if that was not done. In a forked child it only forgets what it has.
  ~Lane();
  Lane(const Lane&) = delete;

  // `onError` runs on the executing thread after a task threw, before the next task begins. Set it
  // before the first task.
  void setErrorHandler(std::function<void(const Error&)> onError);

  // Returns when done; why the task failed, if it did.
  std::optional<Error> runNow(FunctionRef<void()> task);
  TicketPtr runLater(Task task);  // returns at once

  // Whether a task of this lane runs on the calling thread: a callback of an operation asks.
  bool runsHere() const;

  // Waits until everything submitted has run; false at the deadline.
  bool drain(const Deadline& deadline);

  // No task is accepted any more (their tickets fail with `why`); queued ones fail too. Returns
  // when the running one is over and the threads have ended - but for the calling one, if a task or
  // a callback ends the group.
  void stop(const Error& why);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the threads: one may outlive the lane (see stop)
};

}  // namespace taco
