"""B68 (pytorch#22260): idle ranks burned a core each, threads piled up, an import changed OMP_NUM_THREADS."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def thread_count():
    return len(os.listdir("/proc/self/task"))


def busy(rank, world, group=None):
    """Uses everything that could start a thread."""
    for name in ("all_reduce", "all_gather", "send_recv", "batch_isend_irecv"):
        for async_op in (False, True):
            operations.OPERATIONS[name].run(operations.Case(rank, world, (1000,), group=group), async_op=async_op)


def cpu_while_idle(rank, world):
    busy(rank, world)
    dist.barrier()
    time.sleep(0.3)  # ranks may still be on their way out of the barrier
    start, used = time.monotonic(), time.process_time()
    time.sleep(5)
    share = (time.process_time() - used) / (time.monotonic() - start)
    dist.barrier()
    return share


def cpu_while_waiting(rank, world):
    """A rank that waits for a late peer must leave the core to whoever works."""
    busy(rank, world)
    dist.barrier()
    if rank == world - 1:
        time.sleep(3)
        dist.all_reduce(torch.ones(10))
        return 0.0
    start, used = time.monotonic(), time.process_time()
    dist.all_reduce(torch.ones(10))
    return (time.process_time() - used) / (time.monotonic() - start)


def threads_over_groups(rank, world):
    busy(rank, world)
    counts = []
    for _ in range(10):
        group = dist.new_group()
        busy(rank, world, group)
        dist.destroy_process_group(group)
        counts.append(thread_count())
    groups = [dist.new_group() for _ in range(10)]
    before = thread_count()
    for group in groups:
        dist.all_reduce(torch.ones(10), group=group)
    synchronous = thread_count() - before
    for group in groups:
        busy(rank, world, group)
    at_once = thread_count() - before
    for group in groups:
        dist.destroy_process_group(group)
    return counts, synchronous, at_once


def settings_kept(rank, world):
    assert torch.get_num_threads() == 1
    dist.init_process_group(ranks.BACKEND)
    dist.all_reduce(torch.ones(10))
    assert torch.get_num_threads() == 1
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert threading.active_count() == 1


@pytest.mark.serial
@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_idle(layout):
    for outcome in ranks.run(cpu_while_idle, layout.world, env=layout.env):
        assert outcome.value < 0.05, outcome.value


@pytest.mark.serial
@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_waiting(layout):
    for outcome in ranks.run(cpu_while_waiting, layout.world, env=layout.env):
        assert outcome.value < 0.25, outcome.value


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_threads(layout):
    for outcome in ranks.run(threads_over_groups, layout.world, env=layout.env):
        counts, synchronous, at_once = outcome.value
        assert counts[-1] <= counts[0], f"threads after each of ten groups: {counts}"
        assert synchronous <= 10, f"ten groups in synchronous use took {synchronous} threads"
        assert at_once <= 40, f"ten groups in all kinds of use took {at_once} threads"


def test_settings_kept():
    ranks.run(settings_kept, 2, init=False)


def test_import_changes_nothing():
    """In an interpreter of its own: before and after import torch_taco."""
    code = ("import os, torch\n"
            "before = torch.get_num_threads(), dict(os.environ), len(os.listdir('/proc/self/task'))\n"
            "import torch_taco\n"
            "after = torch.get_num_threads(), dict(os.environ), len(os.listdir('/proc/self/task'))\n"
            "assert before == after, (before, after)\n")
    for number in ("2", None):
        env = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        if number:
            env["OMP_NUM_THREADS"] = number
        subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)
