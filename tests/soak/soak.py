#!/usr/bin/env python3
"""Faults for a long time: `make soak`, `make soak MINUTES=2`.

torchrun runs a few ranks, two "nodes", which do random operations on random groups and check every result (worker.py).
This process kills one of them now and then, or stops it for a moment; torchrun starts all of them again. The last
third is without kills, so that processes live long enough to show growth. It fails if a result is wrong, if a rank
fails though nobody was killed, if a survivor's error does not come within the operations' time-out + 2 s, if nothing
moves any more, or if memory, descriptors, threads or files in /dev/shm grow. The seed that it prints repeats what the
ranks do.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.executable).parent
# An operation's time-out is 20 s (worker.py), and an error may be 2 s late; a restart takes some seconds.
STUCK_SECONDS = 60.0


class Soak:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.random = random.Random(options.seed)
        self.killed = []  # attempts in which somebody was killed
        self.stopped = 0
        self.operations = {}  # (attempt, rank) -> operations done
        self.before = self.shm()

    @staticmethod
    def shm():
        return {name for name in os.listdir("/dev/shm") if name.startswith("taco-")}

    def start(self):
        environment = dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", TACO_DUMP_DIR="none",
                           RES_OPTIONS="timeout:1 attempts:1", PATH=f"{BIN}:{os.environ['PATH']}")
        script = ("import os, runpy, sys; os.environ['TACO_NODE_ID'] = str(int(os.environ['RANK']) * 2 // "
                  "int(os.environ['WORLD_SIZE'])); sys.argv = sys.argv[1:]; "
                  "runpy.run_path(sys.argv[0], run_name='__main__')")
        launcher = self.folder / "start.py"
        launcher.write_text(script)
        log = open(self.folder / "log", "w")
        return subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=localhost",
             f"--nproc-per-node={self.options.ranks}", "--max-restarts=1000000", "--monitor-interval=1", str(launcher),
             str(HERE / "worker.py"), str(self.options.seed), str(self.folder)],
            env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def ranks(self):
        """What each rank of the newest attempt says of itself."""
        found = {}
        for rank in range(self.options.ranks):
            try:
                found[rank] = json.loads((self.folder / f"rank{rank}").read_text())
            except (OSError, ValueError):
                continue
            self.operations[found[rank]["attempt"], rank] = found[rank]["done"]
        newest = max((one["attempt"] for one in found.values()), default=-1)
        return newest, {rank: one for rank, one in found.items() if one["attempt"] == newest}

    def fault(self):
        attempt, ranks = self.ranks()
        if len(ranks) < self.options.ranks or attempt in self.killed:
            return  # it is about to start, or to end
        pid = ranks[self.random.randrange(self.options.ranks)]["pid"]
        try:
            if self.random.random() < 0.5:
                self.killed.append(attempt)
                os.kill(pid, self.random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
            else:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.random.uniform(0.1, 2.0))
                os.kill(pid, signal.SIGCONT)
                self.stopped += 1
        except ProcessLookupError:
            pass

    def trouble(self):
        """What the ranks have found that nobody may excuse; empty if nothing."""
        for path in sorted(self.folder.glob("wrong-*")):
            return f"{path.name}: {path.read_text()}"
        for path in sorted(self.folder.glob("error-*")):
            attempt = int(path.name.split("-")[1])
            if path.suffix != ".new" and attempt not in self.killed:
                return f"{path.name}: an error though nobody was killed: {path.read_text()}"
        return ""

    def run(self):
        process = self.start()
        began = moved = time.monotonic()
        quiet_at = began + 40.0 * self.options.minutes
        stop_at = began + 60.0 * self.options.minutes
        next_fault = began + self.random.uniform(8, 15)
        last = None
        try:
            while process.poll() is None:
                time.sleep(0.2)
                now = time.monotonic()
                seen = self.ranks()
                if seen != last:
                    last, moved = seen, now
                if trouble := self.trouble():
                    return trouble
                if now - moved > STUCK_SECONDS:
                    return f"nothing has moved for {STUCK_SECONDS:.0f} s: {last}"
                if now >= stop_at:
                    (self.folder / "stop").touch()
                elif next_fault <= now < quiet_at:
                    self.fault()
                    next_fault = now + self.random.uniform(3, 12)
            if process.returncode != 0:
                return f"torchrun ended with {process.returncode}"
            ended = len(list(self.folder.glob("ended*")))
            if ended != self.options.ranks:
                return f"only {ended} of {self.options.ranks} ranks came to the end"
            if not self.killed and self.options.minutes >= 1:
                return "nobody was killed: the test tested nothing"
            return self.trouble()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                for one in self.ranks()[1].values():  # torchrun's workers are in sessions of their own
                    try:
                        os.kill(one["pid"], signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                process.wait()

    def left_behind(self):
        """Files of this soak in /dev/shm. A rank that was killed while it made a group may leave one until the next
        group is made: that is what this process does not do, so the last, quiet third must have removed them."""
        deadline = time.monotonic() + 20
        while (left := self.shm() - self.before) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    print(f"soak: {options.minutes:g} minutes, {options.ranks} ranks, --seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="taco-soak-") as name:
        folder = pathlib.Path(name)
        soak = Soak(options, folder)
        trouble = soak.run()
        left = soak.left_behind()
        if left and not trouble:
            trouble = f"left in /dev/shm: {sorted(left)}"
        total = sum(soak.operations.values())
        print(f"soak: {total} operations on the ranks together, {len({a for a, _ in soak.operations})} attempts, "
              f"{len(soak.killed)} ranks killed, {soak.stopped} stopped for a moment", flush=True)
        if trouble:
            print(f"soak: FAILED (--seed {options.seed}): {trouble}\n--- the end of torchrun's log:", flush=True)
            print("\n".join((folder / "log").read_text(errors="replace").splitlines()[-60:]), flush=True)
            return 1
        print("soak: every result was right, nothing grew, nothing was left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
