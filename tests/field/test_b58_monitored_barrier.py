"""B58 (pytorch#83289): a barrier that names the ranks that do not come. W4, timeout 3 s, rank 2 absent."""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import failing
import ranks

TIMEOUT_SECONDS = 3.0
VICTIM = 2


def absent(rank, world, wait_all):
    if ranks.IS_TACO:
        import torch_taco

        barrier = torch_taco.monitored_barrier
    else:
        barrier = dist.monitored_barrier
    barrier(timeout=timedelta(seconds=30))  # all are there
    if rank == 2:
        time.sleep(TIMEOUT_SECONDS + failing.SLACK_SECONDS)
        return None
    return failing.failure(lambda: barrier(timeout=timedelta(seconds=TIMEOUT_SECONDS), wait_all_ranks=wait_all),
                           TIMEOUT_SECONDS + failing.SLACK_SECONDS)


@pytest.mark.parametrize("wait_all", [False, True])
def test_everybody_names_the_absent_rank(wait_all):
    outcomes = ranks.run(absent, 4, wait_all)
    for outcome in outcomes:
        if outcome.rank != 2 and (ranks.IS_TACO or outcome.rank == 0):  # gloo's other ranks blame rank 0
            assert failing.names_rank(outcome.value, 2), outcome.value


def dead(rank, world, number):
    """Rank 2 is killed, or stopped, instead of late; it is continued when the others have given up."""
    import torch_taco

    pids = torch.zeros(world, dtype=torch.int64)
    pids[rank] = os.getpid()
    dist.all_reduce(pids)
    torch_taco.monitored_barrier(timeout=timedelta(seconds=30))
    store = dist.distributed_c10d._get_default_store()
    store.set(f"past {rank}", "yes")
    store.wait([f"past {r}" for r in range(world)])
    if rank == VICTIM:
        os.kill(os.getpid(), number)
        return None
    try:
        return failing.failure(lambda: torch_taco.monitored_barrier(timeout=timedelta(seconds=TIMEOUT_SECONDS)),
                               TIMEOUT_SECONDS + failing.SLACK_SECONDS)
    finally:
        if number == signal.SIGSTOP and store.add("gave up", 1) == world - 1:
            os.kill(int(pids[VICTIM]), signal.SIGCONT)


@pytest.mark.skipif(not ranks.IS_TACO, reason="tests torch_taco.monitored_barrier")
@pytest.mark.parametrize("layout", [layout for layout in ranks.LAYOUTS if layout.name in ("1x4", "2x2")], ids=str)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_everybody_names_the_dead_rank(layout, number):
    outcomes = ranks.run(dead, layout.world, number, env=layout.env,
                         dies=[VICTIM] if number == signal.SIGKILL else [])
    for outcome in outcomes:
        if outcome.rank != VICTIM:
            assert failing.names_rank(outcome.value, VICTIM), outcome.value
