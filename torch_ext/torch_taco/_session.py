"""Processes that torchrun has restarted must not read what the attempt before left in the store.

torchrun's agents keep one store over all attempts, and torch makes the same keys in each. A rank of the second attempt
would find the addresses that a dead rank of the first had published. TORCHELASTIC_RESTART_COUNT does not tell
attempts apart: it may differ between nodes, since only the node whose process failed counts.

So rank 0 makes up the name of a session, and writes it where the others look. They answer under that name, each with
a word of its own, and rank 0 publishes all the words as the list of those who take part. Who finds its word in
the list knows that the session is of this attempt; who does not, has read a name that was left over, and looks again.
"""

import json
import os
import time
import uuid

import torch.distributed as dist

_LOOK_AGAIN_SECONDS = 1.0


def is_needed():
    """Is the store one that outlives this attempt?"""
    return (os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
            and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in ("", "0"))


def agree(store, rank, size, timeout):
    """A store in which only the processes of this attempt have written."""
    if size == 1:
        return dist.PrefixStore(f"session/{uuid.uuid4().hex}", store)
    deadline = time.monotonic() + timeout.total_seconds()
    names = dist.PrefixStore("session", store)
    session = _open(names, size, deadline) if rank == 0 else _join(names, rank, size, deadline)
    return dist.PrefixStore(f"session/{session}", store)


def _open(names, size, deadline):
    session = uuid.uuid4().hex
    names.set("now", session)
    words = []
    for rank in range(1, size):
        if not has(names, f"{session}/{rank}", deadline - time.monotonic()):
            raise dist.DistStoreError(
                f"taco: rank {rank} of {size} did not come to make the group within its timeout (torchrun's attempt "
                f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '?')}); see the log of that rank")
        words.append(names.get(f"{session}/{rank}").decode(errors="replace"))
    names.set(f"{session}/list", json.dumps(words))
    return session


def _join(names, rank, size, deadline):
    word = uuid.uuid4().hex
    answered = None
    while time.monotonic() < deadline:
        if not has(names, "now", deadline - time.monotonic()):
            break
        session = names.get("now").decode(errors="replace")
        if session != answered:
            names.set(f"{session}/{rank}", word)
            answered = session
        if has(names, f"{session}/list", min(_LOOK_AGAIN_SECONDS, deadline - time.monotonic())):
            if word in _words(names.get(f"{session}/list")):
                return session
            time.sleep(0.05)  # left over: rank 0 of this attempt has not come yet
    raise dist.DistStoreError(
        f"taco: rank 0 of {size} did not come to make the group within its timeout (this is rank {rank}, torchrun's "
        f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '?')}); see the log of rank 0")


def _words(text):
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list):
        raise dist.DistStoreError("taco: the list of those who take part in this attempt is damaged in the store; is "
                                  "another program using it?")
    return words


def has(store, key, seconds):
    """Is the key there, now or within so many seconds? Asked again and again: a wait of the store's own that times out
    writes warnings."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while not store.check([key]):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
    return True
