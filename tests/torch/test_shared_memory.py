"""/dev/shm is as before after every kind of end; a small or read-only one is no SIGBUS.

Each test has a /dev/shm of its own (a mount namespace with a fresh tmpfs), so that it sees every file and
nothing else on the machine matters.
"""

import subprocess
import textwrap

import pytest

import ranks
import scripts


def own_shm(options):
    """A command that runs its arguments with a fresh /dev/shm."""
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} none /dev/shm && exec "$@"', "sh"]


def may_unshare():
    return subprocess.run([*own_shm("size=1m"), "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not may_unshare(), reason="a /dev/shm of one's own needs root (CAP_SYS_ADMIN)"),
    pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's segments: TEST_BACKEND is set"),
]

START = """
import os, signal, time, torch, torch.distributed as dist
dist.init_process_group(BACKEND)
rank, world = dist.get_rank(), dist.get_world_size()
tensor = torch.ones(100000)
dist.all_reduce(tensor)
dist.all_reduce(tensor, async_op=True).wait()
work = dist.isend(tensor, (rank + 1) % world)
dist.recv(tensor, (rank - 1) % world)
work.wait()
"""
ENDINGS = {
    "destroy": START + "dist.destroy_process_group()\n",
    "nothing": START,
    "exception": START + "raise ValueError('the script breaks')\n",
    "kill all": START + "dist.barrier()\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "kill one": START + textwrap.dedent("""
        if rank == world - 1: os.kill(os.getpid(), signal.SIGKILL)
        try: dist.all_reduce(tensor)
        except RuntimeError: pass
        """),
    "kill in the middle": START + textwrap.dedent("""
        works = [dist.all_reduce(torch.ones(1000000), async_op=True) for _ in range(5)]
        os.kill(os.getpid(), signal.SIGKILL)
        """),
}


@pytest.mark.parametrize("layout", ranks.layouts(2, 4), ids=str)
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left(layout, ending):
    """B19: repeated, since a leak may depend on who was first."""
    found = scripts.run(ENDINGS[ending], layout.world, repeats=2, env=layout.env, wrapper=own_shm("size=4g"))
    if "kill" not in ending and ending != "exception":
        scripts.assert_clean(found)
    assert found.shm == []


LARGE_SUM = """
import torch, torch.distributed as dist
dist.init_process_group(BACKEND)
tensor = torch.ones(16 << 20)
try:
    dist.all_reduce(tensor)
    assert tensor.min() == tensor.max() == dist.get_world_size()
    print("worked")
except RuntimeError as error:
    print("error", error)
"""


@pytest.mark.parametrize("options", ["size=1m", "size=64k", "ro"])
def test_too_small(options):
    """B20: it works by another way, or an error names /dev/shm and the bytes; never SIGBUS."""
    script = LARGE_SUM.replace('dist.init_process_group(BACKEND)\n', '').replace(
        "try:\n", "try:\n    dist.init_process_group(BACKEND)\n")
    for row in scripts.run(script, 2, wrapper=own_shm(options)):
        for code, output in row:
            assert code == 0, (code, output)
            assert "worked" in output or ("/dev/shm" in output and any(ch.isdigit() for ch in output)), output


def test_the_ranks_really_shared():
    """The tests above would pass without any shared memory: look while the group lives."""
    looking = START + textwrap.dedent("""
        maps = open("/proc/self/maps").read()
        assert "/dev/shm/" in maps or "memfd" in maps, maps
        """)
    scripts.assert_clean(scripts.run(looking, 2, wrapper=own_shm("size=4g")))
