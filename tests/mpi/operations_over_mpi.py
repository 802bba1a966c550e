"""One rank under mpirun with TACO_TRANSPORT=mpi: python operations_over_mpi.py FOLDER ORDER"""

import pathlib
import sys

import torch
import torch.distributed as dist

folder, order = pathlib.Path(sys.argv[1]), sys.argv[2]


def use_mpi4py():
    """The program's own use of MPI beside ours; without mpi4py there is nothing to try."""
    try:
        from mpi4py import MPI
    except ImportError:
        return
    world = MPI.COMM_WORLD
    assert world.size > 1, "mpi4py has opened another MPI than the one of this mpirun"
    assert world.allreduce(world.rank) == sum(range(world.size))


if order == "mpi4py first":
    use_mpi4py()
dist.init_process_group("taco", init_method="taco://")
if order == "mpi4py after":
    use_mpi4py()
rank, world = dist.get_rank(), dist.get_world_size()
everybody = range(world)

# Whole numbers, so that sums are exact in any order.
for count in (1, 1000, 700_001):
    data = torch.arange(count, dtype=torch.float32) % 1000 + rank
    dist.all_reduce(data)
    assert torch.equal(data, (torch.arange(count, dtype=torch.float32) % 1000) * world + sum(everybody))

data = torch.full((300_000,), rank)
dist.broadcast(data, src=world - 1)
assert torch.equal(data, torch.full((300_000,), world - 1))

out = torch.empty(world, dtype=torch.int64)
dist.all_to_all_single(out, torch.arange(world) + 10 * rank)
assert out.tolist() == [10 * other + rank for other in everybody]

if rank == 0:
    senders = set()
    for _ in range(world - 1):
        data = torch.empty(100_000)
        source = dist.recv(data)
        assert torch.equal(data, torch.full((100_000,), float(source)))
        senders.add(source)
    assert senders == set(everybody) - {0}
else:
    dist.send(torch.full((100_000,), float(rank)), dst=0)

pending = [dist.all_reduce(torch.ones(50_000), async_op=True) for _ in range(4)]
for work in pending:
    work.wait()

ends = dist.new_group([0, world - 1])
if rank in (0, world - 1):
    data = torch.full((1000,), rank + 1)
    dist.all_reduce(data, group=ends)
    assert torch.equal(data, torch.full((1000,), world + 1))

try:
    dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BXOR)
except ValueError:
    pass
else:
    raise AssertionError("a bitwise operation of floats must be refused")
dist.barrier()

import torch_taco  # noqa: E402

links = torch_taco.describe()
dist.destroy_process_group()
(folder / f"rank{rank}").write_text(links)
