"""B40 (torchcomms PR#689): works without a usable Future: no DDP hooks, no chaining, no error through it."""

import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import models
import operations
import ranks


def half_of_the_sum(rank, world):
    tensor = torch.tensor([rank + 1.0])
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] / 2)
    assert future.wait().tolist() == [world * (world + 1) / 4]


def every_operation_chains(rank, world):
    """The value of a future is a list of tensors, and callbacks see the finished outputs."""
    for operation in operations.OPERATIONS.values():
        case = operations.Case(rank, world, (1000,))
        inputs, outputs = operation.buffers(case)
        want = operation.expected(case)
        seen = []
        works = operation.issue(case, inputs, outputs, True)
        for work in works:
            if not hasattr(work, "get_future"):
                work.wait()  # a coalescing manager
                continue
            future = work.get_future()
            chained = future.then(lambda done: seen.append(done.value()) or len(seen))
            assert chained.wait() == len(seen)
            assert isinstance(future.value(), list), (operation.name, type(future.value()))
            assert all(isinstance(tensor, torch.Tensor) for tensor in future.value()), operation.name
        for got, expected in zip(outputs, want, strict=True):
            assert operations.same_bits(got, expected), operation.name
    future = dist.all_reduce(torch.ones(5), async_op=True).get_future()
    late = []
    future.wait()
    future.add_done_callback(lambda done: late.append(done.value()[0].sum().item()))
    assert late == [5.0 * world]  # added when all was done: called at once


def failing_callback(rank, world):
    """An exception in a callback belongs to the chained future, not to the group."""
    def broken(future):
        raise ValueError("this callback breaks")

    chained = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(broken)
    with pytest.raises(Exception, match="this callback breaks"):
        chained.wait()
    half_of_the_sum(rank, world)


def dead_peer(rank, world):
    dist.barrier()
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    future = work.get_future()
    chained = future.then(lambda done: done.value())
    texts = []
    for waitable in (future, chained, work):
        with pytest.raises(RuntimeError) as raised:
            waitable.wait()
        texts.append(str(raised.value))
    return texts


HOOKS = {
    "allreduce": (lambda: None, default_hooks.allreduce_hook, 1e-6),
    "fp16": (lambda: None, default_hooks.fp16_compress_hook, 2e-2),
    "bf16": (lambda: None, default_hooks.bf16_compress_hook, 5e-2),
    "power_sgd": (lambda: powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2,
                                                      min_compression_rate=1), powerSGD_hook.powerSGD_hook, None),
    "fp16_power_sgd": (lambda: powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
                       default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook), None),
}


def train_with_hook(rank, world, name):
    make_state, hook, tolerance = HOOKS[name]
    losses, parameters = models.train(rank, hook=hook, state=make_state())
    assert models.equal_across_ranks(parameters)
    assert all(parameter.isfinite().all() for parameter in parameters)
    if tolerance is not None:
        plain, _ = models.train(rank)
        assert losses == pytest.approx(plain, rel=tolerance)
    return losses


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [half_of_the_sum, every_operation_chains, failing_callback],
                         ids=lambda job: job.__name__)
def test_then(pool, job):
    pool.run(job)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_dead_peer(layout):
    outcomes = ranks.run(dead_peer, layout.world, env=layout.env, dies=[layout.world - 1], group_timeout=10.0,
                         timeout=30.0)
    for outcome in outcomes[:-1]:
        assert len(outcome.value) == 3, outcome
        assert outcome.exit_code == 0


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", HOOKS)
def test_hooks(pool, name):
    pool.run(train_with_hook, name)
