#include "csrc/communicator/endpoint.h"

#include "csrc/mpi/mpi_job.h"
#include "csrc/mpi/mpi_transport.h"
#include "csrc/transport/tcp_listener.h"
#include "csrc/transport/tcp_transport.h"

namespace taco {
namespace {

class TcpEndpoint : public Endpoint {
 public:
  TcpEndpoint(const std::string& interfaces, const std::string& routeHint)
      : listener_(std::make_unique<TcpListener>(interfaces, routeHint)) {}

  std::string address() const override { return listener_->address(); }

  std::unique_ptr<Transport> connect(const TransportParts& parts) override {
    TcpConfig config;
    config.rank = parts.rank;
    config.size = parts.size;
    config.channel = parts.channel;
    for (size_t i = 0; i < config.secret.size() && i < parts.secret.size(); ++i) {
      config.secret[i] = static_cast<uint8_t>(parts.secret[i]);
    }
    config.addresses = parts.addresses;
    return std::make_unique<TcpTransport>(std::move(config), std::move(listener_));
  }

 private:
  std::unique_ptr<TcpListener> listener_;
};

class MpiEndpoint : public Endpoint {
 public:
  explicit MpiEndpoint(MpiJob& job) : job_(job) {}

  std::string address() const override { return job_.self().encode(); }

  std::unique_ptr<Transport> connect(const TransportParts& parts) override {
    MpiConfig config;
    config.rank = parts.rank;
    config.size = parts.size;
    config.channel = parts.channel;
    config.secret = parts.secret;
    for (const std::string& address : parts.addresses) {
      config.addresses.push_back(MpiAddress::decode(address));
    }
    return std::make_unique<MpiTransport>(std::move(config), job_.port());
  }

 private:
  MpiJob& job_;
};

}  // namespace

std::unique_ptr<Endpoint> Endpoint::open(const Settings& settings,
                                         const std::map<std::string, std::string>& environment,
                                         const Deadline& deadline) {
  switch (settings.transport) {
    case TransportKind::kTcp: {
      const auto master = environment.find("MASTER_ADDR");
      return std::make_unique<TcpEndpoint>(settings.socketInterface,
                                           master == environment.end() ? "" : master->second);
    }
    case TransportKind::kMpi:
      return std::make_unique<MpiEndpoint>(
          MpiJob::join("TACO_TRANSPORT=mpi", environment, settings.mpiLibrary, deadline));
  }
  throw Error(ErrorCode::kInvalidSettings, "unknown transport");
}

}  // namespace taco
