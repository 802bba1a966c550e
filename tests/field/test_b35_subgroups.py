"""B35 (pytorch#40633): groups without rank 0, and groups of one, hung or crashed."""

import itertools

import pytest
import torch
import torch.distributed as dist

import operations
import ranks

SOLO = [ranks.Layout("1x1", 1), ranks.Layout("mesh1", 1, mesh=True)]


def every_operation(rank, group_rank, size, group):
    for operation in operations.OPERATIONS.values():
        for shape in [(5,), (), (0,), (3, 1001)]:
            for case in operations.sweep(operation, group_rank, size, shape, [torch.float32, torch.int64],
                                         group=group):
                operation.run(case, async_op=shape == (5,))


def every_subset(rank, world):
    """Barrier first, then everything, in every subset; the other ranks go on."""
    for size in range(1, world + 1):
        for members in itertools.combinations(range(world), size):
            group = dist.new_group(list(members))
            if rank in members:
                dist.barrier(group=group)
                assert dist.get_world_size(group) == size
                every_operation(rank, members.index(rank), size, group)
                dist.destroy_process_group(group)
    dist.barrier()


def overlapping(rank, world):
    """Groups that share ranks, used in turn."""
    pairs = [sorted({i, (i + 1) % world}) for i in range(world)]
    groups = [dist.new_group(pair) for pair in pairs]
    for step in range(20):
        for pair, group in zip(pairs, groups):
            if rank in pair:
                value = torch.tensor([float(rank + step)])
                dist.all_reduce(value, group=group)
                assert value.item() == sum(pair) + step * len(pair)
    for pair, group in zip(pairs, groups):
        if rank in pair:
            dist.destroy_process_group(group)


def whole_world(rank, world):
    dist.barrier()
    every_operation(rank, rank, world, None)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_every_subset(pool):
    pool.run(every_subset)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_overlapping(pool):
    pool.run(overlapping)


@pytest.mark.parametrize("layout", SOLO, ids=str)
def test_world_of_one(layout):
    ranks.run(whole_world, 1, env=layout.env)
