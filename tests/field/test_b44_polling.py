"""B44 (pytorch#30723): is_completed() stayed False for whoever only polled."""

import time

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def poll(works, seconds):
    """Seconds until all works say they are complete, without any wait()."""
    start = time.monotonic()
    while not all(work.is_completed() for work in works):
        assert time.monotonic() - start < seconds, f"not complete after {seconds} s of polling"
        time.sleep(0.001)
    return time.monotonic() - start


def receive_before_send(rank, world):
    """False while the peer has not sent, true within 3 s after it has."""
    store = dist.distributed_c10d._get_default_store()
    key = f"polled {time.time_ns()}" if rank == 0 else None
    objects = [key]
    dist.broadcast_object_list(objects, 0)
    key = objects[0]
    if rank == 0:
        out = torch.zeros(100)
        work = dist.irecv(out, world - 1, tag=5)
        for _ in range(50):
            assert not work.is_completed()
            time.sleep(0.002)
        store.set(key, "yes")
        poll([work], 3.0)
        assert out.eq(1).all() and work.is_success()
    elif rank == world - 1:
        store.wait([key])
        dist.send(torch.ones(100), 0, tag=5)
    dist.barrier()


def poll_every_operation(rank, world):
    for operation in operations.OPERATIONS.values():
        for numel in (1, 100_000):
            case = operations.Case(rank, world, (numel,))
            inputs, outputs = operation.buffers(case)
            works = [work for work in operation.issue(case, inputs, outputs, True)]
            pollable = [work for work in works if hasattr(work, "is_completed")]
            poll(pollable, 10.0)
            for work in works:
                if work not in pollable:
                    work.wait()
            for got, want in zip(outputs, operation.expected(case), strict=True):
                assert operations.same_bits(got, want), operation.name
    work = dist.barrier(async_op=True)
    poll([work], 10.0)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_as_reported(pool):
    pool.run(receive_before_send)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_every_operation(pool):
    pool.run(poll_every_operation)
