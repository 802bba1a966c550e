"""Runs a script on W ranks as a user's script runs: as __main__, to the interpreter's own end.

A rank forked from pytest leaves by os._exit, which hides what happens when the interpreter goes down: atexit
handlers, destructors of globals, static destructors. Here a launcher, an interpreter that has imported torch
and nothing else, forks the ranks, each of which executes the source and falls off its end. The launcher stays
for the next script: to import torch costs 2 s. What it has imported is frozen (gc.freeze), so that the end of
a rank does not walk through all of torch's objects; the script's own are collected as ever.
"""

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time

import ranks

_LAUNCHER = """
import gc, json, os, signal, socket, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
gc.collect()
gc.freeze()
replies = int(sys.argv[1])

def run(config, repeat):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    children = []
    for rank in range(config["world"]):
        pid = os.fork()
        if pid == 0:
            out = os.open(os.path.join(config["folder"], f"{repeat}.{rank}"), os.O_CREAT | os.O_WRONLY)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.close(replies)
            os.environ.update({
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1]), "RANK": str(rank),
                "LOCAL_RANK": str(rank), "WORLD_SIZE": str(config["world"]),
                "LOCAL_WORLD_SIZE": str(config["world"]), "GLOO_SOCKET_IFNAME": "lo",
                "TACO_SOCKET_IFNAME": "lo", "TORCHELASTIC_USE_AGENT_STORE": "True", **config["env"][rank]})
            # As under torchrun the store belongs to somebody who stays: here to a process of its own.
            return config["source"]
        children.append(pid)
    server = os.fork()
    if server == 0:
        store = dist.TCPStore("127.0.0.1", listener.getsockname()[1], config["world"], is_master=True,
                              wait_for_workers=False, master_listen_fd=os.dup(listener.fileno()))
        while True:
            signal.pause()
    listener.close()
    deadline = time.monotonic() + config["timeout"]
    codes = [None] * len(children)
    while None in codes and time.monotonic() < deadline:
        for index, pid in enumerate(children):
            if codes[index] is None:
                done, status = os.waitpid(pid, os.WNOHANG)
                codes[index] = os.waitstatus_to_exitcode(status) if done else None
        time.sleep(0.005)
    for pid, code in zip([server, *children], [None, *codes]):
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return codes

def next_script():
    for line in sys.stdin:
        config = json.loads(line)
        codes = []
        for repeat in range(config["repeats"]):
            found = run(config, repeat)
            if isinstance(found, str):
                return found, config["backend"]
            codes.append(found)
        os.write(replies, json.dumps({"codes": codes, "shm": os.listdir("/dev/shm")}).encode() + b"\\n")
    os._exit(0)

source, backend = next_script()
sys.argv = ["script.py"]
exec(compile(source, "script.py", "exec"), {"__name__": "__main__", "BACKEND": backend})
"""


class Found(list):
    """[(exit code, output) per rank] per repeat; exit code None: still there at the timeout, and killed."""

    shm = ()  # the names in the launcher's /dev/shm after the last repeat


class _Launcher:
    def __init__(self, wrapper):
        self.wrapper = wrapper
        self.replies, theirs = os.pipe()
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*wrapper, sys.executable, "-c", _LAUNCHER, str(theirs)],
                                        stdin=subprocess.PIPE, pass_fds=[theirs], stderr=self.errors, text=True,
                                        env=dict(os.environ, OMP_NUM_THREADS="1"))
        os.close(theirs)

    def ask(self, config, timeout):
        answer = b""
        deadline = time.monotonic() + timeout
        with contextlib.suppress(BrokenPipeError):  # it has ended: its errors say why
            self.process.stdin.write(json.dumps(config) + "\n")
            self.process.stdin.flush()
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.replies], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self.replies, 1 << 16) if ready else b""
            if not more:
                self.close()
                self.errors.seek(0)
                raise AssertionError(f"the launcher itself {'ended' if ready else 'hung'}:\n{self.errors.read()}")
            answer += more
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_launcher = None


def _launcher_for(wrapper):
    """The one of the last script if it suits: tests with one wrapper stand together."""
    global _launcher
    if _launcher is not None and (_launcher.wrapper != wrapper or _launcher.process.poll() is not None):
        _launcher.close()
        _launcher = None
    if _launcher is None:
        _launcher = _Launcher(wrapper)
    return _launcher


@atexit.register
def _close_launcher():
    if _launcher is not None:
        _launcher.close()


def run(source, world, *, repeats=1, timeout=60.0, env=None, wrapper=()):
    """Found: what each rank of each repeat did.

    source: Python text in which BACKEND names the backend under test. env: dict, or function of rank.
    wrapper: a command that runs the whole in surroundings of its own (unshare ...)."""
    with tempfile.TemporaryDirectory(prefix="taco-scripts-") as folder:
        answer = _launcher_for(tuple(wrapper)).ask({
            "source": source, "world": world, "repeats": repeats, "timeout": timeout, "folder": folder,
            "env": [(env(rank) if callable(env) else env) or {} for rank in range(world)],
            "backend": ranks.BACKEND}, repeats * timeout + 60)
        found = Found()
        for repeat, codes in enumerate(answer["codes"]):
            outputs = [open(os.path.join(folder, f"{repeat}.{rank}"), errors="replace").read()
                       for rank in range(world)]
            found.append(list(zip(codes, outputs)))
        found.shm = answer["shm"]
        return found


def assert_clean(found, quiet=False):
    """Every rank of every repeat ended with 0 (and wrote nothing)."""
    for repeat, row in enumerate(found):
        for rank, (code, output) in enumerate(row):
            assert code == 0, f"repeat {repeat}, rank {rank}: exit code {code}\n{output}"
            if quiet:
                assert output == "", f"repeat {repeat}, rank {rank} wrote:\n{output}"
