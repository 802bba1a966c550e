"""Names in /dev/shm that are TACO's, for tests that see what others make at the same time."""

import os
import time


def names():
    return {name for name in os.listdir("/dev/shm") if name.startswith("taco-")}


def leftovers(before, patience=20.0):
    """Those that came since `before` and stay: what other tests make meanwhile goes again."""
    left = names() - before
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left &= names()
    return left
