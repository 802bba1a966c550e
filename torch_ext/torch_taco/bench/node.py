"""The machines of a cluster: processes that keep namespaces. A node, and the switch that nodes are plugged into."""

import contextlib
import ctypes
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess

INTERFACE = "eth0"
# Ethernet + IPv4 + TCP with time stamps, of which the counters count one set a packet.
HEADER_BYTES = 14 + 20 + 32
# A shaper lets through at once what fits into its bucket: small beside what is measured, and larger than what passes
# while a timer is late.
BUCKET_BYTES = 32 << 10
BUCKET_SECONDS = 250e-6
QUEUE = "50ms"
RATE_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
NAMESPACES = ("--net", "--mount", "--uts")
PR_SET_PDEATHSIG = 1


def bits_per_second(rate):
    """1gbit -> 1e9, in tc's words: bit, kbit, mbit, gbit, by powers of 1000."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", str(rate).strip(), re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise ValueError(f"{rate!r} is no rate: write a number and bit, kbit, mbit or gbit, for example 1gbit")
    return float(found[1]) * RATE_UNITS[found[2].lower()]


def why_not():
    """Empty where clusters can be made; otherwise one sentence that says what is missing."""
    for tool, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("setpriv", "util-linux"),
                          ("ip", "iproute2"), ("tc", "iproute2")):
        if shutil.which(tool) is None:
            return f"network namespaces need the command {tool}, which is in the package {package}"
    probe = subprocess.run(["unshare", *NAMESPACES, "--pid", "--fork", "--mount-proc", "ip", "link", "add", "name",
                            "probe0", "type", "veth", "peer", "name", "probe1"], capture_output=True, text=True,
                           check=False)
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


def address_of(index):
    return f"10.77.0.{index + 1}"


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Machine:
    """A process that keeps namespaces: the switch, which all nodes' processes live and die with, or a node."""

    def __init__(self, hostname, shm_bytes, hosts, switch=None):
        self.hostname = hostname
        # No name server can be reached: who asks for a name, as torch does for every peer, would wait for the answer.
        setup = (f"mount -t tmpfs -o size={shm_bytes} none /dev/shm && hostname {hostname} && ip link set lo up && "
                 f"{{ [ ! -e /etc/hosts ] || mount --bind {shlex.quote(hosts)} /etc/hosts; }} && "
                 "{ [ ! -e /etc/resolv.conf ] || mount --bind /dev/null /etc/resolv.conf; } && echo ready")
        if switch is None:
            # Number 1 of a pid namespace. It waits for its children's ends, as it must for all that lost their parents.
            start = ["unshare", *NAMESPACES, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                     setup + " && { sleep infinity & wait; }"]
        else:
            start = ["nsenter", f"--target={switch.pid}", "--pid", "--mount", "--", "unshare", *NAMESPACES, "sh", "-c",
                     setup + " && exec sleep infinity"]
        self._holder = subprocess.Popen(start, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        preexec_fn=die_with_parent)
        if self._holder.stdout.readline() != b"ready\n":
            self._holder.kill()
            said = self._holder.stderr.read().decode(errors="replace").strip()
            self._close_pipes()
            raise RuntimeError(f"{hostname} could not be made: {why_not() or said or 'mount or hostname failed'}")
        with open(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children") as file:
            self.pid = int(file.read())  # as the machine outside counts
        with open(f"/proc/{self.pid}/status") as file:
            self._pid_inside = int(re.search(r"^NSpid:.*\s(\d+)$", file.read(), re.MULTILINE)[1])

    def inside(self, *command):
        """The command line that runs a command here. Who kills the process that runs it kills the command."""
        return ["nsenter", f"--target={self.pid}", *NAMESPACES, "--pid", f"--wd={os.getcwd()}", "--", "setpriv",
                "--pdeathsig=KILL", *map(str, command)]

    def from_other_node(self, *command):
        """The command line that, given on another node, runs a command here: what ssh would do."""
        return ["nsenter", f"--target={self._pid_inside}", *NAMESPACES, "--", *map(str, command)]

    def call(self, *command):
        """Its standard output; RuntimeError with what it said if it fails."""
        done = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} on {self.hostname} ended with {done.returncode}: "
                               f"{done.stderr.strip()}")
        return done.stdout

    def start(self, *command, **options):
        """A Popen of the command; options are Popen's."""
        return subprocess.Popen(self.inside(*command), start_new_session=True, preexec_fn=die_with_parent,
                                **{"stdin": subprocess.DEVNULL, **options})

    def kill(self, pid, number=signal.SIGKILL):
        """Sends a signal to a process by the number that it has inside (its own os.getpid())."""
        self.call("kill", f"-{int(number)}", pid)

    def close(self):
        """Ends the holder; with the switch's every process of the cluster, before this returns."""
        if self._holder.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._close_pipes()

    def _close_pipes(self):
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()


