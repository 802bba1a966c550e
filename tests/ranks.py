"""Runs functions on the ranks of a process group; every rank is a process of its own.

The ranks are forked from the pytest process, which has imported torch (3 s) but runs no operation of it and
owns no thread of it, so a set of ranks starts in about 0.2 s and may run closures. Their parent keeps a
mailbox to each: jobs go in, values or exceptions come out. Nobody hangs: a job that is not done at its
deadline is killed, and the report says where each rank was (faulthandler writes every thread's stack into
the rank's own stderr file before it dies).

Two ways to use it:
  run(function, world)          fresh ranks for one job; the only way for jobs that break or time out a group
  Pool(layout).run(function)    ranks that live as long as the pytest session and run many jobs on one group;
                                the function must be a module-level one and is sent by name

The rendezvous is the one torchrun makes: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and a store that is
already there, hosted by rank 0 on a port which the kernel chose.
"""

import contextlib
import ctypes
import dataclasses
import faulthandler
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Pipe, wait

import torch
import torch.distributed as dist

BACKEND = os.environ.get("TEST_BACKEND", "taco")
IS_TACO = BACKEND == "taco"

# How long the ranks that did nothing wrong may go on once another rank has failed a check.
GRACE_SECONDS = 15.0
PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which ranks there are and what connects them."""

    name: str
    world: int
    mesh: bool = False  # every link goes over TCP
    nodes: int = 1

    def env(self, rank):
        """The environment that makes this layout, for one rank."""
        made = {}
        if self.mesh:
            made["TACO_SHM"] = "0"
        if self.nodes > 1:
            made["TACO_NODE_ID"] = str(rank // (self.world // self.nodes))
        return made

    def __str__(self):
        return self.name


LAYOUTS = [
    Layout("1x2", 2),
    Layout("1x3", 3),
    Layout("1x4", 4),
    Layout("mesh2", 2, mesh=True),
    Layout("mesh3", 3, mesh=True),
    Layout("mesh4", 4, mesh=True),
    Layout("2x2", 4, nodes=2),
]

# For tests whose subject hardly depends on the layout: every kind of link, every number of ranks.
SOME_LAYOUTS = [layout for layout in LAYOUTS if layout.name in ("1x2", "mesh3", "2x2")]


def layouts(*worlds):
    """The layouts with one of these numbers of ranks."""
    return [layout for layout in LAYOUTS if layout.world in worlds]


@dataclasses.dataclass
class Outcome:
    """What one rank did with one job."""

    rank: int
    value: object = None
    error: str = None  # "RuntimeError: text", None if the job returned
    kinds: tuple = ()  # names of the exception's classes, most derived first
    trace: str = ""
    seconds: float = 0.0
    done: bool = False  # the job came to an end, by returning or by raising
    exit_code: int = None  # negative: the signal that killed the process; None: still alive
    stderr: str = ""

    def describe(self):
        if self.error is not None:
            head = f"raised {self.error}\n{self.trace}"
        elif self.done:
            head = f"returned {str(self.value)[:200]}"
        else:
            head = "was not done (stacks below, if it was alive)"
        if self.exit_code is not None and self.exit_code < 0:
            head += f"\nkilled by {signal.Signals(-self.exit_code).name}"
        elif self.exit_code:
            head += f"\nexit code {self.exit_code}"
        # Below the test's own frames every stack holds the same forty of pytest.
        lines = [line for line in self.stderr.splitlines()
                 if "/_pytest/" not in line and "/pluggy/" not in line and "runpy" not in line]
        tail = "\n".join(lines)[-6000:]
        return f"--- rank {self.rank} after {self.seconds:.1f} s {head}" + (f"\n{tail}" if tail else "")


class RanksFailed(AssertionError):
    """Some rank did not do what the test asked of it."""

    def __init__(self, what, outcomes):
        self.outcomes = outcomes
        super().__init__(what + "\n" + "\n".join(outcome.describe() for outcome in outcomes))


class Ranks:
    """A set of rank processes with a mailbox each."""

    def __init__(self, world, *, env=None, job=None, args=(), init=True, backend=None, group_timeout=60.0,
                 init_timeout=None, host_stays=True):
        self.world = world
        self.folder = tempfile.mkdtemp(prefix="taco-ranks-")
        self.started = time.monotonic()
        self.codes = [None] * world
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        spec = _Spec(world, listener.getsockname()[1], listener, init, backend or BACKEND,
                     group_timeout, init_timeout, host_stays)
        pipes = [Pipe() for _ in range(world)]
        self.mailboxes = [ours for ours, _ in pipes]
        self.pids = []
        sys.stdout.flush()
        sys.stderr.flush()
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                mine = pipes[rank][1]
                for ours, theirs in pipes:
                    ours.close()
                    if theirs is not mine:
                        theirs.close()
                extra = env(rank) if callable(env) else env
                _rank_main(rank, spec, mine, extra or {}, self._stderr_path(rank), job, args)
            self.pids.append(pid)
        for _, theirs in pipes:
            theirs.close()
        listener.close()

    def _stderr_path(self, rank):
        return os.path.join(self.folder, f"rank{rank}")

    def _stderr(self, rank):
        with open(self._stderr_path(rank), errors="replace") as file:
            return file.read()

    def send(self, job, args):
        name = (job.__module__, job.__qualname__)
        for mailbox in self.mailboxes:
            mailbox.send((name, args))

    def collect(self, timeout, patient):
        """Waits until every rank has answered or died; the outcomes, one per rank, and whether all ended
        in time. `patient`: one rank's exception does not shorten the time of the others."""
        outcomes = [Outcome(rank) for rank in range(self.world)]
        start = time.monotonic()
        deadline = start + timeout
        open_ranks = set(range(self.world))
        while open_ranks and time.monotonic() < deadline:
            ready = wait([self.mailboxes[rank] for rank in open_ranks], timeout=0.1)
            for rank in sorted(open_ranks):
                if self.mailboxes[rank] in ready and self._receive(rank, outcomes[rank]):
                    open_ranks.discard(rank)
                elif self._reap(rank) is not None:
                    # It may have answered between the wait and its end.
                    while self.mailboxes[rank].poll() and not self._receive(rank, outcomes[rank]):
                        pass
                    open_ranks.discard(rank)
                else:
                    continue
                outcomes[rank].seconds = time.monotonic() - start
                if not patient and not (outcomes[rank].done and outcomes[rank].error is None):
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        in_time = not open_ranks
        for rank in open_ranks:
            outcomes[rank].seconds = time.monotonic() - start
        if open_ranks:
            self.dump(open_ranks)
        return outcomes, in_time

    def _receive(self, rank, outcome):
        try:
            answer = pickle.loads(self.mailboxes[rank].recv_bytes())
        except (EOFError, ConnectionResetError):
            # Only a process that has ended closes its mailbox: wait for its exit code.
            self._reap(rank, block=True)
            return True
        outcome.done = True
        for key, value in answer.items():
            setattr(outcome, key, value)
        return True

    def _reap(self, rank, block=False):
        if self.codes[rank] is None:
            pid, status = os.waitpid(self.pids[rank], 0 if block else os.WNOHANG)
            if pid:
                self.codes[rank] = os.waitstatus_to_exitcode(status)
        return self.codes[rank]

    def dump(self, which):
        """Lets the given ranks write all their stacks to their stderr files."""
        before = {rank: len(self._stderr(rank)) for rank in which}
        for rank in which:
            if self.codes[rank] is None:
                os.kill(self.pids[rank], signal.SIGUSR1)
        limit = time.monotonic() + 2
        while time.monotonic() < limit and any(len(self._stderr(rank)) == before[rank] for rank in which):
            time.sleep(0.02)

    def finish(self, outcomes, timeout):
        """Waits for the processes' own end, kills what is left, adds exit codes and stderr."""
        deadline = time.monotonic() + timeout
        self._wait_for_ends(range(1, self.world), deadline)
        with contextlib.suppress(OSError):  # rank 0 may be dead
            self.mailboxes[0].send(None)
        self._wait_for_ends([0], deadline)
        late = [rank for rank in range(self.world) if self.codes[rank] is None]
        if timeout > 0:
            self.dump(late)
        self.kill()
        for outcome in outcomes:
            outcome.exit_code = self.codes[outcome.rank]
            outcome.stderr = self._stderr(outcome.rank)
        shutil.rmtree(self.folder, ignore_errors=True)
        return late

    def _wait_for_ends(self, which, deadline):
        while any(self._reap(rank) is None for rank in which) and time.monotonic() < deadline:
            time.sleep(0.005)

    def kill(self):
        for rank in range(self.world):
            if self._reap(rank) is None:
                try:
                    os.killpg(self.pids[rank], signal.SIGKILL)
                except ProcessLookupError:
                    os.kill(self.pids[rank], signal.SIGKILL)
                self._reap(rank, block=True)
        for mailbox in self.mailboxes:
            mailbox.close()


