"""B43 (gloo#308): a tensor that the caller dropped while its operation was in flight was freed under it."""

import gc

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def temporaries_sent(rank, world):
    """As reported: 0, 1, 2 with tags 0-2; then the same with sizes that travel in many pieces."""
    for numel in [1, 1000, 1_000_000]:
        to, source = (rank + 1) % world, (rank - 1) % world
        works = [dist.isend(torch.full((numel,), float(i)), to, tag=i) for i in range(3)]
        gc.collect()
        garbage = [torch.full((numel,), -1.0) for _ in range(6)]  # takes freed memory, if any was freed
        for i in (2, 0, 1):
            out = torch.empty(numel)
            dist.recv(out, source, tag=i)
            assert out.min() == i and out.max() == i, (numel, i, out.unique())
        for work in works:
            work.wait()
        del garbage


def dropped_everywhere(rank, world, name):
    """Every operation, asynchronous, its works kept and all tensors dropped but what shows the result."""
    operation = operations.OPERATIONS[name]
    for numel in [1, 1000, 200_000]:
        case = operations.Case(rank, world, (numel,))
        pending = []
        for _ in range(4):
            inputs, outputs = operation.buffers(case)
            works = operation.issue(case, inputs, list(outputs), True)
            pending.append((works, [output.view(-1) for output in outputs]))
            del inputs, outputs
        gc.collect()
        garbage = [torch.full((numel,), -1.0) for _ in range(8)]
        for works, views in pending:
            for work in works:
                work.wait()
            for got, want in zip(views, operation.expected(case), strict=True):
                assert operations.same_bits(got, want.view(-1)), (name, numel)
        del garbage


def results_from_futures(rank, world):
    """Nobody keeps the tensor: it lives in the future."""
    futures = []
    for i in range(10):
        futures.append(dist.all_reduce(torch.full((10_000,), float(i + rank)), async_op=True).get_future())
    gc.collect()
    for i, future in enumerate(futures):
        assert future.wait()[0].unique().tolist() == [i * world + world * (world - 1) / 2]


def works_dropped_too(rank, world):
    """Neither tensors nor works are kept; what follows finds the group in order."""
    for _ in range(20):
        dist.all_reduce(torch.ones(5000), async_op=True)
        dist.all_gather([torch.empty(100) for _ in range(world)], torch.ones(100), async_op=True)
    gc.collect()
    operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (1000,)))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [temporaries_sent, results_from_futures, works_dropped_too],
                         ids=lambda job: job.__name__)
def test_dropped(pool, job):
    pool.run(job)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_every_operation(pool, name):
    pool.run(dropped_everywhere, name)
