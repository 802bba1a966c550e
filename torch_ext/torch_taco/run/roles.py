"""Parameter servers and workers (TF_CONFIG): the servers end when the last worker is done.

A parameter server serves until nobody needs it, which it cannot know by itself, and the platform wants exit code 0
from every instance. So each worker tells the store of torchrun's agents when its script has ended, and a thread in
each server waits for the last. The server's script then has a few seconds to end by itself; after that its process
ends with 0. A worker that fails for good ends the servers with 1.
"""

import contextlib
import json
import os
import sys
import threading
from datetime import timedelta

GRACE_SECONDS = 10.0
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
        try:
            yield
        except BaseException as error:
            if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                _worker_failed(role, error)
                raise
        _worker_done()
    else:
        yield


def _store():
    import torch.distributed as dist

    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                          timeout=timedelta(seconds=60))
    return dist.PrefixStore("taco-roles", store)


def _workers():
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return sum(len(cluster.get(name, [])) for name in ("chief", "master", "worker"))


def _worker_done():
    store = _store()
    if store.add("done", 1) == _workers():
        store.set(_OVER, "done")


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
                if self._stopped.wait(0.2):
                    return
            answer = self._store.get(_OVER).decode()
        except RuntimeError as error:
            answer = f"the store of rank 0 is gone: {str(error).splitlines()[0]}"
        if answer != "done":
            _say(f"ends, since {answer}")
            _leave(1)
        self._over.set()
        if not self._stopped.wait(GRACE_SECONDS):
            _say("the workers are done, so this server ends")
            _leave(0)


def _leave(code):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
