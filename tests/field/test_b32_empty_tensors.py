"""B32 (pytorch#85234): tensors without elements crashed or hung operations, or came back with another shape."""

import pytest
import torch

import layouts
import operations
import ranks


def empty(rank, world, name):
    operation = operations.OPERATIONS[name]
    for shape in [(0,), (1, 0, 2), (0, 3), (2, 0)]:
        dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
        for case in operations.sweep(operation, rank, world, shape, dtypes, all_reductions=True):
            for async_op in (False, True):
                operation.run(case, async_op=async_op)
    # The operations before and after keep their order and contents.
    operation.run(operations.Case(rank, world, (5,)))
    operation.run(operations.Case(rank, world, (0, 4)), layouts.transposed)
    operation.run(operations.Case(rank, world, (5,)))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_every_operation(pool, name):
    pool.run(empty, name)
