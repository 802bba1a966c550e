"""B52 (pytorch#156627): uneven all_gather corrupted memory; lists of the wrong length hung the other ranks."""

import pytest
import torch
import torch.distributed as dist

import failing
import operations
import ranks


def uneven_all_gather(rank, world, dtype):
    """Ranks bring different sizes; every rank knows all of them from its list."""
    for first in (2, 0, 1000, 70_001):
        shapes = [(first + 3 * r,) for r in range(world)]
        tensors = [operations.pattern(r, shapes[r], dtype) for r in range(world)]
        outputs = [operations.blank(shape, dtype) for shape in shapes]
        dist.all_gather(outputs, tensors[rank])
        assert all(map(operations.same_bits, outputs, tensors)), (first, outputs)


def wrong_place_of_its_own(rank, world):
    """A tensor that does not fit its own place in the rank's list: the caller's mistake, told to the caller."""
    for listed, brought in [(2, 3), (3, 2), (100_000, 100_001)]:
        outputs = [torch.zeros(listed) for _ in range(world)]
        if rank == world - 1:
            with pytest.raises(ValueError) as raised:
                dist.all_gather(outputs, torch.ones(brought))
            for size in (listed, brought):
                assert failing.names_number(str(raised.value), size), raised.value
        operations.OPERATIONS["all_gather"].run(operations.Case(rank, world, (listed,)))


def unexpected_size(rank, world):
    """The last rank brings another size than the others' lists say."""
    for listed, brought in [(2, 3), (3, 2), (100_000, 100_001)]:
        group = failing.group_of_all(6.0)
        outputs = [torch.zeros(listed) for _ in range(world)]
        if rank == world - 1:
            outputs[-1] = torch.zeros(brought)
        mine = torch.ones(brought if rank == world - 1 else listed)

        def call():
            dist.all_gather(outputs, mine, group=group)
            dist.barrier(group=group)

        text = failing.failure(call, 6.0 + failing.SLACK_SECONDS)
        # The two ranks' own sizes, or those of all parts together, in elements or bytes.
        for one, total in ((listed, listed * world), (brought, listed * (world - 1) + brought)):
            assert any(failing.names_number(text, size) for size in (one, 4 * one, total, 4 * total)), (one, text)


def wrong_lists(rank, world):
    """The caller's mistake is the caller's error; the right call after it finds the others waiting."""
    ones = torch.ones(3)

    def tensors(count):
        return [torch.zeros(3) for _ in range(count)]

    wrong_calls = {
        "gather": [lambda n: dist.gather(ones, tensors(n), dst=0)],
        "scatter": [lambda n: dist.scatter(torch.zeros(3), tensors(n), src=0)],
        "all_gather": [lambda n: dist.all_gather(tensors(n), ones)],
        "reduce_scatter": [lambda n: dist.reduce_scatter(torch.zeros(3), tensors(n))],
        "all_to_all": [lambda n: dist.all_to_all(tensors(n), tensors(world)),
                       lambda n: dist.all_to_all(tensors(world), tensors(n))],
        "all_gather_into_tensor": [lambda n: dist.all_gather_into_tensor(torch.zeros(3 * n), ones)],
        "reduce_scatter_tensor": [lambda n: dist.reduce_scatter_tensor(torch.zeros(3), torch.zeros(3 * n))],
        "all_gather_coalesced": [lambda n: dist.all_gather_coalesced([tensors(1)] * n, [ones])],
    }
    for name, calls in wrong_calls.items():
        for call in calls:
            for count in (world - 1, world + 1):
                if rank == 0:
                    with pytest.raises((ValueError, RuntimeError)) as raised:
                        call(count)
                    if name in ("gather", "scatter", "all_gather", "reduce_scatter", "all_to_all"):
                        assert isinstance(raised.value, ValueError), (name, count, raised.value)
                operations.OPERATIONS[name].run(operations.Case(rank, world, (3,)))
    # A list where none belongs.
    if rank != 0:
        with pytest.raises(ValueError):
            dist.gather(ones, tensors(world), dst=0)
    operations.OPERATIONS["gather"].run(operations.Case(rank, world, (3,)))
    # Tensors of several dtypes in one list.
    if rank == 0:
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            dist.all_gather([*tensors(world - 1), torch.zeros(3, dtype=torch.float64)], ones)
    operations.OPERATIONS["all_gather"].run(operations.Case(rank, world, (3,)))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex64, torch.float8_e5m2], ids=str)
def test_uneven(pool, dtype):
    pool.run(uneven_all_gather, dtype)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_unexpected_size(layout):
    ranks.run(unexpected_size, layout.world, env=layout.env)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [wrong_lists, wrong_place_of_its_own], ids=lambda job: job.__name__)
def test_wrong_lists(pool, job):
    pool.run(job)
