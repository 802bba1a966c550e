"""The contract of Work and Future: waiting in any order and thread, polling, time limits, order of issue."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import operations
import ranks


def waited_backwards(rank, world):
    cases = [operations.Case(rank, world, (n,)) for n in (1, 10_000, 3, 500_000, 64)]
    tensors = [case.tensor(i) for i, case in enumerate(cases)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i in reversed(range(len(cases))):
        works[i].wait()
        assert operations.same_bits(tensors[i], cases[i].reduced(i)), i
        works[i].wait()  # once more: nothing happens
        assert works[i].is_completed() and works[i].is_success()


def waited_in_threads(rank, world):
    """Each work in a thread of its own, none of them the one that issued it."""
    cases = [operations.Case(rank, world, (n,)) for n in (1, 10_000, 3, 300_000) * 5]
    tensors = [case.tensor(i) for i, case in enumerate(cases)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    wrong = []

    def check(i):
        works[i].wait()
        if not operations.same_bits(tensors[i], cases[i].reduced(i)):
            wrong.append(i)

    threads = [threading.Thread(target=check, args=(i,)) for i in reversed(range(len(cases)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def mixed_with_synchronous(rank, world):
    """Synchronous operations keep their place behind asynchronous ones."""
    for _ in range(10):
        tensor = torch.full((50_000,), 1.0)
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(3)]
        dist.all_reduce(tensor)
        assert tensor.unique().tolist() == [float(world) ** 4]
        assert all(work.is_completed() for work in works)


def issued_from_threads(rank, world):
    """Two threads, each with a group of its own, at the same time."""
    groups = [dist.new_group() for _ in range(2)]
    wrong = []

    def loop(group, factor):
        for step in range(30):
            tensor = torch.full((1000,), factor * (rank + step))
            dist.all_reduce(tensor, group=group)
            if tensor.unique().tolist() != [factor * (world * step + world * (world - 1) / 2)]:
                wrong.append((factor, step))

    threads = [threading.Thread(target=loop, args=(group, factor)) for group, factor in zip(groups, (1.0, 2.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for group in groups:
        dist.destroy_process_group(group)


def long_enough_wait(rank, world):
    tensor = torch.ones(100_000)
    assert dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=60))
    assert tensor.unique().tolist() == [float(world)]


def results_of_works(rank, world):
    """Work.result() and the future hold the outputs themselves, not copies."""
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    work.wait()
    assert future.value()[0].data_ptr() == tensor.data_ptr()
    assert work.result()[0].data_ptr() == tensor.data_ptr()


def callbacks_that_communicate(rank, world):
    """A callback may issue the next operation."""
    tensor, more = torch.ones(1000), torch.ones(1000)
    issued = []

    def proceed(future):
        issued.append(dist.all_reduce(more, async_op=True))
        return future.value()

    dist.all_reduce(tensor, async_op=True).get_future().then(proceed).wait()
    issued[0].wait()
    assert more.unique().tolist() == [float(world)]


def sequence_numbers(rank, world):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    backend._set_sequence_number_for_group()
    before = backend._get_sequence_number_for_group()
    for _ in range(5):
        dist.all_reduce(torch.ones(1), group=group)
    assert backend._get_sequence_number_for_group() == before + 5
    dist.destroy_process_group(group)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [
    waited_backwards, waited_in_threads, mixed_with_synchronous, issued_from_threads, long_enough_wait,
    results_of_works, callbacks_that_communicate, sequence_numbers], ids=lambda job: job.__name__)
def test_work(pool, job):
    pool.run(job)
