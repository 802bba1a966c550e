"""torch_taco.shared_empty, and DDP's buckets in shared memory."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import failing
import ranks

torch_taco = pytest.importorskip("torch_taco", reason="torch_taco is not installed")
pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's own API: TEST_BACKEND is set")


def mapped(tensor):
    """The file that holds the tensor's memory, "" if none does."""
    with open("/proc/self/maps") as lines:
        for line in lines:
            begin, end = (int(text, 16) for text in line.split()[0].split("-"))
            if begin <= tensor.data_ptr() < end:
                return " ".join(line.split()[5:])
    raise AssertionError("the tensor is nowhere")


def one_shared_node():
    return "all ranks: shared memory" in torch_taco.describe()


def sums(rank, world):
    shared = one_shared_node()
    for shape, dtype in (((1000, 333), torch.float32), ((7,), torch.int16), ((), torch.float64), ((0, 3), None),
                         ((2, 3, 50000), torch.bfloat16)):
        tensor = torch_taco.shared_empty(*shape, dtype=dtype)
        assert tensor.shape == shape and tensor.dtype == (dtype or torch.float32) and tensor.is_contiguous()
        if tensor.numel() > 0:
            assert mapped(tensor).startswith("/dev/shm") == shared, (mapped(tensor), torch_taco.describe())
        values = torch.arange(tensor.numel()).reshape(shape) % 11
        tensor.copy_(values + rank)
        dist.all_reduce(tensor)
        expected = (world * values + sum(range(world))).to(tensor.dtype)
        assert torch.equal(tensor, expected)
        part = tensor.flatten()[1:]  # a part of it, misaligned, with an asynchronous operation behind it
        works = [dist.all_reduce(part, op=dist.ReduceOp.MAX, async_op=True), dist.barrier(async_op=True)]
        [work.wait() for work in works]
        assert torch.equal(tensor, expected)
    assert torch_taco.shared_empty((2, 5)).shape == (2, 5)
    assert torch_taco.shared_empty(torch.Size([3])).shape == (3,)
    with pytest.raises(TypeError, match="dtype must be a torch.dtype, but it is 'float32'"):
        torch_taco.shared_empty(3, dtype="float32")


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_sums(pool):
    pool.run(sums)


def wrong_sizes(rank, world):
    return failing.failure(lambda: torch_taco.shared_empty(4096 + rank), failing.SLACK_SECONDS + 60)


def test_wrong_sizes():
    for outcome in ranks.run(wrong_sizes, 2):
        assert "shared_empty of 16384 uint8" in outcome.value and "shared_empty of 16388 uint8" in outcome.value


def trained(rank, comm_mem):
    os.environ["DDP_DISABLE_COMM_MEM"] = "0" if comm_mem else "1"
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10)),
                                    bucket_cap_mb=0.3, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(4):  # the buckets are made anew after the first
        optimizer.zero_grad(set_to_none=False)
        model(torch.randn(8, 300)).square().sum().backward()
        optimizer.step()
    places = {mapped(parameter.grad) for parameter in model.parameters()}
    return [parameter.detach().clone() for parameter in model.parameters()], places


def ddp_buckets(rank, world):
    expected, places = trained(rank, False)
    assert not any(place.startswith("/dev/shm") for place in places), places
    got, places = trained(rank, True)
    assert all(place.startswith("/dev/shm") for place in places) == one_shared_node(), places
    for one, other in zip(got, expected):
        assert torch.equal(one, other)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_ddp_buckets(pool):
    pool.run(ddp_buckets)
