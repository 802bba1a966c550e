"""B49 (pytorch#85628): the table of supported operations in the docs said other things than the code did.

Every operation is called with every dtype and every reduction; what works is what docs/operations.md says, on
every layout.
"""

import importlib.util
import pathlib

import pytest
import torch

import operations
import ranks

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "torch" / "operations_table.py"


def load():
    spec = importlib.util.spec_from_file_location("operations_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


table = load()


def everything(rank, world):
    return *table.probe(rank, world), table.others(rank, world) if world == 2 else None


@pytest.mark.parametrize("layout", ranks.layouts(2), ids=str)
def test_docs_say_what_works(pool):
    for found in pool.run(everything):
        assert table.PATH.read_text() == table.text(*found), "run `make docs` (tests/torch/operations_table.py)"


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_what_has_a_meaning_works(pool):
    """Against the catalogue's own idea of what must work, so that a lost dtype is not merely documented."""
    for moving, reducing, other in pool.run(everything):
        names = [table.name_of(dtype) for dtype in operations.DTYPES]
        for operation, dtypes in moving.items():
            assert dtypes == names, operation
        for operation, found in reducing.items():
            for reduction, dtypes in found.items():
                want = [table.name_of(dtype) for dtype in operations.DTYPES
                        if reduction in operations.reductions(dtype, operation)]
                assert dtypes == want, (operation, reduction)
        assert other is None or all(other.values()), other


def every_plain_call(rank, world):
    """One call of each function of torch.distributed that communicates, the way a script writes it."""
    import torch.distributed as dist

    ones = torch.ones(2)
    several = [torch.empty(2) for _ in range(world)]
    dist.broadcast(ones, 0)
    dist.all_reduce(ones.clone())
    dist.reduce(ones.clone(), 0)
    dist.all_gather(several, ones)
    dist.all_gather_into_tensor(torch.empty(2 * world), ones)
    dist._all_gather_base(torch.empty(2 * world), ones)
    dist.gather(ones, several if rank == 0 else None, 0)
    dist.scatter(torch.empty(2), several if rank == 0 else None, 0)
    dist.reduce_scatter(torch.empty(2), [ones] * world)
    dist.reduce_scatter_tensor(torch.empty(2), ones.repeat(world))
    dist._reduce_scatter_base(torch.empty(2), ones.repeat(world))
    dist.all_to_all_single(torch.empty(2 * world), ones.repeat(world))
    dist.all_to_all(several, [ones] * world)
    dist.barrier()
    dist.barrier(device_ids=None, async_op=True).wait()


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_every_plain_call(pool):
    pool.run(every_plain_call)
