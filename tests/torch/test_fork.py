"""Forked children of a rank (DataLoader workers, os.fork) leave the rank's groups alone."""

import os
import signal
import sys

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def check(rank, world):
    for name in ("all_reduce", "all_gather", "send_recv"):
        operations.OPERATIONS[name].run(operations.Case(rank, world, (1000,)), async_op=True)
        operations.OPERATIONS[name].run(operations.Case(rank, world, (100_000,)))


def leave_by_exit():
    sys.exit(0)


def leave_by_destructors():
    """What a child that runs Python's own cleanup does to inherited objects."""
    import gc

    dist.distributed_c10d._world.pg_map.clear()
    gc.collect()
    os._exit(0)


def leave_by_destroy():
    dist.destroy_process_group()
    os._exit(0)


def leave_by_signal():
    os.kill(os.getpid(), signal.SIGKILL)


def children(rank, world, leave):
    check(rank, world)
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # a child that hangs in its cleanup ends, and the test fails on its status
            try:
                leave()
            except SystemExit as ending:
                os._exit(ending.code)
            finally:
                os._exit(17)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), os.waitstatus_to_exitcode(status)
        check(rank, world)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.full((100,), float(index))


def loaders(rank, world):
    """B30: workers beside live communication threads, three epochs, synchronous and asynchronous operations."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=5, num_workers=2)
    for _ in range(3):
        works = []
        for batch in loader:
            total = batch.sum(0)
            want = total * world
            work = dist.all_reduce(total, async_op=True)
            works.append((work, total, want))
            dist.all_reduce(torch.ones(10))
        for work, total, want in works:
            work.wait()
            assert total.equal(want)
    check(rank, world)


def use_in_child(rank, world):
    """A child that uses the parent's group gets an error, not a hang and not the parent's data."""
    check(rank, world)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            dist.all_reduce(torch.ones(10))
            os.write(write_end, b"worked")
        except (RuntimeError, ValueError) as error:
            os.write(write_end, f"refused: {error}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    _, status = os.waitpid(pid, 0)
    text = os.read(read_end, 10_000).decode()
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert text.startswith("refused") and "fork" in text, text
    check(rank, world)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("leave", [leave_by_exit, leave_by_destructors, leave_by_destroy, leave_by_signal],
                         ids=lambda leave: leave.__name__)
def test_children(layout, leave):
    ranks.run(children, layout.world, leave, env=layout.env)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [loaders, use_in_child], ids=lambda job: job.__name__)
def test_beside_workers(layout, job):
    ranks.run(job, layout.world, env=layout.env)
