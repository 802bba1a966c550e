"""B46 (torchcomms PR#2992): two ranks that both sent first waited for each other for ever."""

import pytest
import torch
import torch.distributed as dist

import ranks

LARGE = 16 << 20  # elements of float32: 64 MiB


def both_send_first(rank, world, numel):
    """Every rank sends to every other before it receives anything."""
    numel = max(1, numel // (world - 1))
    others = [r for r in range(world) if r != rank]
    sent = {r: torch.full((numel,), float(10 * rank + r)) for r in others}
    sends = [dist.isend(sent[r], r) for r in others]
    received = {r: torch.empty(numel) for r in others}
    receives = [dist.irecv(received[r], r) for r in others]
    for work in sends + receives:
        work.wait()
    for r in others:
        assert received[r][0] == 10 * r + rank and received[r].unique().numel() == 1


def ring_by_batch(rank, world, numel):
    out = torch.empty(numel)
    mine = torch.arange(numel, dtype=torch.float32) + rank
    to, source = (rank + 1) % world, (rank - 1) % world
    for order in (1, -1):
        ops = [dist.P2POp(dist.isend, mine, to), dist.P2POp(dist.irecv, out, source)][::order]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert out.equal(torch.arange(numel, dtype=torch.float32) + source)


def sends_beside_collectives(rank, world, numel):
    """A blocked collective stalls no send that its peer waits for, nor the reverse."""
    to, source = (rank + 1) % world, (rank - 1) % world
    summed, out, mine = torch.ones(numel), torch.empty(1000), torch.full((1000,), float(rank))
    if rank == 0:
        work = dist.all_reduce(summed, async_op=True)
        dist.send(mine, to)
        dist.recv(out, source)
        work.wait()
    else:
        dist.recv(out, source)
        dist.send(mine, to)
        dist.all_reduce(summed)
    assert out.unique().tolist() == [float(source)]
    assert summed.unique().tolist() == [float(world)]


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("numel", [1, 10_000, LARGE])
@pytest.mark.parametrize("job", [both_send_first, ring_by_batch, sends_beside_collectives],
                         ids=lambda job: job.__name__)
def test_no_deadlock(pool, layout, job, numel):
    if layout.world == 4:
        numel //= 16  # the same queues fill up; four times 64 MiB at a time is for machines with more cores
    pool.run(job, max(1, numel))
