"""The nodes themselves: what connects them, what can be done to the cable, and that nothing outlives its owner."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from namespaces import cluster, needs_namespaces

pytestmark = needs_namespaces
PATIENCE_SECONDS = 60

# Datagrams are sent from one node to the other all the time, while the other one listens for a while.
SEND = """
import socket, sys, time
outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("sending", flush=True)
while True:
    try:
        outbox.sendto(b"x", (sys.argv[1], 5001))
    except OSError:
        pass  # the cable is out, or nobody listens yet
    time.sleep(0.02)
"""
LISTEN = """
import socket, sys
inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inbox.bind((sys.argv[1], 5001))
inbox.settimeout(float(sys.argv[2]))
try:
    inbox.recv(10)
except TimeoutError:
    sys.exit(1)
"""


def arrives(sender, receiver, seconds):
    """Whether anything gets from one node to the other within that time."""
    sending = sender.start(sys.executable, "-c", SEND, receiver.address, stdout=subprocess.PIPE)
    try:
        assert sending.stdout.readline() == b"sending\n"
        return receiver.start(sys.executable, "-c", LISTEN, receiver.address, seconds).wait() == 0
    finally:
        sending.kill()
        sending.communicate()


def gets_through(sender, receiver):
    return arrives(sender, receiver, 20)


def is_cut(sender, receiver):
    return not arrives(sender, receiver, 0.4)


@pytest.fixture(scope="module")
def three():
    with cluster.Cluster(3, rate="1gbit") as made:
        yield made


def test_a_pulled_cable(three):
    three[0].link_down()
    assert is_cut(three[0], three[1]) and is_cut(three[1], three[0])
    three[0].link_up()
    assert gets_through(three[0], three[1]) and gets_through(three[1], three[0])


def test_one_direction_dropped(three):
    one, two, other = three
    one.drop_incoming()
    assert is_cut(two, one) and gets_through(one, two)
    one.drop_nothing()
    one.drop_incoming(two)
    assert is_cut(two, one) and gets_through(other, one) and gets_through(one, two)
    one.drop_nothing()
    one.drop_outgoing(two)
    assert is_cut(one, two) and gets_through(one, other) and gets_through(two, one)
    one.drop_nothing()
    assert gets_through(one, two)


def test_a_rate_holds_and_can_be_changed(three):
    assert "rate 1Gbit" in three[0].call("tc", "qdisc", "show", "dev", "eth0")
    three[0].set_rate("1mbit")
    assert "rate 1Mbit" in three[0].call("tc", "qdisc", "show", "dev", "eth0")
    three[0].set_rate(None)
    assert "tbf" not in three[0].call("tc", "qdisc", "show", "dev", "eth0")
    three[0].set_rate("1gbit")


CONNECT = """
import socket, sys
if sys.argv[2] == "listen":
    server = socket.create_server((sys.argv[1], 5002))
    print("ready", flush=True)
    peer = server.accept()[0]
else:
    peer = socket.create_connection((sys.argv[1], 5002))
print("connected", flush=True)
try:
    peer.recv(1)
except OSError as error:
    print(type(error).__name__, flush=True)
"""


def test_connections_can_be_reset(three):
    ends = []
    for node, role, says in ((three[0], "listen", b"ready\n"), (three[1], "connect", b"connected\n")):
        ends.append(node.start(sys.executable, "-c", CONNECT, three[0].address, role, stdout=subprocess.PIPE))
        assert ends[-1].stdout.readline() == says
    assert ends[0].stdout.readline() == b"connected\n"
    three[0].reset_connections(three[1])
    said = {end.communicate(timeout=PATIENCE_SECONDS)[0].strip() for end in ends}
    assert said <= {b"ConnectionResetError", b"ConnectionAbortedError"} and said


def test_what_fails_says_what():
    with pytest.raises(ValueError, match="'fast' is no rate"):
        cluster.Cluster(2, rate="fast")
    with cluster.Cluster(1) as made:
        with pytest.raises(RuntimeError, match="ls /nowhere on taco-node0 ended with 2: .*No such file"):
            made[0].call("ls", "/nowhere")


# An owner whose nodes run something that has left its session and its parent.
OWNER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])  # the package without torch_taco around it, which would load torch
from bench import cluster
made = cluster.Cluster(2)
made[1].call("sh", "-c", "setsid sleep 4242 >/dev/null 2>&1 &")
print(made._folder, *(machine.pid for machine in made._machines), flush=True)
time.sleep(600)
"""


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A temporary folder of the test's own: any other test that makes a cluster removes leftovers too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def start_owner():
    package = str(pathlib.Path(cluster.__file__).parents[1])
    owner = subprocess.Popen([sys.executable, "-c", OWNER, package], stdout=subprocess.PIPE, text=True)
    folder, *holders = owner.stdout.readline().split()
    return owner, pathlib.Path(folder), [int(pid) for pid in holders]


