"""Tensors of devices that this backend or this machine cannot serve: a clear error, and the group goes on."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import operations
import ranks


def refuse_other_devices(rank, world):
    """On rank 0 only: an error that came after sending would leave the others behind. torch answers calls with
    meta tensors itself, so they go to the backend directly, as a CUDA tensor on a machine without GPUs would."""
    if rank == 0:
        meta = torch.ones(3, device="meta")
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        calls = {
            "all_reduce": lambda: backend.allreduce([meta], dist.AllreduceOptions()),
            "broadcast": lambda: backend.broadcast([meta], dist.BroadcastOptions()),
            "all_gather": lambda: backend.allgather([[meta] * world], [meta], distributed_c10d.AllgatherOptions()),
            "send": lambda: backend.send([meta], 1, 0),
        }
        for name, call in calls.items():
            with pytest.raises((RuntimeError, ValueError)) as raised:
                call()
            assert "meta" in str(raised.value), (name, raised.value)
    operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (5,)))


def device_id_without_gpu(rank, world):
    with pytest.raises((RuntimeError, ValueError, AssertionError)) as raised:
        dist.init_process_group(ranks.BACKEND, device_id=torch.device("cuda:0"))
    assert "cuda" in str(raised.value).lower() or "gpu" in str(raised.value).lower(), raised.value


def device_objects(rank, world):
    """Where torch asks a group for its device, ours answers the CPU when there is no GPU."""
    assert distributed_c10d._get_pg_default_device() == torch.device("cpu")
    found = [None] * world
    dist.all_gather_object(found, rank)
    assert found == list(range(world))
    with pytest.raises((RuntimeError, AssertionError)):
        dist.broadcast_object_list([None], 0, device=torch.device("cuda"))
    dist.barrier()


@pytest.mark.parametrize("layout", ranks.layouts(2), ids=str)
@pytest.mark.parametrize("job", [refuse_other_devices, device_objects], ids=lambda job: job.__name__)
def test_devices(pool, job):
    pool.run(job)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU: the error is for those without")
def test_device_id():
    ranks.run(device_id_without_gpu, 2, init=False)
