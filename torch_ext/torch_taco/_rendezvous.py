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
import threading
import time
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from torch_taco import _launch, _session
from torch_taco._listen import listen

PROGRESS_SECONDS = 5.0
_GRACE_SECONDS = 1.0  # torch's own timeout goes first where it works
_meetings = 0  # how often this process has met the others
# Rank 0's store outlives its group: one that destroys its group early and meets again at the same port must find the
# server that will serve the next group, not one about to vanish with the last.
_kept_store = None


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
    global _kept_store
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
            _warn_of_foreign_master(launch, address, origin)
            # Nobody else comes by a loopback address, so nobody else need find the port open.
            store = open_store(port, launch.world_size, timeout, port_origin,
                               address if _launch.is_loopback(address) else None)
        else:
            store = join_store(launch, address, port, timeout, origin)
    _kept_store = store if launch.rank == 0 and not agents_store else None
    return _call_the_roll(launch, store, deadline)


def _meet_through_mpi(launch, timeout):
    """Rank 0 opens a store on a free port, and MPI carries its address to the others."""
    from torch_taco import _mpi

    store = open_store(0, launch.world_size, timeout, "MPI") if launch.rank == 0 else None
    address, port = _mpi.broadcast_master(store.port if store else None, timeout)
    os.environ.setdefault("MASTER_ADDR", address)
    os.environ.setdefault("MASTER_PORT", str(port))
    return store or join_store(launch, address, port, timeout, "MPI")


def open_store(port, world_size, timeout, origin, loopback=None):
    """Rank 0's store, on every address of this host, or on the loopback address given; an occupied port is an error
    that says by whom."""
    options = {"is_master": True, "timeout": timeout, "wait_for_workers": False, "multi_tenant": True}
    own = _own_loopback()
    if loopback is not None and loopback != "localhost":
        own = loopback
    try:
        listener = listen(own if loopback is not None else "", port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            try:  # by a store of this very process, which may be shared
                return dist.TCPStore(own, port, world_size, **options)
            except RuntimeError:
                pass
        _launch.check_port(port, origin)
        raise
    return dist.TCPStore(own, listener.getsockname()[1], world_size, master_listen_fd=listener.detach(), **options)


def _warn_of_foreign_master(launch, address, origin):
    """Rank 0 listens on this host, and the others look for it at `address`. A warning only: the address may be that
    of a service or of a router that leads here."""
    if _is_own(address, origin):
        return
    own = _launch.reachable_address(socket.gethostname())
    say(launch, f"{origin} {address} is no address of this host ({socket.gethostname()}, {own}), although this is rank "
                "0; another process may have the same rank")


def _is_own(address, origin):
    """Only one's own address can be bound. True where that is not known: a name server may be slow."""
    if address == socket.gethostname():
        return True
    try:
        found = _launch.resolve(address, 0.5, None, origin)
    except _launch.LaunchError:
        return True
    for one in found:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6 if ":" in one else socket.AF_INET) as probe:
            probe.bind((one, 0))
            return True
    return False


def _own_loopback():
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return "127.0.0.1"
    except OSError:
        return "::1"


def join_store(launch, address, port, timeout, origin):
    """A store that somebody else opens, perhaps later than this process comes."""
    started = time.monotonic()
    deadline = started + timeout.total_seconds()
    # By number: torch would look a name up in IPv6 first, and complain where there is none.
    number = _launch.wait_for_listener(address, port, timeout.total_seconds(), lambda line: say(launch, line), origin)
    where = f"{_launch.host_and_port(address, port)} ({origin})"
    made = []

    def connect():
        left = timedelta(seconds=max(1.0, deadline - time.monotonic()))
        try:
            made.append(dist.TCPStore(number, port, launch.world_size, is_master=False, timeout=left))
        except Exception as error:  # raised below, by the thread that waits
            made.append(error)

    # In a thread, since torch's handshake has no timeout: something else that has the port may accept and be silent.
    thread = threading.Thread(target=connect, name="taco-join", daemon=True)
    thread.start()
    while not made:
        left = deadline + _GRACE_SECONDS - time.monotonic()
        if left <= 0:
            break
        thread.join(min(PROGRESS_SECONDS, left))
        if thread.is_alive():
            say(launch, f"connected to {where}, still waiting for rank 0's store to answer there, "
                        f"{time.monotonic() - started:.0f} s so far")
    if made and not isinstance(made[0], Exception):
        return made[0]
    reason = f" ({str(made[0]).splitlines()[0]})" if made else f" within {timeout.total_seconds():g} s"
    raise dist.DistNetworkError(
        f"taco: {where} answers, but not as rank 0's store{reason}: another service has this port; choose another "
        "MASTER_PORT")


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
