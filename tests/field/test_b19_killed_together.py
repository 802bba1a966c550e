"""B19 (sglang PR#28089): ten times start, all_reduce, kill -9 all: /dev/shm is as at the start."""

import os
import signal

import pytest
import torch
import torch.distributed as dist

import ranks
import shm


def killed(rank, world):
    dist.all_reduce(torch.ones(100_000))
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait([f"here {r}" for r in range(1, world)])
        os.kill(os.getpid(), signal.SIGKILL)
    store.set(f"here {rank}", "yes")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS[:1], ids=str)
def test_ten_times(layout):
    before = shm.names()
    for _ in range(10):
        outcomes = ranks.run(killed, layout.world, env=layout.env, dies=range(layout.world))
        assert [outcome.exit_code for outcome in outcomes] == [-signal.SIGKILL] * layout.world
    assert shm.leftovers(before) == set()