@dataclasses.dataclass
class _Spec:
    world: int
    port: int
    listener: socket.socket
    init: bool
    backend: str
    group_timeout: float
    init_timeout: float
    host_stays: bool


def _rank_main(rank, spec, mailbox, env, stderr_path, job, args):
    """The life of one rank; never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _redirect(stderr_path)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ.update({
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(spec.port), "RANK": str(rank),
            "WORLD_SIZE": str(spec.world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(spec.world),
            "TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo", "TACO_SOCKET_IFNAME": "lo",
        })
        os.environ.update({key: str(value) for key, value in env.items()})
        torch.set_num_threads(1)
        server = None
        if rank == 0:
            server = dist.TCPStore("127.0.0.1", spec.port, spec.world, is_master=True, wait_for_workers=False,
                                   master_listen_fd=os.dup(spec.listener.fileno()))
        spec.listener.close()
        ready = {}
        if spec.init:
            ready = _execute(init_group, (spec.backend, spec.init_timeout or spec.group_timeout))
            if "error" in ready:
                mailbox.send_bytes(pickle.dumps(ready))
                os._exit(3)
        if job is not None:
            mailbox.send_bytes(_packed(_execute(job, (rank, spec.world, *args))))
        else:
            while True:
                message = mailbox.recv()
                if message is None:
                    break
                (module, name), job_args = message
                function = sys.modules[module]
                for part in name.split("."):
                    function = getattr(function, part)
                mailbox.send_bytes(_packed(_execute(function, (rank, spec.world, *job_args))))
        if dist.is_initialized():
            dist.destroy_process_group()
        if rank == 0 and job is not None and spec.host_stays:
            mailbox.recv()
        del server
        code = 0
    except EOFError:
        code = 0  # the pytest process has gone
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(path):
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


def _execute(job, args):
    try:
        return {"value": job(*args)}
    except BaseException as error:
        kinds = tuple(kind.__name__ for kind in type(error).__mro__)
        return {"error": f"{kinds[0]}: {error}", "kinds": kinds, "trace": traceback.format_exc()}


def _packed(answer):
    try:
        return pickle.dumps(answer)
    except Exception as error:
        return pickle.dumps({"error": f"the job's value cannot be sent back: {error}"})


def init_group(backend=None, timeout=60.0):
    """Makes the default group of a rank, as a script under torchrun would."""
    dist.init_process_group(backend or BACKEND, timeout=timedelta(seconds=timeout))


def run(job, world, *args, timeout=90.0, check=True, dies=(), late=False, **options):
    """Runs job(rank, world, *args) on fresh ranks and returns their outcomes, one per rank.

    check: every rank must return, none may raise (False: exceptions are results to look at).
    dies: ranks that are expected to end without an answer, killed by a signal or by os._exit.
    late: what does not end by `timeout` is killed and reported in the outcomes instead of failing the test.
    Further options: env (dict, or function of rank), init, backend, group_timeout, init_timeout in seconds,
    host_stays (True: rank 0's process, which hosts the store, ends after all others).
    """
    ranks = Ranks(world, job=job, args=args, **options)
    try:
        outcomes, in_time = ranks.collect(timeout, patient=not check)
        left = ranks.finish(outcomes, 30.0 if in_time else 0.0)
    except BaseException:
        ranks.kill()
        raise
    if not in_time and not late:
        raise RanksFailed(f"{_name(job)}: not done after {timeout} s", outcomes)
    if left and in_time and not late:
        raise RanksFailed(f"{_name(job)}: ranks {left} answered but their processes did not end", outcomes)
    for outcome in outcomes:
        if outcome.rank in dies:
            continue
        if not outcome.done and not late:
            raise RanksFailed(f"{_name(job)}: rank {outcome.rank} died without an answer", outcomes)
        if check and outcome.error is not None:
            raise RanksFailed(f"{_name(job)}: rank {outcome.rank} raised", outcomes)
        if check and outcome.exit_code != 0:
            raise RanksFailed(f"{_name(job)}: rank {outcome.rank} ended badly", outcomes)
    return outcomes


class Pool:
    """Long-lived ranks of one layout that run one job after another on their default group."""

    def __init__(self, layout):
        self.layout = layout
        self.ranks = None

    def run(self, job, *args, timeout=120.0):
        """Runs job(rank, world, *args) on every rank; the list of the values returned."""
        if self.ranks is None:
            self.ranks = Ranks(self.layout.world, env=self.layout.env)
        self.ranks.send(job, args)
        try:
            outcomes, in_time = self.ranks.collect(timeout, patient=False)
        except BaseException:
            self.close(kill=True)
            raise
        if not in_time or any(outcome.error is not None or not outcome.done for outcome in outcomes):
            ranks, self.ranks = self.ranks, None
            ranks.finish(outcomes, 0.0)
            raise RanksFailed(f"{_name(job)} on {self.layout}: " + ("failed" if in_time else "not done in time"),
                              outcomes)
        return [outcome.value for outcome in outcomes]

    def close(self, kill=False):
        """Ends the ranks; one that does not leave by itself is an error."""
        if self.ranks is None:
            return
        ranks, self.ranks = self.ranks, None
        if kill:
            ranks.kill()
            shutil.rmtree(ranks.folder, ignore_errors=True)
            return
        for mailbox in ranks.mailboxes[1:]:
            with contextlib.suppress(OSError):
                mailbox.send(None)
        outcomes = [Outcome(rank) for rank in range(ranks.world)]
        left = ranks.finish(outcomes, 30.0)
        if left or any(outcome.exit_code for outcome in outcomes):
            raise RanksFailed(f"closing {self.layout}: ranks {left} did not leave, or left badly", outcomes)


def _name(job):
    return getattr(job, "__qualname__", str(job))
