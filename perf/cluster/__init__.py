"""A cluster on one machine: nodes that are network namespaces, joined by veth pairs. Needs root.

Each node has a network stack, a host name and a /dev/shm of its own, so what leaves a node leaves by its one
interface, whose counters tell how much that was. A node is a process that sleeps in the namespaces; they live
as long as it does, and it dies with whoever made it: nothing is left behind, however that ends.

  with Cluster(nodes=2) as cluster:
      done = cluster.run(lambda node: [sys.executable, "script.py", str(node.index)], timeout=60)
      print(cluster[0].sent())
"""

import ctypes
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

INTERFACE = "eth0"
# Loopback-like: a segment of 64 KiB is one packet, so that headers do not blur what is counted.
MTU = 65535
# Ethernet + IPv4 + TCP with time stamps, of which the counters count one set a packet.
HEADER_BYTES = 14 + 20 + 32
PR_SET_PDEATHSIG = 1


def why_not():
    """Empty where clusters can be made; otherwise one sentence that says what is missing."""
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"network namespaces need the command {tool}"
    probe = subprocess.run(["unshare", "--net", "--mount", "--uts", "ip", "link", "add", "probe", "type", "veth",
                            "peer", "name", "probe2"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"network namespaces need root (CAP_SYS_ADMIN): {probe.stderr.strip()}"
    return ""


@dataclasses.dataclass(frozen=True)
class Count:
    """What an interface has sent."""

    bytes: int
    packets: int

    def __sub__(self, other):
        return Count(self.bytes - other.bytes, self.packets - other.packets)

    @property
    def payload(self):
        """Without the headers: acknowledgements without data come out as nothing."""
        return self.bytes - self.packets * HEADER_BYTES


class Node:
    def __init__(self, index, hostname, shm_bytes):
        self.index = index
        self.hostname = hostname
        self.address = f"10.77.0.{index + 1}"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "sh", "-c",
             f"mount -t tmpfs -o size={shm_bytes} none /dev/shm && hostname {hostname} && echo ready && exec sleep infinity"],
            stdout=subprocess.PIPE, preexec_fn=_die_with_parent)
        if self._holder.stdout.readline() != b"ready\n":
            self.close()
            raise RuntimeError(f"node {index} could not be made: {why_not() or 'mount or hostname failed'}")

    def inside(self, *command):
        """The command line that runs a command in this node."""
        return ["nsenter", f"--target={self._holder.pid}", "--net", "--mount", "--uts", f"--wd={os.getcwd()}", "--",
                *map(str, command)]

    def call(self, *command):
        return subprocess.run(self.inside(*command), check=True, capture_output=True, text=True).stdout

    def sent(self):
        """What has left the node so far."""
        count = json.loads(self.call("ip", "-s", "-j", "link", "show", INTERFACE))[0]["stats64"]["tx"]
        return Count(count["bytes"], count["packets"])

    def join(self, other):
        """A cable from this node to the other one: with two nodes, all the network there is."""
        self.call("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns",
                  other._holder.pid)

    def up(self):
        for interface in ("lo", INTERFACE):
            self.call("ip", "link", "set", interface, "up")
        self.call("ip", "link", "set", INTERFACE, "mtu", MTU)
        self.call("ip", "addr", "add", f"{self.address}/24", "dev", INTERFACE)

    def shape(self, rate, delay):
        self.call("tc", "qdisc", "add", "dev", INTERFACE, "root", "netem", "delay", delay, "rate", rate)

    def close(self):
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()


class Cluster:
    """rate, delay: of every node's interface, in tc's words ("10gbit", "50us"); None: as fast as the machine."""

    def __init__(self, nodes=2, *, hostnames=None, shm_bytes=4 << 30, rate=None, delay="0us"):
        self.nodes = []
        self._switch = None
        try:
            for index in range(nodes):
                self.nodes.append(Node(index, (hostnames or {}).get(index, f"taco-node{index}"), shm_bytes))
            self._connect()
            for node in self.nodes:
                node.up()
                if rate is not None:
                    node.shape(rate, delay)
        except BaseException:
            self.close()
            raise

    def _connect(self):
        if len(self.nodes) == 2:
            self.nodes[0].join(self.nodes[1])
            return
        # More than two: a bridge in a namespace of its own.
        self._switch = Node(len(self.nodes), "taco-switch", 1 << 20)
        self._switch.call("ip", "link", "add", "bridge", "type", "bridge")
        self._switch.call("ip", "link", "set", "bridge", "mtu", MTU, "up")
        for node in self.nodes:
            port = f"port{node.index}"
            self._switch.call("ip", "link", "add", port, "mtu", MTU, "type", "veth", "peer", "name", INTERFACE,
                              "netns", node._holder.pid)
            self._switch.call("ip", "link", "set", port, "master", "bridge", "up")

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
        with tempfile.TemporaryDirectory(prefix="taco-cluster-") as folder:
            try:
                for node in self.nodes:
                    with open(f"{folder}/{node.index}", "w") as output:
                        running.append(subprocess.Popen(
                            node.inside(*command_of(node)), stdout=output, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}, start_new_session=True,
                            preexec_fn=_die_with_parent))
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
        for node in [*self.nodes, *([self._switch] if self._switch else [])]:
            node.close()


def _die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
