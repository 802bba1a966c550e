"""B18 (pytorch#147064): W3, timeout 10 s, 64 MB all_reduce in a loop, SIGKILL rank 2: the others fail fast and name it.
Also while the group is made, and rank 0, which hosts the store. /dev/shm is as before, and the survivors make a new
group in the same processes. (Every operation, point and way to die: tests/csrc/communicator/faults_test.cc,
tests/torch/test_dying_ranks.py.)"""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import failing
import ranks
import shm

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's failures")

WORLD = 3
TIMEOUT_SECONDS = 10.0
INIT_TIMEOUT_SECONDS = 4.0
LAYOUTS = [layout for layout in ranks.LAYOUTS if layout.world == WORLD]


def in_a_loop(rank, world, port):
    tensor = torch.ones(16 << 20)
    dist.all_reduce(tensor)
    if rank == 2:
        dist.all_reduce(tensor, async_op=True)
        time.sleep(0.02)  # in the middle of it
        os.kill(os.getpid(), signal.SIGKILL)
    text = failing.failure(lambda: [dist.all_reduce(tensor) for _ in range(1000)],
                           TIMEOUT_SECONDS + failing.SLACK_SECONDS)
    dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", port, world - 1, is_master=rank == 0)
    dist.init_process_group("taco", store=store, rank=rank, world_size=world - 1, timeout=timedelta(seconds=60))
    tensor.fill_(rank + 1.0)
    dist.all_reduce(tensor)
    assert tensor.min() == tensor.max() == 3.0
    dist.barrier()
    return text


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_killed_in_a_loop(layout):
    before = shm.names()
    with ranks.socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outcomes = ranks.run(in_a_loop, WORLD, port, env=layout.env, dies=[2], group_timeout=TIMEOUT_SECONDS)
    for outcome in outcomes[:2]:
        assert failing.names_rank(outcome.value, 2), outcome.value
        assert failing.names_operation(outcome.value, "all_reduce"), outcome.value
    assert shm.leftovers(before) == set()


def during_init(rank, world, victim, point):
    import torch_taco

    if rank == victim:
        torch_taco._group.extension()._set_fault_point(point, 1, "kill")
    return failing.failure(lambda: ranks.init_group(timeout=INIT_TIMEOUT_SECONDS),
                           INIT_TIMEOUT_SECONDS + failing.SLACK_SECONDS)


@pytest.mark.parametrize("layout", LAYOUTS[:1], ids=str)
@pytest.mark.parametrize("victim, point", [(2, "init.proved"), (0, "init.segment_made"), (1, "init.attaching")])
def test_killed_during_init(layout, victim, point):
    """Without the store's host nobody can say who is missing, but that it has gone: the address names it."""
    before = shm.names()
    outcomes = ranks.run(during_init, WORLD, victim, point, env=layout.env, dies=[victim], init=False)
    for outcome in outcomes:
        if outcome.rank == victim:
            assert outcome.exit_code == -signal.SIGKILL, outcome.describe()
        else:
            assert failing.names_rank(outcome.value, victim) or (victim == 0 and "store" in outcome.value), outcome.value
    assert shm.leftovers(before) == set()
