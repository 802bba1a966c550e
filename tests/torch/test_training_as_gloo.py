"""The same training with taco and with gloo: DDP and FSDP2 end with the same losses and parameters."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import models
import ranks


class Convolutions(torch.nn.Module):
    """A small image model: 4-dimensional, channels-last gradients, buffers, more than one bucket."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 5, 3))
        self.head = torch.nn.Linear(5 * 16, 10)

    def forward(self, x):
        return self.head(self.features(x.reshape(-1, 1, 8, 8)).flatten(1))


def train_ddp(rank, group, make, memory_format=torch.contiguous_format):
    torch.manual_seed(11)
    model = make().to(memory_format=memory_format)
    ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.01)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)
    losses = []
    for step in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(models.batch(rank, step, 4, 64)),
                                                 torch.arange(4) + rank % 3)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().clone() for parameter in ddp.parameters()]


def train_fsdp(rank, group, make):
    torch.manual_seed(11)
    model = make()
    mesh = DeviceMesh.from_group(group, "cpu")
    for module in model.children():
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(6):
        optimizer.zero_grad()
        loss = model(models.batch(rank, step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.full_tensor().detach() for parameter in model.parameters()]


def compare(rank, world, how):
    """float32: to the last bit on two ranks, where there is one order of two additions; else within 1e-6."""
    gloo, mine = dist.new_group(backend="gloo"), dist.new_group()
    train = {
        "ddp": lambda group: train_ddp(rank, group, Convolutions),
        "ddp_channels_last": lambda group: train_ddp(rank, group, Convolutions, torch.channels_last),
        "fsdp": lambda group: train_fsdp(rank, group, models.ThreeLayers),
    }[how]
    (gloo_losses, gloo_parameters), (losses, parameters) = train(gloo), train(mine)
    if world == 2:
        assert losses == gloo_losses
        assert all(one.equal(other) for one, other in zip(parameters, gloo_parameters, strict=True))
    else:
        assert losses == pytest.approx(gloo_losses, rel=1e-5, abs=1e-6)
    assert models.equal_across_ranks(parameters)
    dist.barrier()
    dist.destroy_process_group(gloo)
    dist.destroy_process_group(mine)
    return losses


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("how", ["ddp", "ddp_channels_last", "fsdp"])
def test_same_training(pool, how):
    pool.run(compare, how)
