"""Small models and training loops whose numbers are exact or compared with gloo's."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class ThreeLayers(torch.nn.Module):
    """Odd sizes, so that no bucket or chunk ends where a tensor does."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(7, 33)
        self.second = torch.nn.Linear(33, 17)
        self.third = torch.nn.Linear(17, 3)

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


def batch(rank, step, rows=6, width=7):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(rows, width, generator=generator)


def train(rank, *, steps=6, hook=None, state=None, accumulate=1, group=None, model=None, **ddp_options):
    """Trains through DDP; the losses and the parameters. accumulate: backward passes an optimizer step, all
    but the last under no_sync."""
    torch.manual_seed(7)
    ddp = DistributedDataParallel(model or ThreeLayers(), process_group=group, **ddp_options)
    if hook is not None:
        ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            with ddp.no_sync() if part < accumulate - 1 else contextlib.nullcontext():
                loss = ddp(batch(rank, step * accumulate + part)).square().mean()
                loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().clone() for parameter in ddp.parameters()]


def equal_across_ranks(tensors, group=None):
    """Whether all ranks hold the same bytes."""
    flat = torch.cat([tensor.detach().reshape(-1).contiguous().view(torch.uint8) for tensor in tensors])
    everyones = [torch.empty_like(flat) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, flat, group=group)
    return all(torch.equal(one, everyones[0]) for one in everyones)
