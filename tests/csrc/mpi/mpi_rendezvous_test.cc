#include "csrc/mpi/mpi_rendezvous.h"

#include "csrc/base/error.h"
#include "csrc/mpi/mpi_address.h"
#include "csrc/transport/tcp_address.h"
#include "tests/csrc/catch.h"

namespace taco {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("ranks of one machine meet at loopback, others at the interface that leads to them") {
  CHECK(chooseMasterHost({"10.0.0.1", "10.0.0.1"}, {"net a", "net a"}, 0, "") == "127.0.0.1");
  CHECK(chooseMasterHost({"10.0.0.1"}, {""}, 0, "") == "127.0.0.1");
  // 192.0.2.0/24 is nobody's; the route to it is this machine's way out, or there is none.
  CHECK(chooseMasterHost({"x", "192.0.2.7"}, {"net a", "net b"}, 0, "") ==
        chooseHost("", "192.0.2.7"));
  CHECK(chooseMasterHost({"192.0.2.7", "x"}, {"net a", "net b"}, 1, "") ==
        chooseHost("", "192.0.2.7"));
  // Where a network does not tell who it is, it is taken for another one.
  CHECK(chooseMasterHost({"x", "192.0.2.7"}, {"", ""}, 0, "") == chooseHost("", "192.0.2.7"));
  CHECK(chooseMasterHost({"x", "192.0.2.7"}, {"net a", "net b"}, 0, "lo") == "127.0.0.1");
}

TEST_CASE("an address survives its way through the store") {
  MpiAddress address = MpiAddress::ofThisProcess();
  address.job = "cafe";
  address.worldRank = 12;
  const MpiAddress back = MpiAddress::decode(address.encode());
  CHECK(back.job == "cafe");
  CHECK(back.worldRank == 12);
  CHECK(back.machine == address.machine);
  CHECK(back.pid == address.pid);
  CHECK(back.started == address.started);
  CHECK_FALSE(back.isDead(address.machine));
  CHECK(MpiAddress::decode(MpiAddress{"", 0, "", 1, ""}.encode()).machine.empty());
  CHECK_THROWS_WITH(MpiAddress::decode("10.0.0.7:4567 x"),
                    ContainsSubstring("'10.0.0.7:4567 x'") && ContainsSubstring("TACO_TRANSPORT"));
}

TEST_CASE("a rendezvous through MPI outside of mpirun says so") {
  try {
    meetThroughMpi({}, 1234, Deadline::after(Millis(1000)));
    FAIL("no error");
  } catch (const Error& why) {
    CHECK(why.code() == ErrorCode::kInvalidSettings);
    CHECK_THAT(why.what(), ContainsSubstring("a rendezvous without MASTER_ADDR needs MPI"));
  }
}

}  // namespace
}  // namespace taco
