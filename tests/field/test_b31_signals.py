"""B31 (pytorch#36136): SIGINT while ranks are in a barrier that will not end: all gone within 5 s, /dev/shm clean.
SIGTERM under torchrun likewise.

A terminal sends SIGINT to every process of the job. Python sees it when the call into the library returns: the rank
that was not in the barrier goes first, and its end ends the others' wait.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

import launching
import ranks
import shm

SCRIPT = """
import os, pathlib, sys, time, torch, torch.distributed as dist
folder = pathlib.Path(sys.argv[1])
dist.init_process_group("{backend}")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
(folder / f"pid{{dist.get_rank()}}.new").write_text(str(os.getpid()))
(folder / f"pid{{dist.get_rank()}}.new").rename(folder / f"pid{{dist.get_rank()}}")
if dist.get_rank() == 1:
    time.sleep(100)  # the others wait for this one
else:
    dist.barrier()
"""
GONE_SECONDS = 5.0


def pids_of(folder, world):
    deadline = time.monotonic() + 60
    paths = [folder / f"pid{rank}" for rank in range(world)]
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, "the ranks never came together"
        time.sleep(0.02)
    time.sleep(0.3)  # until they are in the operation
    return [int(path.read_text()) for path in paths]


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_gone(tmp_path, number):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(backend=ranks.BACKEND))
    before = shm.names()
    # The launcher is in a session of its own, so that the test's signal is for it alone: it passes it on.
    launcher = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=localhost", "--nproc-per-node=2",
         str(script), str(tmp_path)],
        env=launching.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        pids = pids_of(tmp_path, 2)
        began = time.monotonic()
        if number == signal.SIGTERM:
            launcher.send_signal(number)
        else:
            for pid in pids:
                os.kill(pid, number)
        while any(alive(pid) for pid in pids):
            assert time.monotonic() < began + GONE_SECONDS, f"still there after {GONE_SECONDS} s"
            time.sleep(0.02)
        _, errors = launcher.communicate(timeout=60)
        if number == signal.SIGINT:
            assert "KeyboardInterrupt" in errors, errors[-3000:]
    finally:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
    assert shm.leftovers(before) == set()
