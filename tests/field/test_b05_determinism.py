"""B05 (pytorch#36871): sums differed between ranks and from run to run.

The same inputs give the same bytes: on all ranks, each time, in a group made anew, synchronous or not.
"""

import hashlib

import pytest
import torch
import torch.distributed as dist

import ranks

REPEATS = 50
SUMS = ["all_reduce", "reduce_scatter_tensor", "reduce"]


def sum_once(rank, world, name, dtype, group, async_op):
    """The bytes of the whole sum as this rank gets to know it."""
    mine = torch.randn(10007 * world, generator=torch.Generator().manual_seed(1000 + rank)).to(dtype)
    if name == "all_reduce":
        work = dist.all_reduce(mine, group=group, async_op=async_op)
        result = mine
    elif name == "reduce_scatter_tensor":
        result = torch.empty(10007, dtype=dtype)
        work = dist.reduce_scatter_tensor(result, mine, group=group, async_op=async_op)
    else:
        work = dist.reduce(mine, 0, group=group, async_op=async_op)
        result = mine
    if work is not None:
        work.wait()
    return hashlib.sha256(result.view(torch.uint8).numpy().tobytes()).hexdigest()


def hashes(rank, world, name, dtype):
    found = {sum_once(rank, world, name, dtype, None, i % 2 == 1) for i in range(REPEATS)}
    group = dist.new_group()
    found |= {sum_once(rank, world, name, dtype, group, False) for _ in range(3)}
    dist.destroy_process_group(group)
    return found


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_one_hash(pool, name, dtype):
    found = pool.run(hashes, name, dtype)
    assert all(len(one) == 1 for one in found), found
    if name == "all_reduce":
        assert len(set.union(*found)) == 1, found


@pytest.mark.parametrize("choice", ["0", "1"], ids=["flat", "2d"])
@pytest.mark.parametrize("layout", ranks.layouts(4), ids=str)
def test_each_algorithm(layout, choice):
    """Flat and 2D each give one hash, twice over: a run has no memory of the one before."""
    def env(rank):
        return {**layout.env(rank), "LIGHT_2D_ALLREDUCE": choice, "LIGHT_INTRA_SIZE": "2"}

    found = [outcome.value for _ in range(2)
             for outcome in ranks.run(hashes, 4, "all_reduce", torch.bfloat16, env=env)]
    assert len(set.union(*found)) == 1, found
