"""B37 (torch-ccl#56): sizes that are no multiple of a chunk, a page or a vector lost or repeated elements."""

import pytest
import torch

import operations
import ranks

MIB = 1 << 20
AS_REPORTED = [1, 3, 4095, 4097, MIB - 1, MIB + 1, 11 * MIB, 33 * MIB + 1]
# Chunks, slots and inline limits are powers of two: every one of them, and its neighbours.
AROUND_CHUNKS = sorted({max(1, (1 << power) + step) for power in range(5, 23) for step in (-1, 0, 1)})
MOVING = ["broadcast", "all_gather_into_tensor", "all_to_all_single", "send_recv", "scatter", "gather"]
SUMMING = ["all_reduce", "reduce_scatter_tensor", "reduce", "all_reduce_coalesced"]


def sizes(rank, world, name, bytes_list, dtype):
    operation = operations.OPERATIONS[name]
    for size in bytes_list:
        operation.run(operations.Case(rank, world, (max(1, size // dtype.itemsize),), dtype, root=world - 1))


@pytest.mark.parametrize("layout", ranks.layouts(2, 3), ids=str)
@pytest.mark.parametrize("name", [*MOVING, *SUMMING])
def test_as_reported(pool, name):
    pool.run(sizes, name, AS_REPORTED, torch.uint8)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", [*MOVING, *SUMMING])
def test_around_chunks(pool, name):
    pool.run(sizes, name, AROUND_CHUNKS, torch.uint8)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128], ids=str)
def test_around_chunks_in_elements(pool, dtype):
    for name in ("all_reduce", "reduce_scatter_tensor"):
        pool.run(sizes, name, [dtype.itemsize * (size + 1) for size in AROUND_CHUNKS if size < 1 << 18], dtype)
