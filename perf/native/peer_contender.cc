// A peer, behind the C interface of peer.h.

#include <dlfcn.h>

#include <stdexcept>

#include "csrc/base/format.h"
#include "perf/native/contender.h"
#include "perf/native/peer.h"

namespace taco::perf {
namespace {

class Peer : public Contender {
 public:
  Peer(const PeerOption& option, StartLine& startLine) : option_(option) {
    // Never closed: MPI libraries keep threads and exit handlers.
    void* library = ::dlopen(option.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail("cannot be loaded", ::dlerror());
    using Entry = const TacoPeer* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, "tacoPeer"));
    if (entry == nullptr) fail("is no peer", ::dlerror());
    peer_ = entry();
    TacoPeerJob job{};
    job.rank = startLine.rank();
    job.size = startLine.size();
    job.argument = option_.argument.c_str();
    job.exchange = [](void* context, const void* own, void* all, size_t bytesEach) {
      static_cast<StartLine*>(context)->exchange(own, all, bytesEach);
    };
    job.context = &startLine;
    if (peer_->init(&job) != TACO_PEER_OK) fail("cannot start", peer_->lastError());
  }
  ~Peer() override { peer_->finish(); }

  std::string name() const override { return option_.name; }
  std::string describe() const override { return peer_->describe(); }
  std::string algorithm(const Call&) const override { return ""; }
  std::string settings() const override { return option_.settings; }

  bool run(const Call& call) override {
    const int answer = perform(call, static_cast<int>(call.type));
    if (answer == TACO_PEER_FAILED)
      fail(str("failed at ", perf::name(call.operation)), peer_->lastError());
    return answer == TACO_PEER_OK;
  }

 private:
  int perform(const Call& call, int type) {
    switch (call.operation) {
      case Operation::kAllReduce:
        return peer_->allReduce ? peer_->allReduce(call.in, call.countEach, type)
                                : TACO_PEER_UNSUPPORTED;
      case Operation::kBroadcast:
        return peer_->broadcast ? peer_->broadcast(call.in, call.countEach, type, 0)
                                : TACO_PEER_UNSUPPORTED;
      case Operation::kAllGather:
        return peer_->allGather ? peer_->allGather(call.in, call.out, call.countEach, type)
                                : TACO_PEER_UNSUPPORTED;
      case Operation::kReduceScatter:
        return peer_->reduceScatter ? peer_->reduceScatter(call.in, call.out, call.countEach, type)
                                    : TACO_PEER_UNSUPPORTED;
      case Operation::kAllToAll:
        return peer_->allToAll ? peer_->allToAll(call.in, call.out, call.countEach, type)
                               : TACO_PEER_UNSUPPORTED;
    }
    return TACO_PEER_UNSUPPORTED;
  }

  [[noreturn]] void fail(const std::string& what, const char* why) const {
    throw std::runtime_error(str("the peer ", option_.name, " (", option_.path, ") ", what, ": ",
                                 why ? why : "no reason given"));
  }

  const PeerOption option_;
  const TacoPeer* peer_ = nullptr;
};

}  // namespace

std::unique_ptr<Contender> makePeer(const PeerOption& option, StartLine& startLine) {
  return std::make_unique<Peer>(option, startLine);
}

}  // namespace taco::perf
