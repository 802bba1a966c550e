"""LIGHT_TOPK_ALLREDUCE=1 and torch_taco.Options(topk=True): which all-reduce is compressed, and what then holds."""

import math
import os

import pytest
import torch
import torch.distributed as dist

import compressed
import failing
import models
import ranks

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's compression: TEST_BACKEND is set")

COUNT = 4000
THRESHOLD = 4 * COUNT  # bytes
ON = {"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_RATIO": "0.01", "LIGHT_TOPK_THRESHOLD": str(THRESHOLD)}


def compressed_by(environment):
    return lambda layout: lambda rank: {**layout.env(rank), **environment}


def is_compressed(tensor, op=dist.ReduceOp.SUM, group=None):
    """All-reduces, and says by the elements that come out whether most were left out."""
    dist.all_reduce(tensor, op=op, group=group)
    return tensor.count_nonzero().item() < tensor.numel() // 2


def one_group_of_everything(rank, world):
    """Several questions to one set of ranks, which cost a start each."""
    what_is_compressed(rank, world)
    compressed.nothing_is_held()  # the buffers above are gone
    exact_is_exact(rank, world)
    error_feedback(rank, world)
    same_bytes_each_time(rank, world)
    not_finite(rank, world)
    storage_dies(rank, world)
    views(rank, world)
    asked_in_a_callback(rank, world)
    return "done"


def what_is_compressed(rank, world):
    types = {torch.float32: True, torch.float16: True, torch.bfloat16: True, torch.float64: False, torch.int32: False,
             torch.complex64: False}
    for dtype, may_be in types.items():
        for off in (-1, 0, 1):  # elements
            count = THRESHOLD // dtype.itemsize + off
            expected = may_be and off >= 0
            assert is_compressed(torch.ones(count, dtype=dtype)) is expected, (dtype, off)
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        given = torch.full((COUNT,), 1.0 + rank)
        assert not is_compressed(given, op), op
        expected = {"MAX": float(world), "MIN": 1.0, "PRODUCT": float(math.factorial(world))}[op.name]
        assert torch.equal(given, torch.full((COUNT,), expected))
    assert is_compressed(torch.ones(COUNT), dist.ReduceOp.AVG)
    assert not is_compressed(torch.ones(COUNT), dist._make_nccl_premul_sum(1.0))
    assert not is_compressed(torch.ones(COUNT, dtype=torch.bool), dist.ReduceOp.SUM)


def exact_is_exact(rank, world):
    import torch_taco

    metric = torch.randn(COUNT, generator=torch.Generator().manual_seed(rank))
    everyones = [torch.randn(COUNT, generator=torch.Generator().manual_seed(one)) for one in range(world)]
    with torch_taco.exact():
        later = dist.all_reduce(metric, async_op=True)  # what counts is where it is called
    later.wait()
    assert torch.allclose(metric, sum(everyones), rtol=1e-5, atol=1e-5)
    assert metric.count_nonzero() == COUNT and torch_taco.residual_stats().count == 0
    dense = dist.new_group(pg_options=torch_taco.Options(topk=False))
    assert not is_compressed(torch.ones(COUNT), group=dense)
    dist.destroy_process_group(dense)