class Switch(Machine):
    def __init__(self, hosts, mtu):
        super().__init__("taco-switch", 1 << 20, hosts)
        self.call("ip", "link", "add", "name", "bridge", "type", "bridge")
        self.call("ip", "link", "set", "bridge", "mtu", mtu, "up")


class Node(Machine):
    def __init__(self, index, hostname, shm_bytes, hosts, switch, mtu):
        super().__init__(hostname, shm_bytes, hosts, switch)
        self.index = index
        self.address = address_of(index)
        self.rate = None
        self._mtu = mtu
        self._switch = switch
        self._port = f"port{index}"
        try:
            switch.call("ip", "link", "add", "name", self._port, "mtu", mtu, "type", "veth", "peer", "name", INTERFACE,
                        "mtu", mtu, "netns", self._pid_inside)
            switch.call("ip", "link", "set", self._port, "master", "bridge", "up")
            self.call("ip", "addr", "add", f"{self.address}/24", "dev", INTERFACE)
            self.call("ip", "link", "set", INTERFACE, "up")
        except BaseException:
            self.close()
            raise

    def sent(self):
        """What has left the node so far."""
        count = json.loads(self.call("ip", "-s", "-j", "link", "show", INTERFACE))[0]["stats64"]["tx"]
        return Count(count["bytes"], count["packets"])

    def set_rate(self, rate):
        """Both directions of the node's cable, from now on: "1gbit", "1mbit"; None: as fast as the machine."""
        bits = None if rate is None else bits_per_second(rate)
        self.rate = rate
        for machine, interface in ((self, INTERFACE), (self._switch, self._port)):
            if bits is None:
                machine.call("tc", "qdisc", "replace", "dev", interface, "root", "pfifo")
                continue
            bucket = max(BUCKET_BYTES, int(bits / 8 * BUCKET_SECONDS), self._mtu + 64)
            # A burst that the sender's kernel hands over as one must fit into the bucket.
            machine.call("ip", "link", "set", interface, "gso_max_size", min(65536, bucket - 1024))
            machine.call("tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", rate, "burst", bucket,
                         "latency", QUEUE)

    def link_down(self):
        """Pulls the cable: neither side sees a carrier."""
        self._switch.call("ip", "link", "set", self._port, "down")

    def link_up(self):
        self._switch.call("ip", "link", "set", self._port, "up")

    def drop_incoming(self, sender=None):
        """From now on nothing arrives here, or nothing from one other node; what is sent from here does."""
        self._drop(self._switch, self._port, sender and f"match ip src {sender.address}/32")

    def drop_outgoing(self, receiver=None):
        """From now on nothing that is sent from here arrives, or nothing for one other node."""
        self._drop(self, INTERFACE, receiver and f"match ip dst {receiver.address}/32")

    def drop_nothing(self):
        """Undoes drop_incoming and drop_outgoing."""
        for machine, interface in ((self, INTERFACE), (self._switch, self._port)):
            # Replacing would fail where the one before has classes.
            machine.call("tc", "qdisc", "replace", "dev", interface, "root", "pfifo")
        self.set_rate(self.rate)

    def _drop(self, machine, interface, match):
        if not match:
            machine.call("tc", "qdisc", "replace", "dev", interface, "root", "blackhole")
            return
        machine.call("sh", "-ec", f"""
            tc qdisc replace dev {interface} root handle 1: htb default 1
            tc class add dev {interface} parent 1: classid 1:1 htb rate {self.rate or '100gbit'}
            tc class add dev {interface} parent 1: classid 1:2 htb rate {self.rate or '100gbit'}
            tc qdisc add dev {interface} parent 1:2 blackhole
            tc filter add dev {interface} parent 1: protocol ip u32 {match} flowid 1:2""")

    def reset_connections(self, peer=None):
        """Breaks every TCP connection between this node and the others, or one other: both ends see a reset."""
        self.call("ss", "--kill", "--tcp", "--no-header", "dst", peer.address if peer else "10.77.0.0/24")
