"""What "fails fast" means, for tests that make groups fail: a RuntimeError, in time, that says what happened."""

import re
import time
from datetime import timedelta

import torch.distributed as dist

# A failure may come this much later than the group's timeout (the field cases' own bound).
SLACK_SECONDS = 2.0


def failure(call, within, kind=RuntimeError):
    """The text of the error that call() raises, which must come within so many seconds."""
    start = time.monotonic()
    try:
        call()
    except kind as error:
        seconds = time.monotonic() - start
        assert seconds <= within, f"failed only after {seconds:.1f} s, allowed {within:.1f} s: {error}"
        assert str(error).strip(), "the error says nothing"
        return str(error)
    raise AssertionError(f"did not fail, returned after {time.monotonic() - start:.1f} s")


def group_of_all(seconds):
    """A new group with a timeout, for one failure; the default group stays whole. Only its operations have the
    short timeout: meeting may take longer on a busy machine."""
    group = dist.new_group(timeout=timedelta(seconds=60))
    group.set_timeout(timedelta(seconds=seconds))
    return group


def names_operation(text, name):
    """Whether an error names an operation, however it spells it (all_reduce, allreduce, ALLREDUCE)."""
    return name.replace("_", "").lower() in text.replace("_", "").replace("-", "").lower()


def names_number(text, number):
    return re.search(rf"(?<![\d.]){number}(?![\d])", text) is not None


def names_rank(text, rank):
    """Whether an error names a rank as one: "rank 2", "ranks 1, 2", "ranks [2]"."""
    return any(re.search(rf"(?<!\d){rank}(?!\d)", found)
               for found in re.findall(r"ranks?(?:\(s\))?:?\s*[\[(]?((?:\d+(?:,\s*|\s+and\s+)?)+)", text, re.IGNORECASE))
