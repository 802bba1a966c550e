"""The network between two nodes fails in every way: the result is right, or both ranks raise an error that names the
other one within the time-out + 2 s, and end. Never a hang, never wrong data. (What is promised: docs/failures.md.)

One rank on each node sums up in a loop and checks every sum, while the test breaks the network. On each node a driver
that has imported torch forks a rank for each case.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest

import failing
import launching
import ranks
from namespaces import cluster, needs_namespaces

pytestmark = [needs_namespaces, pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's connections")]

TIMEOUT_SECONDS = 5.0
ENDING_SECONDS = 20.0  # until a process with a failed group has gone

DRIVER = textwrap.dedent("""
    import datetime, json, os, pathlib, sys, time
    import torch, torch.distributed as dist
    torch.set_num_threads(1)

    def write(path, text):
        pathlib.Path(str(path) + ".new").write_text(text)
        os.rename(str(path) + ".new", path)

    def sum_up(rank, folder, numel):
        # Rank 0 says in the first element whether this is the last round.
        for round in range(1 << 30):
            mine = torch.arange(numel, dtype=torch.float64) + rank * round
            mine[0] = float(rank == 0 and (folder / "stop").exists())
            began = time.monotonic()
            try:
                dist.all_reduce(mine)
            except RuntimeError as error:
                return {"error": str(error), "seconds": time.monotonic() - began, "rounds": round}
            want = 2 * torch.arange(1, numel, dtype=torch.float64) + round
            if not torch.equal(mine[1:], want):
                return {"error": "WRONG DATA", "seconds": 0.0, "rounds": round}
            if round == 3:
                write(folder / f"ready{rank}", "")
            if mine[0] == 1:
                return {"error": None, "seconds": 0.0, "rounds": round}
            time.sleep(0.01)

    def work(rank, config):
        folder = pathlib.Path(config["folder"])
        store = dist.TCPStore(config["address"], config["port"], 2, is_master=rank == 0)
        dist.init_process_group("taco", store=store, rank=rank, world_size=2,
                                timeout=datetime.timedelta(seconds=config["timeout"]))
        result = sum_up(rank, folder, config["numel"])
        write(folder / f"result{rank}", json.dumps(result))
        dist.destroy_process_group()
        if rank == 0 and result["error"] is not None:
            time.sleep(2.5)  # serves the store: the other one may be about to ask it

    for line in sys.stdin:
        config = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(int(sys.argv[1]), config)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        write(pathlib.Path(config["folder"]) / f"ended{sys.argv[1]}", str(os.waitstatus_to_exitcode(status)))
    """)


def wait_for(paths, seconds):
    """Whether all files are there within the time."""
    deadline = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Nodes:
    """Two nodes with a driver each."""

    def __init__(self, made):
        self.cluster = made
        self.port = 20000
        self.drivers = [
            made[rank].start(sys.executable, "-c", DRIVER, str(rank), stdin=subprocess.PIPE, text=True,
                             env=launching.environment(TACO_SOCKET_IFNAME="eth0", TACO_DUMP_DIR="none"))
            for rank in range(2)]

    @contextlib.contextmanager
    def summing(self, folder, *, timeout=TIMEOUT_SECONDS, numel=8192):
        """Both ranks are in their loop; afterwards `outcomes` says how it ended on each."""
        self.port += 1
        for driver in self.drivers:
            driver.stdin.write(json.dumps({"folder": str(folder), "port": self.port, "timeout": timeout, "numel": numel,
                                           "address": self.cluster[0].address}) + "\n")
            driver.stdin.flush()
        assert wait_for([folder / f"ready{rank}" for rank in range(2)], 60), "the ranks never came together"
        outcomes = []
        yield outcomes
        found = [folder / f"result{rank}" for rank in range(2)]
        assert wait_for(found, timeout + ENDING_SECONDS), f"hangs: only {[path.name for path in folder.iterdir()]}"
        outcomes.extend(json.loads(path.read_text()) for path in found)
        ends = [folder / f"ended{rank}" for rank in range(2)]
        assert wait_for(ends, ENDING_SECONDS), "a process does not end after its group has failed"
        assert [path.read_text() for path in ends] == ["0", "0"]

    def close(self):
        for driver in self.drivers:
            driver.stdin.close()
            driver.kill()
            driver.wait()


@pytest.fixture(scope="module")
def nodes():
    with cluster.Cluster(2) as made:
        both = Nodes(made)
        yield both
        both.close()


def goes_on(nodes, folder, seconds=1.0):
    """Rounds of sums after now, and then the end."""
    time.sleep(seconds)
    pathlib.Path(folder / "stop").touch()


def check_failed(outcomes):
    for rank, outcome in enumerate(outcomes):
        assert outcome["error"] is not None, outcome
        assert failing.names_rank(outcome["error"], 1 - rank), outcome
        assert failing.names_operation(outcome["error"], "all_reduce"), outcome
        assert outcome["seconds"] <= TIMEOUT_SECONDS + failing.SLACK_SECONDS, outcome


def check_worked(outcomes, rounds=4):
    for outcome in outcomes:
        assert outcome["error"] is None and outcome["rounds"] >= rounds, outcome


def test_down_for_a_second(nodes, tmp_path):
    """Shorter than the time-out: the connections survive, and nobody notices more than a delay."""
    with nodes.summing(tmp_path, timeout=20.0) as outcomes:
        nodes.cluster[1].link_down()
        time.sleep(1.0)
        nodes.cluster[1].link_up()
        goes_on(nodes, tmp_path)
    check_worked(outcomes)


@pytest.mark.parametrize("fault", ["link down", "nothing arrives at node 1", "nothing leaves node 1"])
def test_broken_for_ever(nodes, tmp_path, fault):
    one = nodes.cluster[1]
    try:
        with nodes.summing(tmp_path) as outcomes:
            {"link down": one.link_down, "nothing arrives at node 1": one.drop_incoming,
             "nothing leaves node 1": one.drop_outgoing}[fault]()
        check_failed(outcomes)
    finally:
        one.link_up()
        one.drop_nothing()


def test_reset(nodes, tmp_path):
    """Every connection between the nodes is reset, the store's as well."""
    with nodes.summing(tmp_path) as outcomes:
        nodes.cluster[1].reset_connections()
    check_failed(outcomes)


def test_slow(nodes, tmp_path):
    """1 Mbit/s: a sum of 64 KiB takes half a second instead of a millisecond, and is right."""
    try:
        with nodes.summing(tmp_path, timeout=60.0) as outcomes:
            nodes.cluster[1].set_rate("1mbit")
            goes_on(nodes, tmp_path, seconds=2.0)
        check_worked(outcomes)
    finally:
        nodes.cluster[1].set_rate(None)


def test_afterwards(nodes, tmp_path):
    """None of it has left anything behind: the next group works."""
    with nodes.summing(tmp_path) as outcomes:
        goes_on(nodes, tmp_path, seconds=0.1)
    check_worked(outcomes)
