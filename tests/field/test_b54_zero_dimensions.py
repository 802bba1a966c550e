"""B54 (accelerate PR#152): tensors of no dimension came back with one, or were refused."""

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def scalars(rank, world):
    for reduction, want in {"SUM": world * (world + 1) / 2, "AVG": (world + 1) / 2}.items():
        value = torch.tensor(rank + 1.0)
        dist.all_reduce(value, operations.reduce_op(reduction))
        assert value.shape == () and value.item() == want, (reduction, value)
    outputs = [torch.tensor(-1.0) for _ in range(world)]
    dist.all_gather(outputs, torch.tensor(rank + 1.0))
    assert [output.item() for output in outputs] == [r + 1.0 for r in range(world)]
    assert all(output.shape == () for output in outputs)
    # The same, where the output is one tensor or its pieces are views of one.
    together = torch.empty(world)
    dist.all_gather(list(together.unbind()), torch.tensor(rank + 1.0))
    assert together.tolist() == [r + 1.0 for r in range(world)]


def every_operation(rank, world, name):
    operation = operations.OPERATIONS[name]
    for case in operations.sweep(operation, rank, world, (), operations.ARITHMETIC, all_reductions=True):
        operation.run(case)
        operation.run(case, async_op=True)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_as_reported(pool):
    pool.run(scalars)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_every_operation(pool, name):
    pool.run(every_operation, name)
