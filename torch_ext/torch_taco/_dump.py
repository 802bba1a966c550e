"""Writing the flight record of this process down, by hand or on a signal."""

import os
import signal
import socket
import sys
import threading

from torch_taco._group import extension


def dump(path=None):
    """Writes the last 2,000 operations of this process into a file in the folder `path`, and returns the file's path.

    Without a path, where failures write it: TACO_DUMP_DIR, or `taco-dumps-<user id>` in the folder for temporary files.
    May be called from any thread, also while another one hangs in an operation. `taco explain-hang` reads the files.
    """
    return extension().dump(None if path is None else os.fspath(path))


def dump_on_signal(signum=signal.SIGUSR2, path=None):
    """From now on `kill -USR2 <pid>` has this process write its flight record, also while it hangs in an operation.

    A Python handler would run only after the operation. So Python's wake-up descriptor, which is written at once, wakes
    a thread of our own. Must be called on the main thread; RuntimeError where something else (asyncio in this thread)
    has the wake-up descriptor.
    """
    extension()  # says now what it would say when it is too late
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        reader.close()
        writer.close()
        raise RuntimeError("taco: the wake-up descriptor of Python's signals (signal.set_wakeup_fd) is in use; call "
                           "torch_taco.dump() in a thread instead")
    # A forked child must not wake this process's thread.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    signal.signal(signum, lambda number, frame: None)
    threading.Thread(target=_wait, args=(reader, writer, signum, path), name="taco-dump", daemon=True).start()


def _wait(reader, writer, signum, path):  # writer: kept open as long as the thread lives
    while received := reader.recv(64):
        if signum not in received:
            continue
        try:
            print(f"[taco] flight record written to {dump(path)}", file=sys.stderr)
        except (RuntimeError, ValueError, OSError) as error:
            print(f"[taco] {error}", file=sys.stderr)
