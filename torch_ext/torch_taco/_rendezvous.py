"""init_method="taco://": the processes of a job find each other under every launcher.

The environment is read by the decision table (torch_taco.launch), which gives rank, world size and master. Rank 0
opens a TCPStore at the master's port; the others wait until something listens there and say so every 5 s. Under
torchrun the agent has opened a store already, and under MPI without MASTER_ADDR rank 0 tells its address through
MPI. Then a roll call through the store finds ranks that are there twice, world sizes that differ, and who is
missing, before the first group is made.
"""

import contextlib
import errno
import os
import socket
import sys
import time
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from torch_taco import _launch, _session

PROGRESS_SECONDS = 5.0
_meetings = 0  # how often this process has met the others


def rendezvous(url, timeout=default_pg_timeout, **_):
    """Yields (store, rank, world size) once, as torch's own handlers do."""
    launch = _launch.read(dict(os.environ), arguments=_arguments(url)).as_process()
    for warning in launch.warnings:
        say(launch, warning)
    yield _meet(launch, timeout), launch.rank, launch.world_size
    raise RuntimeError("taco:// cannot meet again: a job that changes its size is restarted by its launcher")


def say(launch, line):
    if os.environ.get("TACO_LOG") != "error":
        print(f"taco: rank {launch.rank} of {launch.world_size} on {socket.gethostname()}: {line}", file=sys.stderr,
              flush=True)


def _arguments(url):
    """What the caller gave: taco://[host[:port]][?rank=r&world_size=n]."""
    parts = urlsplit(url)
    arguments = dict(parse_qsl(parts.query))
    if parts.netloc:
        host, port = _launch.parse_address(parts.netloc, f"init_method='{url}'")
        arguments["master_addr"] = host
        if port is not None:
            arguments["master_port"] = str(port)
    return arguments


def _meet(launch, timeout):
    agents_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    if launch.world_size == 1 and not agents_store:
        return dist.HashStore()  # nobody to meet: neither an address nor a port is needed
    deadline = time.monotonic() + timeout.total_seconds()
    if launch.wants_master_from_mpi:
        store = _meet_through_mpi(launch, timeout)
    else:
        address, port, origin = launch.require_master()
        # The engine looks for the network that leads to the master.
        os.environ.setdefault("MASTER_ADDR", address)
        os.environ.setdefault("MASTER_PORT", str(port))
        if launch.rank == 0 and not agents_store:
            port_origin = next((origin for field, _, origin in launch.values if field == "master_port"), origin)
            store = open_store(port, launch.world_size, timeout, port_origin)
        else:
            store = join_store(launch, address, port, timeout, origin)
    return _call_the_roll(launch, store, deadline)


def _meet_through_mpi(launch, timeout):
    """Rank 0 opens a store on a free port, and MPI carries its address to the others."""
    from torch_taco import _mpi

    store = open_store(0, launch.world_size, timeout, "MPI") if launch.rank == 0 else None
    address, port = _mpi.broadcast_master(store.port if store else None, timeout)
    os.environ.setdefault("MASTER_ADDR", address)
    os.environ.setdefault("MASTER_PORT", str(port))
    return store or join_store(launch, address, port, timeout, "MPI")


def open_store(port, world_size, timeout, origin):
    """Rank 0's store, on every address of this host; an occupied port is an error that says by whom."""
    options = {"is_master": True, "timeout": timeout, "wait_for_workers": False, "multi_tenant": True}
    try:
        listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024) \
            if socket.has_dualstack_ipv6() else socket.create_server(("", port), backlog=1024)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            try:  # by a store of this very process, which may be shared
                return dist.TCPStore(_own_loopback(), port, world_size, **options)
            except RuntimeError:
                pass
        _launch.check_port(port, origin)
        raise
    return dist.TCPStore(_own_loopback(), listener.getsockname()[1], world_size, master_listen_fd=listener.detach(),
                         **options)


def _own_loopback():
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return "127.0.0.1"
    except OSError:
        return "::1"


def join_store(launch, address, port, timeout, origin):
    """A store that somebody else opens, perhaps later than this process comes."""
    deadline = time.monotonic() + timeout.total_seconds()
    _launch.wait_for_listener(address, port, timeout.total_seconds(), lambda line: say(launch, line), origin)
    # By number: torch would look a name up in IPv6 first, and complain where there is none.
    for candidate in _launch.resolve(address, 1.0, None, origin):
        try:
            socket.create_connection((candidate, port), timeout=5).close()
        except OSError:
            continue
        address = candidate
        break
    left = timedelta(seconds=max(1.0, deadline - time.monotonic()))
    return dist.TCPStore(address, port, launch.world_size, is_master=False, timeout=left)


def _call_the_roll(launch, store, deadline):
    global _meetings
    _meetings += 1
    # A store outlives a group, and under torchrun even an attempt: what was written for an earlier one must not
    # be taken for an answer.
    store = dist.PrefixStore(f"taco/{_meetings}", store)
    if _session.is_needed():
        store = _session.agree(store, launch.rank, launch.world_size, timedelta(seconds=deadline - time.monotonic()))
    patient = _PatientStore(launch, dist.PrefixStore("roll", store), deadline)
    try:
        _launch.roll_call(patient, rank=launch.rank, world_size=launch.world_size, host=socket.gethostname(),
                          pid=os.getpid(), row=launch.row)
    except _launch.LaunchError:
        _let_all_know(patient, launch)
        raise
    except RuntimeError as error:
        if not patient.text:
            raise dist.DistNetworkError(
                f"taco: the store of rank 0 at {os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')} is gone "
                f"({str(error).splitlines()[0]}): rank 0 has ended, see its output") from None
        text = patient.text if patient.text.startswith("taco:") else f"taco: {str(error).split(' (Dist')[0]}"
        if launch.rank == 0:
            patient.set(_VERDICT, text)
        _let_all_know(patient, launch)
        raise dist.DistStoreError(text) from None
    return store


# Where the roll call writes how many have come, and its outcome; one that begins with "taco:" is rank 0's, which has
# lost its patience.
_CAME, _VERDICT, _KNOW = "taco_launch/world_count", "taco_launch/verdict", "know"
_FAREWELL_SECONDS = 3.0


def _let_all_know(store, launch):
    """Rank 0 takes the store along when it ends, so it stays until everybody else has heard why."""
    with contextlib.suppress(RuntimeError):  # rank 0 may have gone; what is raised now is what counts
        store.add(_KNOW, 1)
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while launch.rank == 0 and store.add(_KNOW, 0) < store.add(_CAME, 0) and time.monotonic() < deadline:
            time.sleep(0.01)


class _PatientStore:
    """The roll call's store: says every 5 s that it waits. text: why a wait has ended without an answer."""

    def __init__(self, launch, store, deadline):
        self._launch, self._store, self._deadline = launch, store, deadline
        self._started = time.monotonic()
        self.text = ""

    def set(self, key, value):
        self._store.set(key, value)

    def add(self, key, amount):
        return self._store.add(key, amount)

    def get(self, key):
        while not _session.has(self._store, key, min(PROGRESS_SECONDS, self._deadline - time.monotonic())):
            waited = f"{time.monotonic() - self._started:.0f} s"
            if time.monotonic() >= self._deadline:
                self.text = f"waited {waited}"
                raise dist.DistStoreError(self.text)
            say(self._launch, f"still waiting for other ranks of the job to come, {waited} so far")
        value = self._store.get(key)
        if value.startswith(b"taco:"):
            self.text = value.decode()
            raise dist.DistStoreError(self.text)
        return value
