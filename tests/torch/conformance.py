#!/usr/bin/env python3
"""Compares gloo and taco on torch's own c10d suite: `make conformance`.

  conformance.py                     worlds 2 3 4 8, gloo run anew and its results stored as the reference
  conformance.py --worlds 2 4 --stored   what CI runs: taco only, against the stored results of gloo

Prints passed / failed / skipped of both side by side and every test that gloo passes and taco does not. The
exit code is 0 when there is none, apart from CANNOT_PASS. The all_to_all tests, which torch gates on mpi, run
as mpi; there the rule is that nothing fails and nothing is skipped that gloo could start.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

# Tests that no plugin can pass with torch 2.11, whatever it does.
CANNOT_PASS = {
    "test_monitored_barrier_gloo":
        "dist.monitored_barrier refuses every group whose backend is not named gloo, before a plugin is asked",
    "test_monitored_barrier_gloo_subgroup":
        "dist.monitored_barrier refuses every group whose backend is not named gloo, before a plugin is asked",
    "test_monitored_barrier_failure_order":
        "dist.monitored_barrier refuses every group whose backend is not named gloo, before a plugin is asked",
    "test_monitored_barrier_wait_all_ranks":
        "dist.monitored_barrier refuses every group whose backend is not named gloo, before a plugin is asked",
    "test_ddp_logging_data_cpu":
        "compares DDP's logged backend_name, which is the C++ BackendType: 'custom' for every plugin",
}


def torch_version():
    from importlib.metadata import version
    return ".".join(version("torch").split(".")[:2])


def reference_path():
    return HERE / f"gloo_{torch_version()}.json"


def run_suite(backend, world, jobs, as_mpi=False):
    """{test: [status, seconds, reason]} of one backend on `world` ranks, in `jobs` processes at once."""
    env = dict(os.environ, BACKEND=backend, WORLD_SIZE=str(world), SUITE_AS="mpi" if as_mpi else "gloo",
               SUITE_BODY="gloo")
    only = ["-k", "all_to_all"] if as_mpi else []
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        def shard(index):
            rows, log = f"{folder}/{index}.json", f"{folder}/{index}.log"
            with open(log, "w") as output:
                subprocess.run([sys.executable, HERE / "distributed_suite.py", "--json", rows,
                                "--shard", f"{index}/{jobs}", *only],
                               env=env, stdout=output, stderr=subprocess.STDOUT, check=False)
            if not os.path.exists(rows):
                tail = open(log, errors="replace").read()[-3000:]
                raise SystemExit(f"conformance: the suite itself broke on {backend}, {world} ranks:\n{tail}")
            return json.load(open(rows))

        with concurrent.futures.ThreadPoolExecutor(jobs) as executor:
            shards = list(executor.map(shard, range(jobs)))
    return {name: rest for rows in shards for name, *rest in rows}


def counts(results):
    found = collections.Counter(status for status, *_ in results.values())
    return [found["pass"], found["fail"], found["skip"]]


def falls_short(name, gloo, taco, as_mpi):
    """Whether taco does less than it must on this test."""
    must_pass = gloo != "skip" if as_mpi else gloo == "pass"
    return must_pass and taco != "pass" and name not in CANNOT_PASS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--worlds", type=int, nargs="+", default=[2, 3, 4, 8], help="numbers of ranks")
    parser.add_argument("--jobs", type=int, default=3, help="tests at a time (many of them mostly sleep)")
    parser.add_argument("--backend", default="taco")
    parser.add_argument("--stored", action="store_true", help="compare with the stored results of gloo")
    arguments = parser.parse_args()
    stored = json.loads(reference_path().read_text()) if reference_path().exists() else {}
    bad, table, named = [], [], {}
    for world in arguments.worlds:
        for as_mpi in (False, True):
            key = f"{world} all_to_all" if as_mpi else str(world)
            started = time.monotonic()
            if arguments.stored:
                if key not in stored:
                    raise SystemExit(f"conformance: {reference_path()} has no results of gloo for {key} ranks; "
                                     "run without --stored once")
                gloo = {name: [status] for name, status in stored[key].items()}
            else:
                gloo = run_suite("gloo", world, arguments.jobs, as_mpi)
                stored[key] = {name: rest[0] for name, rest in sorted(gloo.items())}
                reference_path().write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
            middle = time.monotonic()
            taco = run_suite(arguments.backend, world, arguments.jobs, as_mpi) if arguments.backend != "gloo" else gloo
            table.append([key, *counts(gloo), *counts(taco), round(time.monotonic() - middle)])
            for name in sorted(gloo):
                status, *rest = taco.get(name, ["missing"])
                if falls_short(name, gloo[name][0], status, as_mpi):
                    bad.append((key, name, status, rest[-1] if rest else ""))
                elif name in CANNOT_PASS and gloo[name][0] == "pass" and status != "pass":
                    named.setdefault(name, []).append(key)
            print(f"conformance: {key} ranks done, gloo {middle - started:.0f} s, "
                  f"{arguments.backend} {time.monotonic() - middle:.0f} s", flush=True)
    print(f"\n{'ranks':>13} | {'gloo':^22} | {arguments.backend:^22} |\n"
          f"{'':>13} | {'pass':>6} {'fail':>6} {'skip':>6}  | {'pass':>6} {'fail':>6} {'skip':>6}  | seconds")
    for key, *cells in table:
        print("{:>13} | {:>6} {:>6} {:>6}  | {:>6} {:>6} {:>6}  | {:>6}".format(key, *cells))
    for name, keys in named.items():
        print(f"\ncannot pass, {', '.join(keys)} ranks: {name}\n  {CANNOT_PASS[name]}")
    for key, name, status, reason in bad:
        print(f"\nNOT PASSED, {key} ranks: {name}: {status}\n  " + "\n  ".join(reason.strip().splitlines()[-25:]))
    print(f"\nconformance: {len(bad)} tests short of gloo" if bad else "\nconformance: everything that gloo passes, "
          f"{arguments.backend} passes, apart from what no plugin can")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
