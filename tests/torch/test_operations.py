"""Every operation with every dtype and every reduction, against results computed without communication; the
sizes go from one element to several chunks. docs/operations.md is checked by tests/field/test_b49."""

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def all_dtypes(rank, world, name):
    operation = operations.OPERATIONS[name]
    for shape in [(13,), (7, 5, 31)]:
        for case in operations.sweep(operation, rank, world, shape, operations.DTYPES, all_reductions=True):
            operation.run(case, async_op=shape == (13,))


def several_chunks(rank, world, name):
    operation = operations.OPERATIONS[name]
    for dtype, numel in [(torch.float32, 1_100_001), (torch.bfloat16, 300_001), (torch.int8, 300_001)]:
        operation.run(operations.Case(rank, world, (numel,), dtype, root=world - 1))


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_every_dtype(pool, name):
    pool.run(all_dtypes, name)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_several_chunks(pool, name):
    pool.run(several_chunks, name)


def nan_spreads(rank, world):
    """MIN and MAX treat NaN as torch.minimum and torch.maximum do, whoever brings it."""
    for dtype in operations.FLOATS:
        for source in range(world):
            for name in ("MIN", "MAX", "SUM", "PRODUCT", "AVG"):
                tensor = torch.arange(100).to(dtype)
                if rank == source:
                    tensor[::7] = float("nan")
                dist.all_reduce(tensor, operations.reduce_op(name))
                assert tensor[::7].isnan().all() and tensor.isnan().sum() == 15, (dtype, name, source)


def infinities(rank, world):
    for dtype in operations.FLOATS:
        tensor = torch.tensor([float("inf"), -float("inf"), 1.0, float("inf") if rank else -float("inf")]).to(dtype)
        dist.all_reduce(tensor)
        assert tensor[0] == float("inf") and tensor[1] == -float("inf") and tensor[2] == world
        assert tensor[3].isnan()


def premul_forms(rank, world):
    """The factor of PREMUL_SUM as a number and as a tensor."""
    for factor in (0.25, 1.0 / world, torch.tensor(0.5)):
        for numel in (3, 200_000):
            tensor = torch.full((numel,), float(4 * (rank + 1)))
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
            want = sum(torch.tensor(4.0 * (r + 1)) * factor for r in range(world))
            torch.testing.assert_close(tensor, torch.full((numel,), want.item()), rtol=1e-6, atol=0)


def integers_wrap(rank, world):
    tensor = torch.tensor([100], dtype=torch.int8)
    dist.all_reduce(tensor)
    assert tensor.item() == (100 * world + 128) % 256 - 128
    for value, want in [(7, 7), (-7, -7)]:
        tensor = torch.tensor([value + (rank == 0)])
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        total = value * world + 1
        assert tensor.item() == int(total / world), (value, tensor, want)  # toward zero


def outputs_alias_inputs(rank, world):
    """An output may be the input's own memory, whole or in part."""
    for n in (3, 100_003):
        def mine(r):
            return torch.arange(n, dtype=torch.float32) + 1000 * r

        whole = torch.zeros(world * n)
        part = whole[rank * n:(rank + 1) * n]
        part.copy_(mine(rank))
        dist.all_gather_into_tensor(whole, part)
        assert whole.equal(torch.cat([mine(r) for r in range(world)]))

        part.copy_(mine(rank))
        dist.all_gather(list(whole.chunk(world)), part)
        assert whole.equal(torch.cat([mine(r) for r in range(world)]))

        whole = torch.cat([mine(rank)] * world)
        part = whole[rank * n:(rank + 1) * n]
        dist.reduce_scatter_tensor(part, whole)
        assert part.equal(sum(mine(r) for r in range(world)))

        pieces = [mine(rank) + j for j in range(world)]
        dist.scatter(pieces[rank] if rank == 0 else torch.zeros(n), pieces if rank == 0 else None, src=0)

        gathered = [torch.zeros(n) for _ in range(world)]
        gathered[rank].copy_(mine(rank))
        dist.gather(gathered[rank], gathered if rank == world - 1 else None, dst=world - 1)
        if rank == world - 1:
            assert all(gathered[r].equal(mine(r)) for r in range(world))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [nan_spreads, infinities, premul_forms, integers_wrap, outputs_alias_inputs],
                         ids=lambda job: job.__name__)
def test_edges(pool, job):
    pool.run(job)
