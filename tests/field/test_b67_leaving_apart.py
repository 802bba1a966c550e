"""B67 (pytorch#123969): rank 0 left first, and the others crashed or complained when they left later."""

import os
import time

import pytest
import torch
import torch.distributed as dist

import ranks
import scripts

WORK = """
import os, time, torch, torch.distributed as dist
dist.init_process_group(BACKEND)
rank, world = dist.get_rank(), dist.get_world_size()
tensor = torch.ones(1000)
dist.all_reduce(tensor)
dist.all_reduce(tensor, async_op=True).wait()
assert tensor.unique().item() == world * world
if world > 1:
    works = [dist.isend(tensor, (rank + 1) % world), dist.irecv(torch.empty(1000), (rank - 1) % world)]
    for work in works: work.wait()
"""
LEAVING = {
    # As reported: the others destroy the group 3 s later.
    "destroy_late": WORK + "time.sleep(3 if rank else 0)\ndist.destroy_process_group()\n",
    "no_destroy": WORK + "time.sleep(rank * 0.5)\n",
    "last_first": WORK + "time.sleep((world - rank) * 0.5)\ndist.destroy_process_group()\n",
    "some_destroy": WORK + "time.sleep(0.5 * rank)\nif rank % 2: dist.destroy_process_group()\n",
}


def leave_after_the_host(rank, world):
    """Rank 0 hosts the store: when it has gone, there is no store any more."""
    for async_op in (False, True):
        tensor = torch.ones(1000)
        work = dist.all_reduce(tensor, async_op=async_op)
        if async_op:
            work.wait()
    pids = torch.zeros(world, dtype=torch.int64)
    pids[rank] = os.getpid()
    dist.all_reduce(pids)
    if rank == 0:
        return
    # Rank 0 is a zombie until the test, its parent, looks at it.
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pids[0]}/stat") and time.monotonic() < deadline:
        with open(f"/proc/{pids[0]}/stat") as file:
            if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                break
        time.sleep(0.01)
    assert time.monotonic() < deadline, "rank 0 did not leave"


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("way", LEAVING)
def test_quiet(layout, way):
    scripts.assert_clean(scripts.run(LEAVING[way], layout.world, env=layout.env), quiet=True)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_after_the_store(layout):
    outcomes = ranks.run(leave_after_the_host, layout.world, env=layout.env, host_stays=False)
    for outcome in outcomes:
        assert outcome.exit_code == 0 and outcome.stderr == "", outcome.describe()
