"""B58 (pytorch#83289): a barrier that names the ranks that do not come. W4, timeout 3 s, rank 2 absent."""

import time
from datetime import timedelta

import pytest
import torch.distributed as dist

import failing
import ranks

TIMEOUT_SECONDS = 3.0


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
