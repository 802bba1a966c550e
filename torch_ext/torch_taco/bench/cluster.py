"""A cluster on one machine: nodes that are namespaces, joined by veth pairs and a bridge. Needs root.

  with Cluster(nodes=2, rate="1gbit") as cluster:
      outputs = cluster.run(lambda node: [sys.executable, "script.py", str(node.index)], timeout=60)
      print(cluster[0].sent())

Each node has a network stack, a host name and a /dev/shm of its own, so what leaves a node leaves by its one
interface, whose counters tell how much that was. The bridge is in a namespace of its own: no address, interface or
route of the machine itself is touched, and nothing leaves it.

All processes of a cluster are in a pid namespace, whose number 1 dies with the thread that made the cluster, and every
other process with it: the kernel cleans up, however the owner ends. What a killed owner does leave is a folder in /tmp;
the next start removes those of dead owners, and whatever of their nodes should still be there.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from .node import Count, Node, Switch, address_of, bits_per_second, why_not

__all__ = ["LARGE_MTU", "REAL_MTU", "Cluster", "Count", "Node", "bits_per_second", "remove_leftovers", "why_not"]

# Loopback-like: a segment of 64 KiB is one packet, so that headers do not blur what is counted.
LARGE_MTU = 65535
# As most networks have it; what a shaped node sends has headers as often as there.
REAL_MTU = 1500
FOLDER = "taco-cluster-"


class Cluster:
    """rate: of every node's cable in each direction, in tc's words ("1gbit"); None: as fast as the machine.
    mtu: LARGE_MTU without a rate, for counting; REAL_MTU with one.
    Make it in a thread that lives as long as the nodes are needed: they die with it."""

    def __init__(self, nodes=2, *, hostnames=None, shm_bytes=4 << 30, rate=None, mtu=None):
        remove_leftovers()
        self._owner = os.getpid()
        self._folder = tempfile.mkdtemp(prefix=f"{FOLDER}{_pid_namespace()}-{self._owner}-{_started(self._owner)}-")
        self._machines = []
        self.nodes = []
        mtu = mtu or (LARGE_MTU if rate is None else REAL_MTU)
        names = [(hostnames or {}).get(index, f"taco-node{index}") for index in range(nodes)]
        try:
            hosts = self._write_hosts(names)
            switch = self._made(Switch(hosts, mtu))
            for index, name in enumerate(names):
                self.nodes.append(self._made(Node(index, name, shm_bytes, hosts, switch, mtu)))
                if rate is not None:
                    self.nodes[-1].set_rate(rate)
        except BaseException:
            self.close()
            raise

    def _write_hosts(self, names):
        """The nodes' /etc/hosts: what torch asks of every address that it connects to."""
        path = f"{self._folder}/hosts"
        with open(path, "w") as file:
            file.write("127.0.0.1 localhost\n")
            for index, name in enumerate(names):
                if names.count(name) == 1:  # once more as what a socket of both IPs sees
                    file.write(f"{address_of(index)} {name}\n::ffff:{address_of(index)} {name}\n")
        os.chmod(path, 0o644)
        return path

    def _made(self, machine):
        self._machines.append(machine)
        with open(f"{self._folder}/holders", "a") as file:
            file.write(f"{machine.pid} {_started(machine.pid)}\n")
        return machine

    def __getitem__(self, index):
        return self.nodes[index]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, command_of, *, timeout, env=None):
        """Runs one command on every node at once; their outputs, stdout and stderr together. One that fails, or
        is not done in time, ends all and raises RuntimeError with every node's output."""
        running = []
        with tempfile.TemporaryDirectory(prefix="run-", dir=self._folder) as folder:
            try:
                for node in self.nodes:
                    with open(f"{folder}/{node.index}", "w") as output:
                        running.append(node.start(*command_of(node), stdout=output, stderr=subprocess.STDOUT,
                                                  env={**os.environ, **(env or {})}))
                deadline = time.monotonic() + timeout
                codes = [None] * len(running)
                while None in codes and not any(codes) and time.monotonic() < deadline:
                    codes = [process.poll() for process in running]
                    time.sleep(0.02)
                if any(codes):  # the others may still have something to say about it
                    grace = time.monotonic() + 10
                    while None in codes and time.monotonic() < grace:
                        codes = [process.poll() for process in running]
                        time.sleep(0.02)
            finally:
                for process in running:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
            outputs = [open(f"{folder}/{node.index}", errors="replace").read() for node in self.nodes]
        if any(code != 0 for code in codes):
            raise RuntimeError(f"exit codes {codes} after at most {timeout} s (None: killed)\n" + "\n".join(
                f"--- {node.hostname}:\n{output}" for node, output in zip(self.nodes, outputs)))
        return outputs

    def close(self):
        if os.getpid() != self._owner:
            return  # a forked child's copy
        for machine in reversed(self._machines):
            machine.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def remove_leftovers():
    """Of owners that have died: their folders, and nodes that are still there. A living owner's are left alone, and
    so are those of other users and other pid namespaces, of whom nothing is known."""
    for entry in os.scandir(tempfile.gettempdir()):
        found = re.fullmatch(rf"{FOLDER}(\d+)-(\d+)-(\d+)-\w+", entry.name)
        if not found or not entry.is_dir(follow_symlinks=False):
            continue
        if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            continue
        namespace, owner, started = map(int, found.groups())
        if namespace != _pid_namespace() or _started(owner) == started:
            continue
        with contextlib.suppress(OSError), open(f"{entry.path}/holders") as file:
            for line in file:
                pid, of_holder = map(int, line.split())
                if _started(pid) == of_holder:  # otherwise another process has the number by now
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(entry.path, ignore_errors=True)


def _pid_namespace():
    return os.stat("/proc/self/ns/pid").st_ino


def _started(pid):
    """When a process began, in ticks since the machine did: with its number that names it for ever. 0: no process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
