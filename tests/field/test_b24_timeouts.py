"""B24 (pytorch#83486): timeouts of wait, init_process_group, new_group and of operations were not kept."""

import os
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import failing
import operations
import ranks


def short_wait(rank, world):
    """The last rank comes late; wait() with a limit of its own gives up, the operation itself goes on."""
    tensor = torch.full((10,), float(rank))
    if rank == world - 1:
        dist.distributed_c10d._get_default_store().get("all others gave up")
        dist.all_reduce(tensor)
        return None
    work = dist.all_reduce(tensor, async_op=True)
    start = time.monotonic()
    with pytest.raises(RuntimeError):
        work.wait(timedelta(seconds=1))
    seconds = time.monotonic() - start
    store = dist.distributed_c10d._get_default_store()
    if store.add("gave up", 1) == world - 1:
        store.set("all others gave up", "yes")
    return seconds


@pytest.mark.serial
@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_wait(layout):
    outcomes = ranks.run(short_wait, layout.world, env=layout.env)
    for outcome in outcomes[:-1]:
        assert 0.9 <= outcome.value <= 2.0, outcome.value


def absent_rank(rank, world):
    """The last rank calls nothing: every operation of the others, each on a group of its own, must give up
    at the group's timeout and name it. All wait at once, so the test takes one timeout."""
    names = [name for name in operations.OPERATIONS if name != "send_recv"] + ["barrier"]
    # reduce and gather to the last rank, broadcast and scatter from it: nobody can be done without it.
    groups = {name: failing.group_of_all(3.0) for name in names}
    if rank == world - 1:
        dist.distributed_c10d._get_default_store().wait([f"done {r}" for r in range(world - 1)],
                                                        timedelta(seconds=60))
        return {}
    texts = {}

    def give_up(name):
        group = groups[name]
        if name == "batch_isend_irecv" and rank != 0:
            return  # only rank 0 waits for the last one
        try:
            if name == "barrier":
                texts[name] = failing.failure(lambda: dist.barrier(group=group), 3.0 + failing.SLACK_SECONDS)
                return
            case = operations.Case(rank, world, (100,), group=group, root=world - 1)
            operation = operations.OPERATIONS[name]
            inputs, outputs = operation.buffers(case)

            def call():
                for work in operation.issue(case, inputs, outputs, True):
                    work.wait()
                dist.barrier(group=group)  # a rank that only sends may be done with the operation itself

            limit = 2 * 3.0 if name in ("reduce", "gather", "batch_isend_irecv") else 3.0
            texts[name] = failing.failure(call, limit + failing.SLACK_SECONDS)
        except BaseException as error:
            texts[name] = error

    threads = [threading.Thread(target=give_up, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dist.distributed_c10d._get_default_store().set(f"done {rank}", "yes")
    return {name: text if isinstance(text, str) else f"WRONG {text!r}" for name, text in texts.items()}


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_absent_rank(layout):
    outcomes = ranks.run(absent_rank, layout.world, env=layout.env)
    for outcome in outcomes[:-1]:
        assert len(outcome.value) == len(operations.OPERATIONS) - (outcome.rank != 0)
        for name, text in outcome.value.items():
            assert not text.startswith("WRONG"), (name, text)
            if name != "broadcast":
                assert failing.names_rank(text, layout.world - 1), (name, text)
    # In a tree most ranks wait for one that waits itself, and all for equally long: they name that one, and
    # whoever waits for the absent rank names it.
    broadcasts = [outcome.value["broadcast"] for outcome in outcomes[:-1]]
    assert any(failing.names_rank(text, layout.world - 1) for text in broadcasts), broadcasts
    assert all("rank" in text for text in broadcasts), broadcasts


def late_init(rank, world):
    """The last rank never makes the group; it stays until the others have given up."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    if rank == world - 1:
        store.wait([f"done {r}" for r in range(world - 1)], timedelta(seconds=60))
        return None
    try:
        return failing.failure(lambda: ranks.init_group(timeout=3.0), 3.0 + failing.SLACK_SECONDS)
    finally:
        store.set(f"done {rank}", "yes")


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_init(layout):
    outcomes = ranks.run(late_init, layout.world, env=layout.env, init=False)
    assert failing.names_rank(outcomes[0].value, layout.world - 1), outcomes[0].value


def late_new_group(rank, world):
    if rank == world - 1:
        dist.distributed_c10d._get_default_store().wait([f"done {r}" for r in range(world - 1)],
                                                        timedelta(seconds=60))
        return None
    try:
        return failing.failure(lambda: dist.new_group(timeout=timedelta(seconds=3)), 3.0 + failing.SLACK_SECONDS)
    finally:
        dist.distributed_c10d._get_default_store().set(f"done {rank}", "yes")


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_new_group(layout):
    outcomes = ranks.run(late_new_group, layout.world, env=layout.env)
    assert failing.names_rank(outcomes[0].value, layout.world - 1), outcomes[0].value
