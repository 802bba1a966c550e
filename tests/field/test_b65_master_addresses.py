"""B65 (pytorch#52040): MASTER_ADDR ::1, [::1], localhost, and what else names this host; quiet, too, where one of the
two address families is missing."""

import socket
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import launching
import ranks


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def meet(rank, world):
    dist.init_process_group(ranks.BACKEND, init_method="taco://" if ranks.IS_TACO else "env://",
                            timeout=timedelta(seconds=30))
    tensor = torch.full((10,), rank + 1.0)
    dist.all_reduce(tensor)
    return tensor.unique().tolist()


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1", "[::1]", socket.gethostname()])
def test_meet(address):
    if ":" in address and not has_ipv6():
        pytest.skip("this machine has no IPv6 loopback address")
    if address == "[::1]" and not ranks.IS_TACO:
        pytest.skip("torch's env:// takes no brackets")
    port = launching.free_port()
    outcomes = ranks.run(meet, 2, init=False, env={"MASTER_ADDR": address, "MASTER_PORT": port,
                                                   "TORCHELASTIC_USE_AGENT_STORE": "False"})
    for outcome in outcomes:
        assert outcome.value == [3.0]
        if ranks.IS_TACO:
            assert outcome.stderr == "", outcome.stderr
