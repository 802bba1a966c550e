"""B36 (pytorch PR#70605): counts above 2^31 were cut to 32 bits.

The real size needs 5 GiB on 2 ranks: `make test-large`. In CI the same code runs with 2^31 replaced by 2^24,
at which a 24-bit count (a float's exact integers) or a chunk count in 8 bits would break.
"""

import pytest
import torch
import torch.distributed as dist

import ranks

EDGE_IN_CI = 1 << 24


def broadcast_with_markers(rank, world, edge):
    count = edge + 5
    markers = {0: 11, edge - 1: 22, edge: 33, count - 1: 44}
    tensor = torch.zeros(count, dtype=torch.uint8)
    if rank == 1:
        for place, value in markers.items():
            tensor[place] = value
    dist.broadcast(tensor, 1)
    for place, value in markers.items():
        assert tensor[place] == value, place
    assert torch.count_nonzero(tensor) == len(markers)


def all_reduce_with_markers(rank, world, edge):
    count = edge + 5
    tensor = torch.ones(count, dtype=torch.int8)
    for place in (0, edge - 1, edge, count - 1):
        tensor[place] = 10 * (rank + 1)
    dist.all_reduce(tensor)
    total = 10 * world * (world + 1) // 2
    for place in (0, edge - 1, edge, count - 1):
        assert tensor[place] == total, place
        tensor[place] = world
    assert tensor.min() == world and tensor.max() == world


def gather_and_send(rank, world, edge):
    count = edge + 5
    tensor = torch.full((count,), rank + 1, dtype=torch.uint8)
    tensor[-1] = 100 + rank
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        assert tensor[-1] == 100 and tensor[0] == 1 and tensor[edge] == 1
    outputs = torch.zeros(world * count, dtype=torch.uint8)
    tensor.fill_(rank + 1)
    dist.all_gather_into_tensor(outputs, tensor)
    for r in range(world):
        part = outputs[r * count:(r + 1) * count]
        assert part.min() == r + 1 and part.max() == r + 1


JOBS = [broadcast_with_markers, all_reduce_with_markers, gather_and_send]


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_smaller(pool, job):
    pool.run(job, EDGE_IN_CI)


@pytest.mark.large
@pytest.mark.parametrize("layout", ranks.layouts(2), ids=str)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_real_size(pool, job):
    pool.run(job, 1 << 31, timeout=900.0)
