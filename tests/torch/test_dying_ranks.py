"""A rank that dies in the middle: all others get a RuntimeError that names it, long before the timeout."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import failing
import operations
import ranks

GROUP_TIMEOUT = 20.0
# A death is seen by the lock or the connection that the kernel drops, not by the timeout.
SOON = 10.0


def all_here(rank, world):
    """Says that this rank is done with what it did; the keys under which all of them say so. A rank that dies
    while others are still on their way out of an operation makes that one fail instead of the next."""
    dist.distributed_c10d._get_default_store().set(f"here {rank}", "yes")
    return [f"here {r}" for r in range(world)]


def die_in_a_loop(rank, world, victim, how, numel):
    """Large all-reduces one after the other; the victim dies between, or while it is inside one."""
    tensor = torch.ones(numel)
    dist.all_reduce(tensor)
    dist.distributed_c10d._get_default_store().wait(all_here(rank, world))
    if rank == victim:
        if how == "inside":
            dist.all_reduce(tensor, async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()

    def loop():
        while time.monotonic() - start < GROUP_TIMEOUT:
            dist.all_reduce(tensor)

    text = failing.failure(loop, SOON)
    again = failing.failure(lambda: dist.all_reduce(tensor), 1.0)
    return text, again


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("how", ["between", "inside"])
@pytest.mark.parametrize("numel", [10, 4_000_000])
def test_all_reduce(layout, how, numel):
    for victim in {layout.world - 1, 1}:
        outcomes = ranks.run(die_in_a_loop, layout.world, victim, how, numel, env=layout.env, dies=[victim],
                             group_timeout=GROUP_TIMEOUT)
        for outcome in outcomes:
            if outcome.rank != victim:
                for text in outcome.value:
                    assert failing.names_rank(text, victim), text
                assert outcome.exit_code == 0, outcome.describe()


def the_host_dies(rank, world):
    """Rank 0 takes the store with it."""
    dist.all_reduce(torch.ones(10))
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return failing.failure(lambda: dist.all_reduce(torch.ones(1000)), SOON)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
def test_rank_0(layout):
    outcomes = ranks.run(the_host_dies, layout.world, env=layout.env, dies=[0], group_timeout=GROUP_TIMEOUT)
    for outcome in outcomes[1:]:
        assert failing.names_rank(outcome.value, 0), outcome.value
        assert outcome.exit_code == 0, outcome.describe()


def die_before(rank, world, name):
    """The last rank dies; each operation of the others that needs it must fail."""
    dist.barrier()
    dist.distributed_c10d._get_default_store().wait(all_here(rank, world))
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "barrier":
        return failing.failure(dist.barrier, SOON)
    if name == "recv":
        return failing.failure(lambda: dist.recv(torch.zeros(3), world - 1), SOON)
    if name == "recv from any source":
        return failing.failure(lambda: dist.recv(torch.zeros(3)), SOON)
    if name == "large send":
        return failing.failure(lambda: dist.send(torch.zeros(4_000_000), world - 1), SOON)
    operation = operations.OPERATIONS[name]
    case = operations.Case(rank, world, (1000,), root=world - 1)
    inputs, outputs = operation.buffers(case)

    def call():
        for work in operation.issue(case, inputs, outputs, False):
            work.wait()
        dist.barrier()  # who only gives may be done with the operation itself

    return failing.failure(call, SOON)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", ["barrier", "recv", "recv from any source", "large send",
                                  *(name for name in operations.OPERATIONS if name not in
                                    ("send_recv", "batch_isend_irecv", "all_reduce"))])
def test_every_operation(layout, name):
    if name == "recv from any source" and layout.world > 2:
        pytest.skip("somebody else may still send: only the timeout can tell (test_b24)")
    victim = layout.world - 1
    outcomes = ranks.run(die_before, layout.world, name, env=layout.env, dies=[victim], group_timeout=GROUP_TIMEOUT)
    for outcome in outcomes[:-1]:
        assert failing.names_rank(outcome.value, victim), (name, outcome.value)


def stopped(rank, world):
    """A stopped process is alive: only the timeout can tell. It is continued when the others are done."""
    pids = torch.zeros(world, dtype=torch.int64)
    pids[rank] = os.getpid()
    dist.all_reduce(pids)
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        with pytest.raises(RuntimeError):
            for _ in range(3):
                dist.all_reduce(torch.ones(10))
        return ""
    try:
        return failing.failure(lambda: dist.all_reduce(torch.ones(10)), 3.0 + failing.SLACK_SECONDS)
    finally:
        store = dist.distributed_c10d._get_default_store()
        if store.add("gave up", 1) == world - 1:
            os.kill(int(pids[world - 1]), signal.SIGCONT)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
def test_stopped(layout):
    outcomes = ranks.run(stopped, layout.world, env=layout.env, group_timeout=3.0)
    for outcome in outcomes[:-1]:
        assert failing.names_rank(outcome.value, layout.world - 1), outcome.value


def raises_in_between(rank, world):
    """B27: one rank leaves by an exception of its own while the others are inside an operation."""
    dist.distributed_c10d._get_default_store().wait(all_here(rank, world))
    if rank == world - 1:
        raise ZeroDivisionError("the script's own mistake")
    return failing.failure(lambda: [dist.all_reduce(torch.ones(10)) for _ in range(2)], SOON)


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
def test_leaving_by_exception(layout):
    outcomes = ranks.run(raises_in_between, layout.world, env=layout.env, check=False, group_timeout=GROUP_TIMEOUT)
    assert "the script's own mistake" in outcomes[-1].error
    for outcome in outcomes[:-1]:
        assert outcome.error is None, outcome.describe()


def one_destroys(rank, world):
    """B27: rank 0 destroys the group while the others still want something of it."""
    dist.all_reduce(torch.ones(10))
    dist.distributed_c10d._get_default_store().wait(all_here(rank, world))
    if rank == 0:
        dist.destroy_process_group()
        # Stays alive until the others are done, so that it is not its death that they see.
        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        store.wait([f"done {r}" for r in range(1, world)])
        return ""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    try:
        return failing.failure(lambda: dist.all_reduce(torch.ones(10)), SOON)
    finally:
        store.set(f"done {rank}", "yes")


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
def test_one_destroys(layout):
    outcomes = ranks.run(one_destroys, layout.world, env=layout.env, group_timeout=8.0)
    for outcome in outcomes[1:]:
        assert failing.names_rank(outcome.value, 0), outcome.value
