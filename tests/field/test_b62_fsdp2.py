"""B62 (pytorch#132471): fully_shard on a CPU mesh: full_tensor gave other values, a step trained another model."""

import copy

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import ranks

RTOL = {torch.float32: 1e-6, torch.bfloat16: 2e-2}


def one_step(rank, world, dtype, make):
    torch.manual_seed(2)
    original = make().to(dtype)
    sharded = copy.deepcopy(original)
    mesh = init_device_mesh("cpu", (world,))
    for module in list(sharded.children()):
        if list(module.parameters()):
            fully_shard(module, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for name, parameter in sharded.named_parameters():
        assert parameter.full_tensor().equal(original.get_parameter(name)), name

    inputs = [torch.randn(4, 5, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(world)]
    optimizer = torch.optim.SGD(sharded.parameters(), lr=0.1)
    sharded(inputs[rank]).square().mean().backward()
    optimizer.step()

    # Unsharded: the average of all ranks' gradients, one step.
    gradients = []
    for x in inputs:
        model = copy.deepcopy(original)
        model(x).square().mean().backward()
        gradients.append([parameter.grad.float() for parameter in model.parameters()])
    for index, (name, parameter) in enumerate(original.named_parameters()):
        average = sum(gradient[index] for gradient in gradients) / world
        want = parameter.detach().float() - 0.1 * average
        got = sharded.get_parameter(name).full_tensor().float()
        torch.testing.assert_close(got, want, rtol=RTOL[dtype], atol=RTOL[dtype])


def linear():
    return torch.nn.Linear(5, 3)


def deep():
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3), torch.nn.LayerNorm(3))


def two_dimensional(rank, world):
    """HSDP: replicated along one dimension of the mesh, sharded along the other."""
    torch.manual_seed(2)
    original = linear()
    sharded = copy.deepcopy(original)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(sharded, mesh=mesh)
    x = torch.ones(2, 5) * (rank + 1)
    sharded(x).sum().backward()
    want = sum(torch.ones(3, 5) * 2 * (r + 1) for r in range(world)) / world
    assert sharded.weight.grad.full_tensor().equal(want)


def mixed_precision(rank, world):
    """bf16 for the reduction, float32 parameters."""
    torch.manual_seed(2)
    model = linear()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)),
                mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    x = torch.full((2, 5), float(rank + 1))
    model(x).sum().backward()
    want = sum(torch.ones(3, 5) * 2 * (r + 1) for r in range(world)) / world
    assert model.weight.grad.dtype is torch.float32
    torch.testing.assert_close(model.weight.grad.full_tensor(), want)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("make", [linear, deep], ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_as_unsharded(pool, dtype, make):
    pool.run(one_step, dtype, make)


@pytest.mark.parametrize("layout", ranks.layouts(4), ids=str)
def test_hybrid(pool):
    pool.run(two_dimensional)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_mixed_precision(pool):
    pool.run(mixed_precision)
