"""B34 (nccl PR#156): host names say nothing about who shares memory. One host name with two private /dev/shm; two host
names with one /dev/shm: the sum of r + 1 over W4 is 10, and all ranks agree on the grouping. (Two network namespaces
with one host name: tests/cluster/test_two_nodes.py.)"""

import ctypes
import os
import socket
import subprocess

import pytest
import torch
import torch.distributed as dist

import ranks

CLONE_NEWNS, CLONE_NEWUTS = 0x00020000, 0x04000000
_libc = ctypes.CDLL(None, use_errno=True)


def _may_unshare():
    return subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not _may_unshare(), reason="namespaces of one's own need root (CAP_SYS_ADMIN)")


def _check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def private_memory(rank, world):
    """Ranks 0 and 1 share one /dev/shm, ranks 2 and 3 another; all have the machine's name."""
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
    first = rank // 2 * 2
    if rank == first:
        _check(_libc.unshare(CLONE_NEWNS))
        _check(_libc.mount(b"none", b"/", None, 0x40000 | 0x4000, None))  # MS_PRIVATE | MS_REC
        _check(_libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"size=1g"))
        store.set(f"namespace {rank}", str(os.getpid()))
        return
    descriptor = os.open(f"/proc/{store.get(f'namespace {first}').decode()}/ns/mnt", os.O_RDONLY)
    _check(_libc.setns(descriptor, CLONE_NEWNS))
    os.close(descriptor)


def own_names(rank, world):
    """Two host names over one /dev/shm."""
    _check(_libc.unshare(CLONE_NEWUTS))
    socket.sethostname(f"b34-name-{rank // 2}")


def sums(rank, world, place):
    place(rank, world)
    ranks.init_group()
    tensor = torch.full((100_000,), rank + 1.0)
    dist.all_reduce(tensor)
    assert tensor.min() == tensor.max() == 10.0, tensor
    if not ranks.IS_TACO:
        return None
    import torch_taco

    return socket.gethostname(), str(torch_taco.explain(64 << 20)), torch_taco.traffic().network_bytes


@pytest.mark.parametrize("place, names, nodes", [(private_memory, 1, 2), (own_names, 2, 1)])
def test_sum_and_grouping(place, names, nodes):
    found = [outcome.value for outcome in ranks.run(sums, 4, place, init=False)]
    if ranks.IS_TACO:
        assert len({name for name, _, _ in found}) == names
        assert len({plan for _, plan, _ in found}) == 1, found
        assert found[0][1].lower().startswith("2d" if nodes == 2 else "flat"), found
        assert all((sent > 0) == (nodes == 2) for _, _, sent in found), found
