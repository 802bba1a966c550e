"""B51 (pytorch#120516): operations inside _coalescing_manager were dropped, or came out in another order."""

import pytest
import torch
import torch.distributed as dist

import operations
import ranks

SIZES = [1, 7, 1000, 4097, 100_001]


def coalesced(rank, world, async_ops, dtype):
    reduce_cases = [operations.Case(rank, world, (n,), dtype) for n in SIZES]
    sums = [case.tensor(i) for i, case in enumerate(reduce_cases)]
    with dist._coalescing_manager(async_ops=async_ops) as manager:
        for tensor in sums:
            dist.all_reduce(tensor)
    if async_ops:
        manager.wait()
    for i, (got, case) in enumerate(zip(sums, reduce_cases)):
        assert operations.same_bits(got, case.reduced(i)), (i, got)

    inputs = [case.tensor(i) for i, case in enumerate(reduce_cases)]
    outputs = [operations.blank((world * n,), dtype) for n in SIZES]
    with dist._coalescing_manager(async_ops=async_ops) as manager:
        for output, tensor in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, tensor)
    if async_ops:
        manager.wait()
    for i, (got, case) in enumerate(zip(outputs, reduce_cases)):
        assert operations.same_bits(got, torch.cat([case.tensor(i, r) for r in range(world)])), i

    inputs = [torch.cat([case.tensor(r) for r in range(world)]) for case in reduce_cases]
    outputs = [operations.blank((n,), dtype) for n in SIZES]
    for name in operations.reductions(dtype)[:2]:
        cases = [operations.Case(rank, world, (n,), dtype, name) for n in SIZES]
        inputs = [torch.cat(case.tensors()) for case in cases]
        with dist._coalescing_manager(async_ops=async_ops) as manager:
            for output, tensor in zip(outputs, inputs):
                dist.reduce_scatter_tensor(output, tensor, operations.reduce_op(name))
        if async_ops:
            manager.wait()
        for got, case in zip(outputs, cases):
            assert operations.same_bits(got, case.reduced(rank)), case
    # An empty manager is nothing.
    with dist._coalescing_manager(async_ops=async_ops):
        pass


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("async_ops", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_as_one_by_one(pool, async_ops, dtype):
    pool.run(coalesced, async_ops, dtype)
