"""B01 (pytorch#192920, #24836): operations on strided views gave wrong data without a word.

Every operation must read and write tensors of any memory layout, and nothing beside their elements.
"""

import pytest
import torch
import torch.distributed as dist

import layouts
import operations
import ranks


def broadcast_of_a_column(rank, world):
    for root in range(world):
        base = torch.arange(8).view(4, 2) + 100 * rank
        dist.broadcast(base[:, 0], root)
        first = [0 + 100 * root, 2 + 100 * root, 4 + 100 * root, 6 + 100 * root]
        assert base[:, 0].tolist() == first, base
        assert base[:, 1].tolist() == [1 + 100 * rank, 3 + 100 * rank, 5 + 100 * rank, 7 + 100 * rank], base


def every_placement(rank, world, name):
    operation = operations.OPERATIONS[name]
    for placement in layouts.PLACEMENTS.values():
        for shape in [(4, 3), (), (1, 1), (257, 5)]:
            dtypes = [torch.float32, torch.bfloat16, torch.uint8, torch.complex64, torch.bool, torch.float8_e4m3fn]
            for case in operations.sweep(operation, rank, world, shape,
                                         [d for d in dtypes if operations.reductions(d) or not operation.reduces]):
                operation.run(case, placement, async_op=shape == (4, 3))
    for case in operations.sweep(operation, rank, world, (2, 3, 4, 5)):
        operation.run(case, layouts.channels_last)


def large_views(rank, world, name):
    """Large enough that the contents pass in several chunks."""
    operation = operations.OPERATIONS[name]
    for placement in (layouts.strided, layouts.column, layouts.transposed, layouts.shifted):
        operation.run(operations.Case(rank, world, (1031, 611)), placement)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_as_reported(pool):
    pool.run(broadcast_of_a_column)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_every_operation(pool, name):
    pool.run(every_placement, name)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_large(pool, name):
    pool.run(large_views, name)
