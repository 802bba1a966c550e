"""B33 (pytorch#146468): all_to_all_single with uneven splits and an empty side hung; splits that do not match
went unnoticed."""

import pytest
import torch
import torch.distributed as dist

import failing
import operations
import ranks


def as_reported(rank, world):
    if rank == 0:
        out = torch.empty(1, dtype=torch.int64)
        dist.all_to_all_single(out, torch.tensor([10, 11]), output_split_sizes=[1, 0], input_split_sizes=[1, 1])
        assert out.tolist() == [10]
    else:
        out = torch.empty(1, dtype=torch.int64)
        dist.all_to_all_single(out, torch.empty(0, dtype=torch.int64), output_split_sizes=[1, 0],
                               input_split_sizes=[0, 0])
        assert out.tolist() == [11]


SIZES = {  # elements that rank i sends to rank j
    "triangle": lambda i, j, w: j if j >= i else 0,
    "one_sender": lambda i, j, w: (j + 1) * 1000 if i == w - 1 else 0,
    "one_receiver": lambda i, j, w: i + 1 if j == 0 else 0,
    "nobody": lambda i, j, w: 0,
    "only_self": lambda i, j, w: 3 if i == j else 0,
    "all_different": lambda i, j, w: 7 * i + 13 * j + 1,
    "large": lambda i, j, w: 300_001 * ((i + j) % w),
}


def uneven(rank, world, pattern, dtype):
    size = SIZES[pattern]
    for width in [(), (3,)]:
        def block(i, j):
            return operations.pattern(i, (size(i, j, world), *width), dtype, salt=j)

        mine, others = [block(rank, j) for j in range(world)], [block(i, rank) for i in range(world)]
        given, want = torch.cat(mine), torch.cat(others)
        for async_op in (False, True):
            out = operations.blank(want.shape, dtype)
            work = dist.all_to_all_single(out, given, [len(b) for b in others], [len(b) for b in mine],
                                          async_op=async_op)
            if async_op:
                work.wait()
            assert operations.same_bits(out, want), (pattern, operations.short(out), operations.short(want))
        outs = [operations.blank(one.shape, dtype) for one in others]
        dist.all_to_all(outs, mine)
        assert all(map(operations.same_bits, outs, others)), pattern


def wrong_sums(rank, world):
    """Splits that do not add up to the tensor are the caller's fault: refused before anything is sent."""
    if rank == 0:
        for outputs, inputs in [([1] * world, [2] * world), ([2] * world, [1] * world),
                                ([1] * (world + 1), [1] * world), ([1] * world, [1] * (world - 1) + [2])]:
            with pytest.raises((RuntimeError, ValueError)) as raised:
                dist.all_to_all_single(torch.empty(world), torch.ones(world), outputs, inputs)
            assert str(raised.value)
    operations.OPERATIONS["all_to_all_single"].run(operations.Case(rank, world, (4,)))


def disagreeing(rank, world):
    """Splits that fit each rank's tensors, but not each other."""
    for sent, awaited in [(3, 2), (2, 3), (1, 0), (50_000, 49_999)]:
        group = failing.group_of_all(6.0)
        inputs = [sent if rank == 0 and j == world - 1 else 1 for j in range(world)]
        outputs = [awaited if rank == world - 1 and i == 0 else 1 for i in range(world)]

        def call():
            dist.all_to_all_single(torch.empty(sum(outputs)), torch.ones(sum(inputs)), outputs, inputs, group=group)
            dist.barrier(group=group)

        text = failing.failure(call, 6.0 + failing.SLACK_SECONDS)
        if rank == world - 1:
            for size in (sent, awaited):
                assert failing.names_number(text, size) or failing.names_number(text, 4 * size), (size, text)
    again = failing.group_of_all(60.0)
    operations.OPERATIONS["all_to_all_single"].run(operations.Case(rank, world, (4,), group=again))


@pytest.mark.parametrize("layout", ranks.layouts(2), ids=str)
def test_as_reported(pool):
    pool.run(as_reported)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("pattern", SIZES)
def test_uneven(pool, pattern):
    for dtype in [torch.int64, torch.bfloat16, torch.uint8] if pattern != "large" else [torch.float32]:
        pool.run(uneven, pattern, dtype)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_sums_are_checked(pool):
    pool.run(wrong_sums)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_inconsistent_splits_fail_fast(layout):
    ranks.run(disagreeing, layout.world, env=layout.env)
