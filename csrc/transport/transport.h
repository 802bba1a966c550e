#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "csrc/base/error.h"
#include "csrc/transport/frame.h"

namespace taco {

// Ordered message channels between this rank and every other rank of its group. One thread at a
// time uses a transport, except for wake() and waitReady(). TCP is the first of them; MPI and verbs
// have the same shape: frames in order between two ranks, progressed by whoever waits.
//
// Callbacks (Receiver, onSent) run inside progress() or send(). They may call send(), watch(),
// resume(), discardPayload() and detachPayload(), not progress(), fail() or close().
//
// In a forked child every method does nothing: the connections are the parent's.
class Transport {
 public:
  // Who decides where arriving frames go. Called from inside progress().
  class Receiver {
   public:
    virtual ~Receiver() = default;

    struct Landing {
      bool accepted = false;  // false: nobody wants it yet; the channel stays paused until resume()
      void* data = nullptr;   // where header.bytes bytes of payload go; null: they are dropped
      bool nonsense = false;  // no rank of ours would send it: the peer is cut off
    };
    virtual Landing onHeader(int peer, const FrameHeader& header) = 0;
    // The payload of an accepted frame has arrived completely.
    virtual void onArrived(int peer, const FrameHeader& header) = 0;

    enum class Loss {
      kLeft,    // it said goodbye; everything that it sent before has been delivered
      kFailed,  // it told why it failed: `why` is its own reason
      kDied,    // without a word
    };
    // The channel is gone. Called once a peer.
    virtual void onLost(int peer, const Error& why, Loss how) = 0;
  };

  virtual ~Transport() = default;

  virtual const char* kind() const = 0;  // "tcp"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void setReceiver(Receiver* receiver) = 0;

  // Queues a frame. Payload memory must stay valid until `onSent` runs (inside a later progress()
  // or inside this call). Connects to the peer at the first frame. A lost peer: onLost is called
  // from the next progress(), onSent never.
  virtual void send(int peer, const FrameHeader& header, const void* payload,
                    std::function<void()> onSent) = 0;

  // The same for a payload whose memory is free again when this returns: what cannot go at once is
  // copied.
  virtual void sendCopy(int peer, const FrameHeader& header, const void* payload) = 0;

  // Somebody waits for this peer: makes sure that its death would be noticed.
  virtual void watch(int peer) = 0;

  // A frame that onHeader refused may be offered again.
  virtual void resume(int peer) = 0;

  // The rest of a payload that is arriving from `peer` is dropped: the memory that its landing
  // named is not touched again. onArrived still comes.
  virtual void discardPayload(int peer) = 0;

  // Frames to `peer` whose payload begins in [data, data + bytes) go on from a private copy: the
  // caller's memory is not touched again. onSent still comes.
  virtual void detachPayload(int peer, const void* data, size_t bytes) = 0;

  // Does what can be done; sleeps up to `maxWait` if there is nothing to do (0: never sleeps).
  // Returns true if anything moved.
  virtual bool progress(std::chrono::nanoseconds maxWait) = 0;

  // Sleeps until progress(0) has something to do, wake() is called or `maxWait` is over. Unlike a
  // sleep in progress() it needs no exclusion: another thread may send meanwhile.
  virtual void waitReady(std::chrono::nanoseconds maxWait) = 0;

  // Ends a sleep in progress() or waitReady(); callable from any thread.
  virtual void wake() = 0;

  // Tells every connected peer why this rank gives up (as far as possible without waiting), drops
  // all queued frames and closes. No memory of the caller is touched afterwards.
  virtual void fail(const Error& why) = 0;

  // Orderly end: goodbye to every connected peer, then waits up to `maxWait` until their kernels
  // have taken everything that was sent.
  virtual void close(std::chrono::milliseconds maxWait) = 0;

  virtual uint64_t bytesSent() const = 0;  // payload and headers, since construction
  virtual uint64_t bytesReceived() const = 0;
};

}  // namespace taco