def in_same_namespace(pid):
    """Processes that share the pid namespace of a process."""
    namespace = os.readlink(f"/proc/{pid}/ns/pid")
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "ns/pid") == namespace:
                found.append(entry)
        except OSError:
            pass  # it has ended meanwhile
    return found


def gone(entries):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if not any(entry.exists() for entry in entries):
            return True
        time.sleep(0.02)
    return False


def test_nothing_outlives_a_killed_owner_and_living_owners_are_left_alone(own_folder):
    killed, leftover, holders = start_owner()
    living, kept, others = start_owner()
    try:
        processes = in_same_namespace(holders[0])
        assert len(processes) >= len(holders) + 1, "the process that left its parent is missing"
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert gone(processes)
        assert leftover.exists()
        with cluster.Cluster(1):
            assert not leftover.exists(), "the next start has not removed the folder"
        assert kept.exists() and living.poll() is None
        assert all(pathlib.Path(f"/proc/{pid}").exists() for pid in others)
    finally:
        for owner in (killed, living):
            owner.kill()
            owner.communicate()
        cluster.remove_leftovers()
    assert not kept.exists()


def test_holders_that_survived_a_dead_owner_are_ended(own_folder):
    """None should; if one does, the next start ends it, but no other process that has got its number."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    survivors = [subprocess.Popen(["sleep", "4242"]) for _ in range(2)]
    folder = tempfile.mkdtemp(prefix=f"{cluster.FOLDER}{cluster._pid_namespace()}-{dead.pid}-1-")
    try:
        started = [cluster._started(survivor.pid) for survivor in survivors]
        pathlib.Path(folder, "holders").write_text(
            f"{survivors[0].pid} {started[0]}\n{survivors[1].pid} {started[1] - 1}\n")
        cluster.remove_leftovers()
        assert survivors[0].wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert survivors[1].poll() is None
        assert not os.path.exists(folder)
    finally:
        for survivor in survivors:
            survivor.kill()
            survivor.wait()


def test_a_forked_child_does_not_end_its_parents_nodes():
    with cluster.Cluster(1) as made:
        pid = os.fork()
        if pid == 0:
            made.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert made[0].call("hostname").strip() == "taco-node0"


def test_a_command_on_every_node():
    program = pathlib.Path(__file__).resolve().parents[2] / "perf" / "cluster"
    said = "hostname; echo @NODE@ @ADDRESS@ @FIRST@"
    done = subprocess.run([sys.executable, program, "--nodes", "2", "--", "sh", "-c", said], capture_output=True,
                          text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.stdout == ("--- taco-node0 (10.77.0.1)\ntaco-node0\n0 10.77.0.1 10.77.0.1\n"
                           "--- taco-node1 (10.77.0.2)\ntaco-node1\n1 10.77.0.2 10.77.0.1\n"), done.stderr
    failing = subprocess.run([sys.executable, program, "--", "sh", "-c", "echo why; exit 3"], capture_output=True,
                             text=True, timeout=PATIENCE_SECONDS, check=False)
    assert failing.returncode == 1 and "exit codes [3, 3]" in failing.stderr and "why" in failing.stderr
