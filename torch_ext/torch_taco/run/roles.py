"""Parameter servers and workers (TF_CONFIG): the servers end when the last worker is done.

A parameter server serves until nobody needs it, which it cannot know by itself, and the platform wants exit code 0
from every instance. So each worker tells the store of torchrun's agents when its script has ended, and a thread in
each server waits for the last. The server's script then has a few seconds to end by itself; after that its process
ends with 0. A worker that fails for good ends the servers with 1: it says so itself where it can, and where it was
killed its agent, which outlives it, does.

The store ends with rank 0's agent, whose patience with the other agents is limited (torchrun's exit barrier, 300 s).
So the worker of rank 0 waits for the last one before it ends; as long as it is there, its agent has all patience.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from datetime import timedelta

GRACE_SECONDS = 10.0
FIRST_PROGRESS_SECONDS, PROGRESS_SECONDS = 5.0, 60.0  # when rank 0 says that it waits for other workers
_LOOK_SECONDS = 0.2
_OVER = "over"


@contextlib.contextmanager
def part_of(role):
    """Surrounds the script of a task; nothing happens where there are no roles."""
    if role == "ps":
        server = _Server(_store())
        try:
            yield
        except BaseException as error:
            # What it was talking to has gone, which is how its work ends.
            if isinstance(error, KeyboardInterrupt) or not server.wait_for_end(5.0):
                raise
            _say(f"the workers are done; the script ended with {type(error).__name__}: {error}")
        finally:
            server.stop()
    elif role:
        rank = os.environ["RANK"]  # the script may change what it finds there
        with _done_by_exit(rank):
            try:
                yield
            except BaseException as error:
                if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                    _worker_failed(role, error)
                    raise
        _worker_done(rank)
    else:
        yield


@contextlib.contextmanager
def _done_by_exit(rank):
    """A script that ends with os._exit(0), to spare itself the interpreter's end, is done as well."""
    leave, process = os._exit, os.getpid()

    def done(code):
        os._exit = leave
        try:
            if code == 0 and os.getpid() == process:  # not a process that the script has forked
                _worker_done(rank)
        except SystemExit as error:
            code = error.code
        finally:
            leave(code)

    os._exit = done
    try:
        yield
    finally:
        os._exit = leave


def worker_failed(plan, why):
    """For the agent, when the process of a worker has failed for good: one that is killed says nothing itself."""
    role = plan.environment.get("TACO_ROLE", "")
    if role in ("", "ps") or plan.master is None:
        return
    with contextlib.suppress(Exception):  # what matters is the failure itself
        # What the worker has said itself stays, and so does "done".
        _store(*plan.master[:2], seconds=10).compare_set(
            _OVER, "", f"the {role} on {socket.gethostname()} has failed: {why}")
        if plan.is_master:
            time.sleep(5 * _LOOK_SECONDS)  # the store ends with this process: time to read it


def _store(address=None, port=None, seconds=60):
    import torch.distributed as dist

    store = dist.TCPStore(address or os.environ["MASTER_ADDR"], port or int(os.environ["MASTER_PORT"]), is_master=False,
                          timeout=timedelta(seconds=seconds))
    return dist.PrefixStore("taco-roles", store)


def _workers():
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return sum(len(cluster.get(name, [])) for name in ("chief", "master", "worker"))


def _worker_done(rank):
    store = _store()
    if store.add("done", 1) == _workers():
        store.set(_OVER, "done")
    elif rank == "0":
        _outlast(store)


def _outlast(store):
    """Returns when the last worker is done; ends with 1 when one has failed, as the job then has."""
    started = time.monotonic()
    say_at = started + FIRST_PROGRESS_SECONDS
    while not store.check([_OVER]):
        time.sleep(_LOOK_SECONDS)
        if time.monotonic() >= say_at:
            say_at = time.monotonic() + PROGRESS_SECONDS
            _say(f"the script has ended; still waiting for {_workers() - store.add('done', 0)} of {_workers()} workers, "
                 f"{time.monotonic() - started:.0f} s so far")
    answer = store.get(_OVER).decode()
    if answer != "done":
        _say(f"ends, since {answer}")
        sys.exit(1)


def _worker_failed(role, error):
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) < int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        return  # torchrun tries again
    with contextlib.suppress(Exception):  # what matters is the error itself
        _store().set(_OVER, f"the {role} of rank {os.environ['RANK']} has failed: {type(error).__name__}: {error}")


def _say(line):
    print(f"taco run: {os.environ.get('TACO_ROLE', '')} of rank {os.environ.get('RANK', '?')}: {line}", file=sys.stderr,
          flush=True)


class _Server:
    """Waits, in a thread, for the last worker."""

    def __init__(self, store):
        self._store = store
        self._over = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="taco-run-ps", daemon=True)
        self._thread.start()

    def wait_for_end(self, seconds):
        """True when the workers are done, False when that does not come to pass in time."""
        return self._over.wait(seconds)

    def stop(self):
        """The interpreter must not go down under a thread that is inside the store."""
        self._stopped.set()
        self._thread.join()

    def _watch(self):
        try:
            while not self._store.check([_OVER]):
                if self._stopped.wait(_LOOK_SECONDS):
                    return
            answer = self._store.get(_OVER).decode()
        except RuntimeError as error:
            answer = f"the store of rank 0 is gone: {str(error).splitlines()[0]}"
        if answer != "done":
            _say(f"ends, since {answer}")
            _leave(1)
        self._over.set()
        if not self._stopped.is_set():
            _say(f"the workers are done; the script has {GRACE_SECONDS:.0f} s to end by itself")
        if not self._stopped.wait(GRACE_SECONDS):
            _say("the workers are done, so this server ends")
            _leave(0)


def _leave(code):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
