"""send, recv, isend, irecv, batch_isend_irecv: order, tags, any source, sizes."""

import random

import pytest
import torch
import torch.distributed as dist

import ranks


def tags_pick(rank, world):
    """A receive takes the message with its tag, whatever came before; equal tags keep their order."""
    if rank == 0:
        for i in range(6):
            for to in range(1, world):
                dist.send(torch.tensor([float(i)]), to, tag=i % 3)
    else:
        for tag in (2, 0, 1):
            for turn in (0, 1):
                out = torch.zeros(1)
                assert dist.recv(out, 0, tag=tag) == 0
                assert out.item() == tag + 3 * turn, (tag, turn, out)


def any_source(rank, world):
    """recv without a source tells who it was; every message comes once."""
    for numel in (1, 100_000):
        if rank == 0:
            seen = []
            for _ in range(3 * (world - 1)):
                out = torch.zeros(numel)
                source = dist.recv(out, tag=4)
                assert out[0] // 10 == source and out.unique().numel() == 1
                seen.append(out[0].item())
            assert sorted(seen) == sorted(10.0 * r + i for r in range(1, world) for i in range(3))
            for r in range(1, world):  # what one sender sent stays in order
                assert [v for v in seen if v // 10 == r] == [10.0 * r + i for i in range(3)]
        else:
            for i in range(3):
                dist.send(torch.full((numel,), 10.0 * rank + i), 0, tag=4)
        dist.barrier()


def any_source_asynchronous(rank, world):
    if rank == 0:
        outs = [torch.zeros(10) for _ in range(world - 1)]
        works = [dist.irecv(out, tag=9) for out in outs]
        for work, out in zip(works, outs):
            work.wait()
            assert work._source_rank() == out[0].item()
        assert sorted(out[0].item() for out in outs) == list(range(1, world))
    else:
        dist.isend(torch.full((10,), float(rank)), 0, tag=9).wait()


def any_source_in_group(rank, world):
    """In a group without rank 0 the source is told as a global rank."""
    members = list(range(1, world))
    group = dist.new_group(members)
    if rank == members[-1] and len(members) > 1:
        out = torch.zeros(4)
        seen = {dist.recv(out, group=group) for _ in members[:-1]}
        assert seen == set(members[:-1])
    elif rank in members and len(members) > 1:
        dist.send(torch.ones(4), members[-1], group=group)
    if rank in members:
        dist.destroy_process_group(group)


def receives_first(rank, world):
    """Receives that wait before anything is sent, in another order than the sends."""
    order = random.Random(5)
    tags = list(range(20))
    outs = [torch.zeros(50 * (tag + 1)) for tag in tags]
    to, source = (rank + 1) % world, (rank - 1) % world
    receives = [dist.irecv(outs[tag], source, tag=tag) for tag in order.sample(tags, 20)]
    dist.barrier()
    sends = [dist.isend(torch.full((50 * (tag + 1),), float(100 * rank + tag)), to, tag=tag)
             for tag in order.sample(tags, 20)]
    for work in order.sample(receives + sends, 40):
        work.wait()
    for tag in tags:
        assert outs[tag].unique().tolist() == [100 * source + tag]


def many_messages(rank, world):
    """Thousands of small messages of mixed sizes between all pairs, nothing lost or mixed up."""
    others = [r for r in range(world) if r != rank]
    sizes = [1, 17, 300, 5000]
    sends = [dist.isend(torch.full((sizes[i % 4],), float(1000 * rank + i)), to) for i in range(200) for to in others]
    for i in range(200):
        for source in others:
            out = torch.zeros(sizes[i % 4])
            dist.recv(out, source)
            assert out.unique().tolist() == [1000 * source + i]
    for work in sends:
        work.wait()


def batches(rank, world):
    """All pairs in one batch, both directions, two tensors each."""
    others = [r for r in range(world) if r != rank]
    outs = {(r, k): torch.zeros(1000 * (k + 1)) for r in others for k in (0, 1)}
    ops = []
    for r in others:
        for k in (0, 1):
            ops.append(dist.P2POp(dist.isend, torch.full((1000 * (k + 1),), float(10 * rank + k)), r, tag=k))
            ops.append(dist.P2POp(dist.irecv, outs[r, k], r, tag=k))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for (r, k), out in outs.items():
        assert out.unique().tolist() == [10 * r + k]


def bad_ranks(rank, world):
    """A rank that is not there is the caller's error, at once; oneself too."""
    for bad in (world, world + 5):
        with pytest.raises((ValueError, RuntimeError)):
            dist.send(torch.ones(1), bad)
        with pytest.raises((ValueError, RuntimeError)):
            dist.recv(torch.ones(1), bad)
    with pytest.raises(ValueError):
        dist.send(torch.ones(1), rank)
    dist.barrier()


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [tags_pick, any_source, any_source_asynchronous, any_source_in_group, receives_first,
                                 many_messages, batches, bad_ranks], ids=lambda job: job.__name__)
def test_point_to_point(pool, job):
    pool.run(job)
