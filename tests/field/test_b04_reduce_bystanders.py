"""B04 (pytorch#76527): reduce used the buffers of ranks other than the destination as scratch space.

Buffers that an operation does not write by contract keep every bit: those of reduce's other ranks, and all
inputs of the operations that are not in place (operations.Operation.run compares them).
"""

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def reduce_of_matrices(rank, world):
    tensors = [torch.tensor([[1.0, 2], [3, 4]]) + 3 * r for r in range(world)]
    for destination in range(world):
        mine = tensors[rank].clone()
        dist.reduce(mine, destination)
        want = sum(tensors) if rank == destination else tensors[rank]
        assert torch.equal(mine, want), (destination, mine)


def bystanders(rank, world, dtype):
    reduce = operations.OPERATIONS["reduce"]
    for numel in [1, 7, 4096, 100_003]:
        for case in operations.sweep(reduce, rank, world, (numel,), [dtype], all_reductions=numel < 100):
            reduce.run(case, async_op=numel == 7)


def inputs_kept(rank, world, name):
    operation = operations.OPERATIONS[name]
    for numel in [1, 4097, 600_001]:
        for case in operations.sweep(operation, rank, world, (numel,)):
            operation.run(case)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_as_reported(pool):
    pool.run(reduce_of_matrices)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", operations.ARITHMETIC, ids=str)
def test_every_dtype(pool, dtype):
    pool.run(bystanders, dtype)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_inputs_of_every_operation(pool, name):
    pool.run(inputs_kept, name)
