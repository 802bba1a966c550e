#include "csrc/transport/tcp_address.h"

#include "csrc/base/error.h"
#include "csrc/transport/tcp_listener.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("addresses survive their text") {
  for (const auto& [host, text] : {std::pair<std::string, std::string>("10.1.2.3", "10.1.2.3:77"),
                                   {"fd00::2", "[fd00::2]:77"},
                                   {"::1", "[::1]:77"}}) {
    const TcpAddress address{host, 77, "net/1"};
    CHECK(address.hostAndPort() == text);
    const TcpAddress back = TcpAddress::decode(address.encode());
    CHECK(back.host == host);
    CHECK(back.port == 77);
    CHECK(back.networkId == "net/1");
  }
  CHECK(TcpAddress::decode("1.2.3.4:5 ").networkId == "");
}

TEST_CASE("what is not an address is refused") {
  for (const char* text : {"", " ", ":", "1.2.3.4", "1.2.3.4:5", "1.2.3.4: x", "host:5 x",
                           "1.2.3.4:99999 x", "1.2.3.4:5y x", "[::1:5 x", "[]:5 x", ":5 x"}) {
    INFO("'" << text << "'");
    CHECK_THROWS_WITH(TcpAddress::decode(text), ContainsSubstring("which is not one of TACO's"));
  }
}

TEST_CASE("the network id is one per network namespace") {
  CHECK(localNetworkId() == localNetworkId());
  CHECK(localNetworkId().size() > 36);  // a boot id, and more
}

TEST_CASE("the interface of the setting is used, or the error lists what there is") {
  CHECK(chooseHost("lo", "") == "127.0.0.1");
  CHECK(chooseHost("none0,lo", "192.0.2.1") == "127.0.0.1");
  CHECK_THROWS_WITH(chooseHost("none0", ""),
                    ContainsSubstring("TACO_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) is 'none0'") &&
                        ContainsSubstring("lo (127.0.0.1)"));
  try {
    chooseHost("none0", "");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidSettings);
  }
}

TEST_CASE("without a setting the host is some address of this machine") {
  // MASTER_ADDR may be anything; a loopback one says nothing about how others reach this machine.
  const std::string fallback = chooseHost("", "");
  CHECK(chooseHost("", "127.0.0.1") == fallback);
  CHECK(chooseHost("", "localhost") == fallback);
  CHECK(chooseHost("", "[::1]") == fallback);
  CHECK(chooseHost("", "no such host.invalid") == fallback);
  CHECK(socketAddress(fallback, 1).length > 0);
}

TEST_CASE("a listener publishes where it listens") {
  const TcpListener first("lo", ""), second("", "127.0.0.1");
  CHECK(first.where().host == "127.0.0.1");
  CHECK(first.where().port != 0);
  CHECK(first.where().port != second.where().port);
  // Neighbours come to 127.0.0.1 where it listens everywhere, to its address where it does not.
  CHECK(TcpAddress::decode(second.address()).networkId == localNetworkId());
  CHECK(TcpAddress::decode(first.address()).networkId.empty());
}

}  // namespace
}  // namespace taco
