"""torch.distributed._functional_collectives, as DTensor and torch.compile use them, and DTensor itself."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import ranks


def collectives(rank, world):
    group = dist.group.WORLD
    mine = torch.arange(4.0) + 10 * rank
    everyones = [torch.arange(4.0) + 10 * r for r in range(world)]
    for op, want in {"sum": sum(everyones), "avg": sum(everyones) / world, "max": everyones[-1],
                     "min": everyones[0]}.items():
        torch.testing.assert_close(functional.all_reduce(mine, op, group).clone(), want)
    assert mine.equal(everyones[rank])  # functional: the input stays
    assert functional.all_gather_tensor(mine, 0, group).clone().equal(torch.cat(everyones))
    assert functional.all_gather_tensor(mine.reshape(2, 2), 1, group).clone().equal(
        torch.cat([one.reshape(2, 2) for one in everyones], 1))
    whole = torch.cat([mine + j for j in range(world)])
    want = sum(everyones) + world * rank
    assert functional.reduce_scatter_tensor(whole, "sum", 0, group).clone().equal(want)
    exchanged = functional.all_to_all_single(whole, [4] * world, [4] * world, group)
    assert exchanged.clone().equal(torch.cat([one + rank for one in everyones]))
    assert functional.broadcast(mine, world - 1, group).clone().equal(everyones[-1])
    sums = functional.all_reduce_coalesced([mine, mine * 2], "sum", group)
    assert [one.tolist() for one in map(torch.clone, sums)] == [sum(everyones).tolist(), (2 * sum(everyones)).tolist()]
    gathered = functional.all_gather_into_tensor_coalesced([mine, mine[:2]], group)
    assert gathered[0].clone().equal(torch.cat(everyones))
    assert gathered[1].clone().equal(torch.cat([one[:2] for one in everyones]))
    scattered = functional.reduce_scatter_tensor_coalesced([whole, 2 * whole], "sum", [0, 0], group)
    assert scattered[0].clone().equal(want) and scattered[1].clone().equal(2 * want)
    exchanged = functional.permute_tensor(mine, [(r + 1) % world for r in range(world)], group)
    assert exchanged.clone().equal(everyones[(rank - 1) % world])


def no_works_left(rank, world):
    """Every functional work is taken from c10d's registry when it is waited for."""
    import torch._C._distributed_c10d as c10d

    before = c10d._get_work_registry_size()
    for _ in range(20):
        functional.wait_tensor(functional.all_reduce(torch.ones(100), "sum", dist.group.WORLD))
    assert c10d._get_work_registry_size() == before


def gradients(rank, world):
    """Backward through a functional all-gather is a reduce-scatter."""
    mine = torch.arange(3.0, requires_grad=True)
    whole = functional.all_gather_tensor_autograd(mine, 0, dist.group.WORLD)
    (whole * (rank + 1)).sum().backward()
    assert mine.grad.tolist() == [world * (world + 1) / 2] * 3


def tensors_on_meshes(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    full = torch.arange(float(6 * world)).reshape(2 * world, 3)
    sharded = distribute_tensor(full, mesh, [Shard(0)])
    assert sharded.to_local().equal(full[2 * rank:2 * rank + 2])
    assert sharded.full_tensor().equal(full)
    assert sharded.redistribute(placements=[Replicate()]).to_local().equal(full)
    columns = distribute_tensor(torch.arange(float(5 * world * 2)).reshape(5, 2 * world), mesh, [Shard(1)])
    rows = columns.redistribute(placements=[Shard(0)])
    assert rows.full_tensor().equal(columns.full_tensor())
    partial = DTensor.from_local(torch.ones(4) * (rank + 1), mesh, [Partial()])
    assert partial.full_tensor().tolist() == [world * (world + 1) / 2] * 4
    uneven = distribute_tensor(torch.arange(float(2 * world + 1)), mesh, [Shard(0)])
    assert uneven.full_tensor().tolist() == list(range(2 * world + 1))
    product = sharded @ distribute_tensor(torch.ones(3, 2), mesh, [Replicate()])
    assert product.full_tensor().equal(full @ torch.ones(3, 2))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [collectives, no_works_left, gradients, tensors_on_meshes],
                         ids=lambda job: job.__name__)
def test_functional(pool, job):
    pool.run(job)
