"""What tests of TopK compression share: layouts of several nodes, what all ranks hold back, a plain reference, and
trainings whose books are kept."""

import contextlib
import gc
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import models
import ranks

FLAT = ranks.Layout("2x1", 2, nodes=2)  # every rank is a node of its own
FLAT4 = ranks.Layout("4x1", 4, nodes=4)
TWO_D = ranks.Layout("2x2", 4, nodes=2)
ONE_NODE = ranks.Layout("1x2", 2)
LAYOUTS = [FLAT, TWO_D]
TINY_BUCKETS = {"bucket_cap_mb": 0.001}


def uneven(rank):
    """The environment of 3 ranks, two of which are on one node."""
    return {"TACO_NODE_ID": "b" if rank == 2 else "a"}


def backend(group=None):
    from torch_taco._group import _backend_of

    return _backend_of(group)


def network_bytes(group=None):
    import torch_taco

    return torch_taco.traffic(group).network_bytes


def nothing_is_held(group=None):
    """Waits until no residual is left. The thread that runs operations lets go of the last one's tensor a moment after
    that is done."""
    import torch_taco

    gc.collect()
    deadline = time.monotonic() + 20
    while (stats := torch_taco.residual_stats(group)) != (0, 0, 0.0):
        assert time.monotonic() < deadline, f"residuals outlive their buffers: {stats}"
        time.sleep(0.001)


def all_residuals(tensor, group=None):
    """What all ranks together have not sent of a buffer: a float64 tensor. Flat: the sum over the ranks. 2D: each
    node's slices one after the other, in rank order, and the sum over the nodes."""
    found = backend(group).residual_of(tensor)
    mine = None if found is None else (found[0], found[1])
    everyones = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, mine, group=group)
    total = torch.zeros(tensor.numel(), dtype=torch.float64)
    begin = 0
    for kind, residual in filter(None, everyones):
        total[begin : begin + residual.numel()] += residual.double()
        begin += residual.numel() if kind == "2d" else 0
        begin %= total.numel()
    return total


def largest(values, k):
    """Indices of the k largest magnitudes, ties to the smallest index, ascending."""
    order = torch.sort(values.abs(), descending=True, stable=True).indices[:k]
    return order.sort().values


class FlatReference:
    """All ranks' side of a flat compressed all-reduce, worked out by each rank for itself. Adds as the backend does:
    float32, in rank order, one rounding."""

    def __init__(self, world, count):
        self.residuals = [torch.zeros(count) for _ in range(world)]

    def step(self, gradients, k, fp16=False):
        """The result of the sum."""
        total = torch.zeros_like(self.residuals[0])
        for gradient, residual in zip(gradients, self.residuals, strict=True):
            residual += gradient.float()
            chosen = largest(residual, k)
            sent = residual[chosen]
            if fp16:
                sent = sent.clamp(-65504, 65504).half().float()
            residual[chosen] -= sent
            total[chosen] += sent
        return total.to(gradients[0].dtype)


def everyones_gradients(world, step, count, dtype=torch.float32):
    """Of each rank, as every rank can work it out."""
    return [torch.randn(count, generator=torch.Generator().manual_seed(1000 * step + rank)).to(dtype)
            for rank in range(world)]


class Accounts:
    """A hook around topk_hook that keeps the books of each parameter: what all ranks gave, and what came out."""

    def __init__(self, state):
        self.state = state
        self.given, self.out, self.places = {}, {}, {}

    def hook(self, _, bucket):
        import torch_taco

        parameters, gradients = bucket.parameters(), bucket.gradients()
        begin = 0
        for parameter, gradient in zip(parameters, gradients, strict=True):
            everyones = gradient.double()
            dist.all_reduce(everyones, group=self.state.group)
            self.given[parameter] = self.given.get(parameter, 0) + everyones
            self.places[parameter] = bucket.index(), begin
            begin += gradient.numel()
        buffer, world = bucket.buffer(), dist.get_world_size()

        def note(future):
            result = future.value()
            assert result.data_ptr() == buffer.data_ptr()
            for parameter, gradient in zip(parameters, gradients, strict=True):
                self.out[parameter] = self.out.get(parameter, 0) + world * gradient.double()
            return result

        return torch_taco.topk_hook(self.state, bucket).then(note)

    def check(self):
        held = {index: all_residuals(buffer, self.state.group)
                for index, _, buffer in self.state._alive()}
        for parameter, given in self.given.items():
            index, begin = self.places[parameter]
            left = held[index][begin : begin + parameter.numel()].view_as(given)
            assert torch.allclose(self.out[parameter] + left, given, rtol=1e-4, atol=1e-5), parameter.shape
        return sum(residual.norm().item() for residual in held.values())


class Training:
    """Steps one at a time, with the books kept."""

    def __init__(self, group=None, accumulate=1, options=TINY_BUCKETS, **arguments):
        import torch_taco

        torch.manual_seed(7)
        self.accumulate = accumulate
        self.state = torch_taco.TopkState(group=group, **arguments)
        self.ddp = DistributedDataParallel(models.ThreeLayers(), process_group=group, **options)
        self.accounts = Accounts(self.state)
        self.ddp.register_comm_hook(None, self.accounts.hook)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.05)

    def run(self, steps):
        for step in steps:
            self.optimizer.zero_grad()
            for part in range(self.accumulate):
                with self.ddp.no_sync() if part < self.accumulate - 1 else contextlib.nullcontext():
                    inputs = models.batch(dist.get_rank(), step * self.accumulate + part)
                    self.ddp(inputs).square().mean().backward()
            self.optimizer.step()
