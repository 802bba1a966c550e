"""torch.profiler shows operations by name, with the shapes that tell the bytes."""

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

import operations
import ranks

EVENTS = {
    "broadcast": "broadcast", "all_reduce": "all_reduce", "reduce": "reduce", "all_gather": "all_gather",
    "all_gather_into_tensor": "_all_gather_base", "gather": "gather", "scatter": "scatter",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_tensor": "_reduce_scatter_base",
    "all_to_all_single": "all_to_all", "all_to_all": "all_to_all",
}


def profiled(rank, world, async_op):
    found = {}
    for name in EVENTS:
        operation = operations.OPERATIONS[name]
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            operation.run(operations.Case(rank, world, (1000,)), async_op=async_op)
        found[name] = [(event.name, event.input_shapes) for event in profiler.events()
                       if event.name.startswith(f"{ranks.BACKEND}:")]
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        if rank == 0:
            dist.send(torch.ones(10), 1)
        elif rank == 1:
            dist.recv(torch.ones(10), 0)
        dist.barrier()
    found["names"] = {event.name for event in profiler.events()}
    return found


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
def test_events(pool, async_op):
    for rank, found in enumerate(pool.run(profiled, async_op)):
        names = found.pop("names")
        for name, events in found.items():
            mine = [(event, shapes) for event, shapes in events
                    if event.split(":")[1].replace("_", "") in (name.replace("_", ""), EVENTS[name].replace("_", ""))]
            assert len(mine) == 1, (rank, name, events)
            numbers = [size for shape in mine[0][1] for size in shape if isinstance(size, int)]
            if not (name == "scatter" and rank != 0):  # only the root of scatter has an input
                assert any(number % 1000 == 0 and number for number in numbers), (rank, name, mine)
        if rank == 0:
            assert f"{ranks.BACKEND}:send" in names, names
        if rank == 1:
            assert f"{ranks.BACKEND}:recv" in names, names
