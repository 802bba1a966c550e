"""Runs a script on W ranks as a user's script runs: as __main__, to the interpreter's own end.

A rank forked from pytest leaves by os._exit, which hides what happens when the interpreter goes down: atexit
handlers, destructors of globals, static destructors. Here a fresh interpreter imports torch once and forks
the ranks, each of which executes the source and falls off its end. Many repeats cost one import of torch.
"""

import json
import os
import subprocess
import sys
import tempfile

import ranks

_LAUNCHER = """
import json, os, signal, socket, sys, time
config = json.loads(sys.argv[1])
import torch, torch.distributed as dist
torch.set_num_threads(1)

def run(repeat):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    children = []
    for rank in range(config["world"]):
        pid = os.fork()
        if pid == 0:
            out = os.open(os.path.join(config["folder"], f"{repeat}.{rank}"), os.O_CREAT | os.O_WRONLY)
            os.dup2(out, 1)
            os.dup2(out, 2)
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

results = []
source = None
for repeat in range(config["repeats"]):
    found = run(repeat)
    if isinstance(found, str):
        source = found
        break
    results.append(found)
if source is None:
    os.write(config["reply"], json.dumps(results).encode())
    os._exit(0)
sys.argv = ["script.py"]
exec(compile(source, "script.py", "exec"), {"__name__": "__main__", "BACKEND": config["backend"]})
"""


def run(source, world, *, repeats=1, timeout=60.0, env=None, wrapper=()):
    """[[(exit code, output) per rank] per repeat]; exit code None: still there at the timeout, and killed.

    source: Python text in which BACKEND names the backend under test. env: dict, or function of rank.
    wrapper: a command that runs the whole in surroundings of its own (unshare ...)."""
    with tempfile.TemporaryDirectory(prefix="taco-scripts-") as folder:
        reply, write_end = os.pipe()
        try:
            config = {
                "source": source, "world": world, "repeats": repeats, "timeout": timeout, "folder": folder,
                "env": [(env(rank) if callable(env) else env) or {} for rank in range(world)],
                "backend": ranks.BACKEND, "reply": write_end,
            }
            done = subprocess.run([*wrapper, sys.executable, "-c", _LAUNCHER, json.dumps(config)],
                                  pass_fds=[write_end], timeout=repeats * timeout + 60, capture_output=True,
                                  text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), check=False)
            os.close(write_end)
            write_end = None
            answer = os.read(reply, 1 << 20)
        finally:
            os.close(reply)
            if write_end is not None:
                os.close(write_end)
        assert answer, f"the launcher itself failed:\n{done.stderr}"
        found = []
        for repeat, codes in enumerate(json.loads(answer)):
            outputs = [open(os.path.join(folder, f"{repeat}.{rank}"), errors="replace").read()
                       for rank in range(world)]
            found.append(list(zip(codes, outputs)))
        return found


def assert_clean(found, quiet=False):
    """Every rank of every repeat ended with 0 (and wrote nothing)."""
    for repeat, row in enumerate(found):
        for rank, (code, output) in enumerate(row):
            assert code == 0, f"repeat {repeat}, rank {rank}: exit code {code}\n{output}"
            if quiet:
                assert output == "", f"repeat {repeat}, rank {rank} wrote:\n{output}"
