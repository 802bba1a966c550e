"""What import torch_taco adds: monitored_barrier, explain, traffic, describe."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import failing
import ranks

torch_taco = pytest.importorskip("torch_taco", reason="torch_taco is not installed")
pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's own API: TEST_BACKEND is set")


def absent_from_barrier(rank, world, wait_all_ranks):
    """B58: the barrier names who did not come."""
    store = dist.distributed_c10d._get_default_store()
    absent = [1] if world < 4 or not wait_all_ranks else [1, 2]
    if rank in absent:
        store.wait([f"done {r}" for r in range(world) if r not in absent], timedelta(seconds=60))
        return absent, None
    try:
        return absent, failing.failure(
            lambda: torch_taco.monitored_barrier(timeout=timedelta(seconds=3), wait_all_ranks=wait_all_ranks),
            3.0 + failing.SLACK_SECONDS)
    finally:
        store.set(f"done {rank}", "yes")


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_monitored_barrier_names_the_missing(layout, wait_all_ranks):
    for outcome in ranks.run(absent_from_barrier, layout.world, wait_all_ranks, env=layout.env):
        absent, text = outcome.value
        if text is not None:
            assert any(failing.names_rank(text, rank) for rank in absent), text
            if wait_all_ranks and outcome.rank == 0:
                assert all(failing.names_rank(text, rank) for rank in absent), text


def barriers(rank, world):
    for _ in range(3):
        torch_taco.monitored_barrier()
        torch_taco.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)
        dist.all_reduce(torch.ones(3))
    pair = dist.new_group([0, 1])
    if rank < 2:
        torch_taco.monitored_barrier(pair)
        dist.destroy_process_group(pair)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_monitored_barrier(pool):
    pool.run(barriers)


def plans(rank, world):
    for nbytes in (0, 1, 4, 4096, 1 << 20, 1 << 30):
        plan = torch_taco.explain(nbytes, torch.float32)
        assert str(plan) and plan == torch_taco.explain(nbytes, torch.float32)
        assert str(plan.algorithm).lower() in str(plan).lower()
    with pytest.raises(ValueError):
        torch_taco.explain(-1)
    assert torch_taco.describe()
    return [str(torch_taco.explain(n, torch.bfloat16)) for n in (100, 1 << 22)]


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_explain(pool, layout):
    found = pool.run(plans)
    assert all(one == found[0] for one in found)
    assert "2d" in found[0][1].lower() or layout.nodes == 1, found


def sent_bytes(rank, world, numel):
    group = dist.new_group()
    dist.barrier(group=group)
    before = torch_taco.traffic(group)
    for _ in range(4):
        dist.all_reduce(torch.ones(numel), group=group)
    after = torch_taco.traffic(group)
    dist.destroy_process_group(group)
    return (after.shared_memory_bytes - before.shared_memory_bytes) / 4, \
           (after.network_bytes - before.network_bytes) / 4


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_traffic_is_what_the_docs_say(pool, layout):
    """docs/algorithms.md: a rank sends 2 (P-1)/P S flat, in 2D across nodes 2 (N-1)/N S/g; within 3 %."""
    size = 4 * 4_000_000
    for shared, network in pool.run(sent_bytes, size // 4):
        if layout.nodes == 2:
            assert network == pytest.approx(size / 2, rel=0.03)  # 2 (2-1)/2 S/2
            assert shared > 0
        elif layout.mesh:
            assert network == pytest.approx(2 * (layout.world - 1) / layout.world * size, rel=0.03)
            assert shared == 0
        else:
            assert network == 0 and shared > 0


def not_ours(rank, world):
    gloo = dist.new_group(backend="gloo")
    for call in (lambda: torch_taco.traffic(gloo), lambda: torch_taco.monitored_barrier(gloo),
                 lambda: torch_taco.explain(100, group=gloo)):
        with pytest.raises(ValueError, match="taco"):
            call()
    dist.destroy_process_group(gloo)


def test_other_backends_are_refused(pools):
    pools(ranks.layouts(2)[0]).run(not_ours)


def no_group(rank, world):
    for call in (torch_taco.traffic, torch_taco.monitored_barrier, torch_taco.describe):
        with pytest.raises(ValueError, match="init_process_group"):
            call()


def test_without_a_group():
    ranks.run(no_group, 1, init=False)
