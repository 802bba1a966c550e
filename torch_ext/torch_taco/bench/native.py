"""Peers that are no backends of torch.distributed: perf/native of a checkout measures them in processes of their own,
with TACO's C++ Communicator in the same processes."""

import json
import pathlib
import re
import shlex
import subprocess
import tempfile

from .errors import BenchError
from .figures import of_native

PROGRAM = pathlib.Path("perf", "native", "run")
SECONDS = 600


def program():
    """perf/native/run of the checkout that holds the current folder, or this file."""
    for start in (pathlib.Path.cwd(), pathlib.Path(__file__).resolve()):
        for folder in (start, *start.parents):
            if (folder / PROGRAM).is_file():
                return folder / PROGRAM
    raise BenchError("--peers: peers other than gloo are measured by perf/native of a checkout of TACO: change into "
                     "one, and run `make peers` there")


class Native:
    """cluster: whose nodes they run on; None: on this machine as it is."""

    def __init__(self, request, cluster=None):
        self.request = request
        self.cluster = cluster
        self.peers = list(request.native_peers)
        self.settings = []
        self.given_up = []
        self.program = program() if request.native_peers else None
        self.built = False

    def measure(self, size, repeats):
        """The figures of all native peers at one size, but for those that gave up at this one or one before."""
        if not self.peers:
            return []
        with tempfile.TemporaryDirectory(prefix="taco-bench-") as folder:
            path = pathlib.Path(folder, "figures.json")
            done = subprocess.run(self.command(folder, path, size, repeats), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False, timeout=SECONDS)
            outcome = json.loads(path.read_text()) if path.exists() else {"figures": []}
        self.look_for_all(outcome["figures"], done)
        self.built = True
        self.settings = self.settings or outcome.get("machine", {}).get("contenders", [])
        return [of_native(found) for found in outcome["figures"]]

    def command(self, folder, path, size, repeats):
        words = [self.program, "--ranks", self.request.ranks, "--peers", ",".join(self.peers), "--op",
                 self.request.collective, "--dtype", self.request.dtype, "--bytes", f"{size}-{size}", "--json", path]
        words += ["--repeats", repeats] if repeats else []
        words += ["--no-build"] if self.built else []
        if self.cluster is None:
            return [str(word) for word in words]
        each = self.request.ranks // self.request.nodes
        hosts = ",".join(f"{node.address}:{each}" for node in self.cluster.nodes)
        return self.cluster[0].inside(*words, "--hosts", hosts, "--agent", self.agent(folder))

    def agent(self, folder):
        """What stands for ssh between the nodes: `agent [options] host command`."""
        cases = "\n".join(f'{node.address}) exec {shlex.join(node.from_other_node("sh", "-c"))} "$*" ;;'
                          for node in self.cluster.nodes)
        path = pathlib.Path(folder, "agent")
        path.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                        f'case "$host" in\n{cases}\nesac\necho "there is no host $host" >&2; exit 1\n')
        path.chmod(0o700)
        return path

    def look_for_all(self, found, done):
        """BenchError where a peer that was asked for is not there or nothing could be measured. One that crashes is
        left out from here on, and the table says so."""
        measured = {figure["backend"] for figure in found}
        for peer in [peer for peer in self.peers if peer not in measured]:
            why = re.search(rf"^# {re.escape(peer)}: (not measured|given up at [^:]*): (.*)$", done.stderr,
                            re.MULTILINE)
            if why is None:
                said = done.stderr.strip() or done.stdout.strip() or "it said nothing"
                raise BenchError(f"--peers {peer}: perf/native/run could not measure it (exit code {done.returncode}): "
                                 f"{said}")
            if why[1] == "not measured":
                raise BenchError(f"--peers {peer}: it is not installed ({why[2]}): `make peers` installs what can be "
                                 "had, or leave it out")
            self.peers.remove(peer)
            self.given_up.append(f"{peer}: {why[1]} bytes: {why[2]}")
