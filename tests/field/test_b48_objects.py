"""B48 (pytorch#74602): object collectives in a group without rank 0 took a group rank for a global one."""

import pytest
import torch.distributed as dist

import ranks

OBJECTS = {
    "none": lambda r: None, "empty": lambda r: {}, "nested": lambda r: {"rank": r, "list": [r, (r, "x")]},
    "10MB": lambda r: bytes([r]) * 10_000_000, "uneven": lambda r: "x" * (r * 1000),
}


def objects_in_a_group(rank, world, members, name):
    make = OBJECTS[name]
    group = dist.new_group(members)
    if rank in members:
        me = members.index(rank)
        for root in range(len(members)):
            for by_group_rank in (False, True):
                source = {"group_src": root} if by_group_rank else {"src": members[root]}
                destination = {"group_dst": root} if by_group_rank else {"dst": members[root]}
                got = [make(rank), "before"] if me == root else [None, None]
                if me == root:
                    got[1] = make(root)
                dist.broadcast_object_list(got, group=group, **source)
                assert got == [make(members[root]), make(root)]

                out = ["before"]
                dist.scatter_object_list(out, [make(r) for r in members] if me == root else None, group=group, **source)
                assert out == [make(rank)]

                gathered = [None] * len(members) if me == root else None
                dist.gather_object(make(rank), gathered, group=group, **destination)
                assert gathered == ([make(r) for r in members] if me == root else None)
        everyones = [None] * len(members)
        dist.all_gather_object(everyones, make(rank), group=group)
        assert everyones == [make(r) for r in members]
        # From the first to the last of the group, and back.
        if me == 0 and len(members) > 1:
            dist.send_object_list([make(rank), 5], members[-1], group=group)
        elif me == len(members) - 1 and len(members) > 1:
            got = [None, None]
            dist.recv_object_list(got, members[0], group=group)
            assert got == [make(members[0]), 5]
        dist.destroy_process_group(group)
    dist.barrier()


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", OBJECTS)
def test_objects(pool, layout, name):
    world = layout.world
    groups = {2: [[0, 1], [1]], 3: [[1, 2], [0, 1, 2]], 4: [[1, 3], [0, 1, 2, 3]]}[world]
    for members in groups:
        pool.run(objects_in_a_group, members, name)
