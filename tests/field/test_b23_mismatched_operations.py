"""B23 (pytorch#22071): rank 0 called all_reduce then broadcast, rank 1 the reverse: a hang, or garbage.

Ranks that call different operations, or one operation with different arguments, all get an error that names
both sides.
"""

import itertools

import pytest
import torch
import torch.distributed as dist

import failing
import operations
import ranks

TIMEOUT = 6.0
KINDS = ["broadcast", "all_reduce", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"]
PAIRS = list(itertools.combinations([*KINDS, "barrier"], 2))


def call(name, rank, world, group, reduction="SUM", root=0):
    if name == "barrier":
        dist.barrier(group=group)
        return
    case = operations.Case(rank, world, (64,), torch.float32, reduction, root, group)
    operation = operations.OPERATIONS[name]
    for work in operation.issue(case, *operation.buffers(case), False):
        work.wait()


def both_orders(rank, world, pairs):
    """The last rank has the two operations the other way round."""
    texts = []
    for names in pairs:
        group = failing.group_of_all(TIMEOUT)
        mine = names if rank != world - 1 else names[::-1]
        texts.append(failing.failure(lambda: [call(name, rank, world, group) for name in mine], TIMEOUT - 1))
    after(rank, world)
    return texts


def check(pairs, outcomes):
    """At once, not by the timeout. A rank that was done with its first operation before anybody disagreed (a
    root that only gives) is in its second one by then: it tells that from the numbers of the operations."""
    for index, names in enumerate(pairs):
        texts = [outcome.value[index] for outcome in outcomes]
        assert any(all(failing.names_operation(text, name) for name in names) for text in texts), (names, texts)
        for text in texts:
            assert all(failing.names_operation(text, name) for name in names) or \
                "operation 1" in text and "operation 2" in text, (names, text)


def after(rank, world):
    group = failing.group_of_all(60.0)
    operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (9,), group=group))


def different_arguments(rank, world):
    """The same operation, but with another root or another reduction."""
    for name in ("broadcast", "reduce", "gather", "scatter"):
        group = failing.group_of_all(TIMEOUT)

        def other_root():
            call(name, rank, world, group, root=int(rank == world - 1))
            dist.barrier(group=group)

        text = failing.failure(other_root, TIMEOUT + failing.SLACK_SECONDS)
        assert failing.names_operation(text, name), text
    for name in ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_reduce_coalesced"):
        group = failing.group_of_all(TIMEOUT)

        def other_reduction():
            call(name, rank, world, group, reduction="MAX" if rank == world - 1 else "SUM")
            dist.barrier(group=group)

        text = failing.failure(other_reduction, TIMEOUT + failing.SLACK_SECONDS)
        assert "SUM" in text and "MAX" in text, text
    after(rank, world)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_as_reported(layout):
    pairs = [("all_reduce", "broadcast")]
    check(pairs, ranks.run(both_orders, layout.world, pairs, env=layout.env))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("first", [*KINDS])
def test_every_pair(layout, first):
    pairs = [pair for pair in PAIRS if pair[0] == first]
    check(pairs, ranks.run(both_orders, layout.world, pairs, env=layout.env))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_arguments(layout):
    ranks.run(different_arguments, layout.world, env=layout.env)