def error_feedback(rank, world):
    """Over 12 steps: what has come out, and what is left, is what went in; exactly, since the numbers are small."""
    import torch_taco

    buffer = torch.empty(COUNT + 1)  # for no grid a multiple of the ranks
    out = torch.zeros(COUNT + 1, dtype=torch.float64)
    given = torch.zeros(COUNT + 1, dtype=torch.float64)
    for step in range(12):
        seeds = [torch.Generator().manual_seed(77 * step + one) for one in range(world)]
        everyones = [torch.randint(-9, 10, (COUNT + 1,), generator=seed).float() for seed in seeds]
        given += sum(everyones).double()
        buffer.copy_(everyones[rank])
        dist.all_reduce(buffer)
        assert models.equal_across_ranks([buffer])
        out += buffer.double()
        assert torch.equal(out + compressed.all_residuals(buffer), given), step
    stats = torch_taco.residual_stats()
    if compressed.backend().residual_of(buffer) is None:
        assert stats == (0, 0, 0.0), "a rank without a column"
    else:
        assert stats.count == 1 and stats.norm > 0 and stats.bytes >= 4 * (COUNT // world)
    return buffer


def same_bytes_each_time(rank, world):
    """A run has no memory of the one before, but for the residual."""
    found = set()
    for _ in range(5):
        buffer = torch.empty(COUNT)
        for step in range(3):
            buffer.copy_(compressed.everyones_gradients(world, step, COUNT)[rank])
            dist.all_reduce(buffer)
        found.add(buffer.numpy().tobytes())
    assert len(found) == 1


def not_finite(rank, world):
    """On one rank, one of them or more than are sent: everybody's result is not finite there, and clean afterwards."""
    import torch_taco

    for bad, many in ((math.nan, 1), (-math.nan, COUNT), (math.inf, COUNT // 2), (-math.inf, 1)):
        compressed.nothing_is_held()
        buffer = torch.ones(COUNT)
        dist.all_reduce(buffer)
        buffer.fill_(1.0)
        if rank == world - 1:
            buffer[COUNT - many:] = bad
        dist.all_reduce(buffer)
        assert not buffer.isfinite().all(), (bad, many)
        assert models.equal_across_ranks([buffer])
        assert torch_taco.residual_stats().norm == 0.0
        buffer.fill_(1.0)
        dist.all_reduce(buffer)
        assert buffer.isfinite().all() and buffer.count_nonzero() > 0
        assert (compressed.all_residuals(buffer) + buffer.double()).equal(torch.full((COUNT,), float(world)).double())
        del buffer


def storage_dies(rank, world):
    import torch_taco

    compressed.nothing_is_held()
    kept = torch.ones(2 * COUNT)
    first, second = kept[:COUNT], kept[COUNT:]
    dist.all_reduce(first)
    dist.all_reduce(second)
    assert torch_taco.residual_stats().count == 2
    del first, second
    assert torch_taco.residual_stats().count == 2, "the storage lives on"
    del kept
    compressed.nothing_is_held()
    # Memory at the same place begins without what the last one left.
    for _ in range(20):
        fresh = torch.ones(COUNT)
        dist.all_reduce(fresh)
        assert set(fresh.unique().tolist()) <= {0.0, float(world)}
        del fresh


def views(rank, world):
    """What is not contiguous is right too, and has a residual of its own."""
    import torch_taco

    base = torch.zeros(2 * COUNT)
    view = base[::2]
    view.fill_(1.0)
    dist.all_reduce(view)
    assert 0 < view.count_nonzero() < COUNT // 2 and base[1::2].count_nonzero() == 0
    assert models.equal_across_ranks([base])
    # Others that begin at the same place, and are as many.
    held = torch_taco.residual_stats().count
    dist.all_reduce(base[:COUNT])
    assert torch_taco.residual_stats().count == held + 1
    zero_dimensions = torch.ones(())
    assert not is_compressed(zero_dimensions) and zero_dimensions.item() == world


def asked_in_a_callback(rank, world):
    """A callback runs while its operation still has the lane: it must not wait for that."""
    import torch_taco

    buffer = torch.ones(COUNT)
    work = dist.all_reduce(buffer, async_op=True)
    found = work.get_future().then(lambda _: torch_taco.residual_stats().count)
    assert found.wait() >= 1
    assert torch_taco.residual_stats().count >= 1


def held_after_error_feedback(rank, world):
    import torch_taco

    kept = error_feedback(rank, world)
    return torch_taco.residual_stats().count if kept is not None else None


@pytest.mark.parametrize("layout", compressed.LAYOUTS, ids=str)
def test_a_group_that_is_compressed(layout):
    ranks.run(one_group_of_everything, layout.world, env=compressed_by(ON)(layout))


def test_an_irregular_grid():
    """2 + 1 ranks: one of them is in no column."""
    def env(rank):
        return {**compressed.uneven(rank), **ON, "LIGHT_2D_ALLREDUCE": "1"}

    found = ranks.run(held_after_error_feedback, 3, env=env)
    assert [outcome.value for outcome in found] == [1, 0, 1]


def nothing_is_compressed(rank, world):
    import torch_taco

    assert not is_compressed(torch.ones(COUNT)) and torch_taco.residual_stats() == (0, 0, 0.0)
    compressed_group = dist.new_group(pg_options=torch_taco.Options(topk=True, topk_ratio=0.01, topk_threshold=16))
    buffer = torch.ones(COUNT)
    assert is_compressed(buffer, group=compressed_group) is ("TACO_NODE_ID" in os.environ), "only across nodes"
    assert torch_taco.residual_stats() == (0, 0, 0.0), "of the other group"
    # The residual goes with the group, although the buffer is there.
    dist.destroy_process_group(compressed_group)
    another = dist.new_group(pg_options=torch_taco.Options(topk=True, topk_ratio=0.01, topk_threshold=16))
    assert torch_taco.residual_stats(another) == (0, 0, 0.0)
    buffer.fill_(1.0)
    dist.all_reduce(buffer, group=another)
    assert set(buffer.unique().tolist()) <= {0.0, float(world)}


@pytest.mark.parametrize("layout", [compressed.FLAT, compressed.ONE_NODE], ids=str)
def test_it_is_never_a_default_and_options_win(layout):
    """On one node not even then."""
    ranks.run(nothing_is_compressed, layout.world, env=layout.env)


def two_groups_in_flight(rank, world):
    """8 buffers in each of 2 groups, all at once: every one as if it were alone."""
    import torch_taco

    groups = [dist.new_group(pg_options=torch_taco.Options(topk=True, topk_ratio=0.05, topk_threshold=0,
                                                           topk_fp16=fp16)) for fp16 in (False, True)]
    counts = [1, 3, 100, 101, 257, 1000, 2048, 3001]
    buffers = [[torch.empty(count) for count in counts] for _ in groups]
    references = [[compressed.FlatReference(world, count) for count in counts] for _ in groups]
    for step in range(4):
        waiting, expected = [], []
        for which, group in enumerate(groups):
            for number, count in enumerate(counts):
                everyones = compressed.everyones_gradients(world, 100 * step + 10 * number + which, count)
                buffers[which][number].copy_(everyones[rank])
                k = max(1, int(0.05 * count))
                expected.append((buffers[which][number],
                                 references[which][number].step(everyones, k, fp16=which == 1)))
                waiting.append(dist.all_reduce(buffers[which][number], group=group, async_op=True))
        for work in reversed(waiting):
            work.wait()
        for buffer, result in expected:
            assert torch.equal(buffer, result), (step, buffer.numel())
    assert [torch_taco.residual_stats(group).count for group in groups] == [len(counts)] * 2


@pytest.mark.parametrize("layout", [compressed.FLAT], ids=str)
def test_two_groups_in_flight(layout):
    ranks.run(two_groups_in_flight, layout.world, env=layout.env)


def with_half_precision(rank, world):
    """bfloat16 and float16 gradients: residuals in float32, one rounding of the sum. And small ones are not lost."""
    import torch_taco

    group = dist.new_group(pg_options=torch_taco.Options(topk=True, topk_ratio=0.05, topk_threshold=0))
    for dtype in (torch.bfloat16, torch.float16):
        buffer, reference = torch.empty(999, dtype=dtype), compressed.FlatReference(world, 999)
        for step in range(5):
            everyones = compressed.everyones_gradients(world, step, 999, dtype)
            buffer.copy_(everyones[rank])
            dist.all_reduce(buffer, group=group)
            assert torch.equal(buffer, reference.step(everyones, 49)), (dtype, step)
    # 4 elements, 1 sent: the gradient [4, 3, 2, 1] of both ranks, averaged. Rank by rank the residual is
    # [4 3 2 1] -> 4 sent -> [0 3 2 1] + g = [4 6 4 2] -> 6 sent -> [4 0 4 2] + g = [8 3 6 3] -> 8 sent.
    buffer, total = torch.empty(4), torch.zeros(4)
    narrow = dist.new_group(pg_options=torch_taco.Options(topk=True, topk_ratio=0.25, topk_threshold=0))
    for _ in range(3):
        buffer.copy_(torch.tensor([4.0, 3.0, 2.0, 1.0]))
        dist.all_reduce(buffer, dist.ReduceOp.AVG, group=narrow)
        total += buffer
    assert total.tolist() == [12.0, 6.0, 0.0, 0.0]
    assert compressed.backend(narrow).residual_of(buffer)[1].tolist() == [0.0, 3.0, 6.0, 3.0]


def test_half_precision_and_the_sum_by_hand():
    ranks.run(with_half_precision, 2, env=compressed.FLAT.env)


def warms_up(rank, world):
    """8 steps: 2 dense, 6 in which the ratio falls, then 1 %."""
    import torch_taco

    group = dist.new_group(pg_options=torch_taco.Options(topk=True, topk_ratio=0.01, topk_threshold=0,
                                                         topk_warmup_steps=8))
    buffer, counts = torch.empty(1000), []
    for _ in range(10):
        buffer.copy_(compressed.everyones_gradients(1, 5, 1000)[0])  # the same on all ranks, so the union is k
        dist.all_reduce(buffer, group=group)
        counts.append(buffer.count_nonzero().item())
    # The break-even of 2 nodes is 0.5: 0.01^(1/7) = 0.518 is still dense.
    expected = [1000] * 3 + [int(1000 * 0.01 ** (n / 7)) for n in range(2, 7)] + [10, 10]
    assert counts == expected


def test_warm_up():
    ranks.run(warms_up, 2, env=compressed.FLAT.env)


def direct_calls(rank, world):
    """topk_all_reduce, which the hook calls: bad arguments, nothing to send, at least one element, a dense step."""
    group = compressed.backend()
    for bad in ({"ratio": 0.0}, {"ratio": -0.1}, {"ratio": 1.5}, {"ratio": math.nan}, {"ratio": math.inf},
                {"ratio": 0.1, "momentum": 1.0}, {"ratio": 0.1, "momentum": -0.1},
                {"ratio": 0.1, "momentum": math.nan}):
        with pytest.raises(ValueError, match="ratio is|momentum is"):
            group.topk_all_reduce(torch.ones(10), **bad)
    for dtype in (torch.float64, torch.int32, torch.bool, torch.complex64):
        with pytest.raises((ValueError, TypeError), match="only float32, float16 and bfloat16"):
            group.topk_all_reduce(torch.ones(10, dtype=dtype), 0.1)
    group.topk_all_reduce(torch.empty(0), 0.1).wait()
    few = torch.arange(1.0, 6.0)
    group.topk_all_reduce(few, 0.1).wait()  # half an element: one
    assert few.tolist() == [0, 0, 0, 0, 5.0 * world]
    few.zero_()
    group.topk_all_reduce(few, 1.0, average=True).wait()
    assert few.tolist() == [1, 2, 3, 4, 0] and group.residual_of(few)[1].count_nonzero() == 0
    # What is not there can be neither set nor read; what is, is of this rank's size.
    assert group.residual_of(torch.ones(7)) is None
    for kind, residual in (("2d", torch.zeros(5)), ("flat", torch.zeros(4)), ("flat", torch.zeros(5).double())):
        with pytest.raises(ValueError, match="reset it instead"):
            group.set_residual(few, kind, residual, None)
    group.set_residual(few, "flat", torch.full((5,), 2.0), None)
    few.zero_()
    group.topk_all_reduce(few, 0.2, half_values=True).wait()
    assert few.tolist() == [2.0 * world, 0, 0, 0, 0]


def test_direct_calls():
    ranks.run(direct_calls, 2, env=compressed.FLAT.env)


# --- what cannot be ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name, first, last", [
    ("LIGHT_TOPK_ALLREDUCE", "1", "0"), ("LIGHT_TOPK_RATIO", "0.01", "0.02"), ("LIGHT_TOPK_THRESHOLD", "1000", "2000"),
    ("LIGHT_TOPK_FP16", "0", "1"), ("TACO_TOPK_WARMUP_STEPS", "8", None)])
def test_settings_that_differ(name, first, last):
    def env(rank):
        value = first if rank == 0 else last
        return {**compressed.FLAT.env(rank), **({} if value is None else {name: value})}

    for outcome in ranks.run(init_fails, 2, init=False, env=env):
        assert name in outcome.value and first in outcome.value, outcome.value


def init_fails(rank, world):
    return failing.failure(lambda: ranks.init_group(timeout=20.0), 15.0, (RuntimeError, ValueError))


@pytest.mark.parametrize("name, value", [
    ("LIGHT_TOPK_RATIO", "0"), ("LIGHT_TOPK_RATIO", "1.5"), ("LIGHT_TOPK_RATIO", "nan"), ("LIGHT_TOPK_RATIO", "-0.1"),
    ("LIGHT_TOPK_ALLREDUCE", "yes"), ("LIGHT_TOPK_THRESHOLD", "1MB"), ("TACO_TOPK_WARMUP_STEPS", "-1")])
def test_settings_that_are_wrong(name, value):
    [outcome] = ranks.run(init_fails, 1, init=False, env={name: value})
    assert name in outcome.value and value in outcome.value


def test_options_that_are_wrong():
    import torch_taco

    for name, values in {"topk_ratio": (0, 1.5, math.nan, "many"), "topk": (2, "on"), "topk_threshold": (-1, 0.5),
                         "topk_fp16": (3,), "topk_warmup_steps": (-1, 1.5)}.items():
        for value in values:
            with pytest.raises(ValueError, match=f"{name} is .*must be"):
                torch_taco.Options(**{name: value})


def options_differ(rank, world):
    import torch_taco

    options = torch_taco.Options(topk=True, topk_ratio=0.01 if rank == 0 else 0.02)
    return failing.failure(lambda: dist.new_group(pg_options=options), 20.0, (RuntimeError, ValueError))


def calls_differ(rank, world):
    """Ratios, and a dense step on one rank only: an error on both that says what each wanted."""
    texts = []
    for ratios in ((0.01, 0.02), (0.01, 1.0)):
        group = failing.group_of_all(10)
        work = compressed.backend(group).topk_all_reduce(torch.ones(1000), ratios[rank])
        texts.append(failing.failure(work.wait, 15.0))
    return texts


def test_what_differs_between_ranks():
    for outcome in ranks.run(options_differ, 2, env=compressed.FLAT.env):
        assert "LIGHT_TOPK_RATIO" in outcome.value or "topk_ratio" in outcome.value, outcome.value
    for outcome in ranks.run(calls_differ, 2, env=compressed.FLAT.env):
        assert "largest 1 % of 1000" in outcome.value[0] and "largest 2 % of 1000" in outcome.value[0]
        assert "largest 1 % of 1000" in outcome.value[1] and "all_reduce" in outcome.value[1]
