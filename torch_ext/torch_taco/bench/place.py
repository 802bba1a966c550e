"""Where a rank runs: on which cores, in which node."""

import ctypes
import os

from .node import NAMESPACES, die_with_parent

# unshare's options -> the files in /proc/PID/ns; the mounts last, because /proc changes with them.
NAMESPACE_FILES = {"--net": "net", "--uts": "uts", "--mount": "mnt"}


def bind_to_core(rank):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})


def enter(node):
    """Continues inside a node, in a child of this process, which waits for its end and ends alike."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = ["pid", *(NAMESPACE_FILES[option] for option in sorted(NAMESPACES, key="--mount".__eq__))]
    files = [os.open(f"/proc/{node.pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
    folder = os.getcwd()
    for name, file in zip(names, files):
        if libc.setns(file, 0) != 0:
            raise OSError(ctypes.get_errno(), f"entering the {name} namespace of {node.hostname}: "
                          f"{os.strerror(ctypes.get_errno())}")
        os.close(file)
    os.chdir(folder)
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    die_with_parent()
