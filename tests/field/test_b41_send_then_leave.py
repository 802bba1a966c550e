"""B41 (pytorch#78514): a message was lost when its sender destroyed the group before it was received."""

import pytest
import torch
import torch.distributed as dist

import ranks


def send_and_go(rank, world, numel):
    store = dist.distributed_c10d._get_default_store()
    if rank == world - 1:
        # The last rank sends, so that the store's host (rank 0) stays.
        works = [dist.isend(torch.arange(numel).float() + to, to, tag=to) for to in range(world - 1)]
        for work in works:
            work.wait()
        dist.destroy_process_group()
        store.set("sender has left", "yes")
        return
    store.wait(["sender has left"])
    out = torch.zeros(numel)
    dist.recv(out, world - 1, tag=rank)
    assert out.equal(torch.arange(numel).float() + rank)
    # Only now may rank 0, which hosts the store, go.
    if store.add("received", 1) == world - 1:
        store.set("all received", "yes")
    store.wait(["all received"])


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("numel", [0, 1, 16, 1000])
def test_data_arrives(layout, numel):
    ranks.run(send_and_go, layout.world, numel, env=layout.env)


def send_large_and_go(rank, world, numel):
    """wait() on a large send may last until the receiver is there, but what it promised arrives."""
    if rank == world - 1:
        dist.isend(torch.arange(numel), 0).wait()
        dist.destroy_process_group()
    elif rank == 0:
        out = torch.zeros(numel, dtype=torch.int64)
        dist.recv(out, world - 1)
        assert out.equal(torch.arange(numel))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("numel", [10_000, 1_000_000])
def test_large_data_arrives(layout, numel):
    ranks.run(send_large_and_go, layout.world, numel, env=layout.env)
