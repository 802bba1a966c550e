"""B61 (pytorch PR#104250): SyncBatchNorm on CPU, and the buffers of BatchNorm across ranks."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import models
import ranks


def sync_batch_norm(rank, world, group):
    """What comes out, or the kind and the text of the error."""
    torch.manual_seed(1)
    layer = torch.nn.SyncBatchNorm(6, process_group=group)
    x = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(rank), requires_grad=True)
    try:
        y = layer(x)
        y.square().sum().backward()
        return y.detach(), x.grad, layer.running_mean, layer.running_var
    except (ValueError, RuntimeError) as error:
        return type(error).__name__, str(error)


def sync_batch_norm_as_gloo(rank, world):
    gloo = dist.new_group(backend="gloo")
    theirs, ours = sync_batch_norm(rank, world, gloo), sync_batch_norm(rank, world, dist.group.WORLD)
    dist.destroy_process_group(gloo)
    assert len(theirs) == len(ours), (theirs, ours)
    for one, other in zip(theirs, ours):
        if isinstance(one, str):
            assert one == other
        else:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def buffers_follow_rank_0(rank, world, broadcast_buffers):
    torch.manual_seed(rank)
    net = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2))
    ddp = DistributedDataParallel(net, broadcast_buffers=broadcast_buffers)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(5):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(100 * step + rank)) + rank
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()
    if broadcast_buffers:
        # A forward pass first takes rank 0's buffers; in eval mode it leaves them as they are.
        ddp.train()
        with torch.no_grad():
            norm = net[1]
            norm.momentum = 0.0
            ddp(torch.randn(8, 5))
        assert models.equal_across_ranks([norm.running_mean, norm.running_var])
        assert norm.num_batches_tracked.item() == 6
    else:
        assert not models.equal_across_ranks([net[1].running_mean])
    assert models.equal_across_ranks(list(ddp.parameters()))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_sync_batch_norm(pool):
    pool.run(sync_batch_norm_as_gloo)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("broadcast_buffers", [True, False], ids=["broadcast", "own"])
def test_buffers(pool, broadcast_buffers):
    pool.run(buffers_follow_rank_0, broadcast_buffers)
