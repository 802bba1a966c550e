"""Runs the c10d tests that torch ships (torch.testing._internal.distributed.distributed_test) on one backend.

  BACKEND=gloo WORLD_SIZE=2 python distributed_suite.py --json out.json
  BACKEND=taco SUITE_AS=gloo SUITE_BODY=gloo WORLD_SIZE=2 python distributed_suite.py --json out.json

BACKEND        who carries the data
SUITE_AS       the name that the tests' decorators see when they decide what to skip (default: BACKEND)
SUITE_BODY     the name that the tests' bodies see when they branch (default: BACKEND)
WORLD_SIZE     ranks a test (default 2)

A backend that torch does not know by name would skip nearly everything, so it runs under gloo's name and is
held to everything that gloo is held to, profiler events named "<backend>:<operation>" included. Ranks are
forked, not spawned: 0.3 s a test instead of 12 s. conformance.py beside this file compares two backends.
"""

import argparse
import json
import os
import sys
import time
import unittest

BACKEND = os.environ.setdefault("BACKEND", "taco")
SEEN_BY_DECORATORS = os.environ.get("SUITE_AS", BACKEND)
SEEN_BY_BODIES = os.environ.get("SUITE_BODY", BACKEND)
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120")  # seconds a test, read by common_distributed
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also makes the fork safe: no OpenMP threads in the parent
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # fewer GPUs than ranks would make CUDA tests fail, not skip

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.testing._internal.common_distributed as common  # noqa: E402

KNOWN_TO_TORCH = ("gloo", "nccl", "mpi", "ucc")


def load_suite():
    """Imports torch's suite with each reader of BACKEND seeing the name meant for it."""
    if BACKEND not in KNOWN_TO_TORCH:
        for feature in ("plugin", "ddp", "subgroup"):
            common.DistTestCases.backend_feature[feature].add(BACKEND)
    os.environ["BACKEND"] = SEEN_BY_DECORATORS
    import torch.testing._internal.distributed.distributed_test as suite
    os.environ["BACKEND"] = BACKEND
    suite.BACKEND = SEEN_BY_BODIES
    if SEEN_BY_BODIES != BACKEND:
        _send_groups_to(BACKEND, SEEN_BY_BODIES)
    for names in (suite.PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        if BACKEND not in names:
            names.append(BACKEND)
    return suite


def _send_groups_to(backend, alias):
    """Bodies that say `alias` get `backend`: init_process_group is the one place where the name matters."""
    original = dist.init_process_group

    def init_process_group(*args, **keywords):
        if keywords.get("backend") == alias:
            keywords["backend"] = backend
        return original(*args, **keywords)

    dist.init_process_group = init_process_group


suite = load_suite()


class TestWithForkedRanks(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def test_get_backend(self):
        # The one body that asks for the name, and so must see the real one; this runs in the ranks.
        suite.BACKEND = BACKEND
        super().test_get_backend()

    def _spawn_processes(self):
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Rows(unittest.TextTestResult):
    """Keeps one row a test: name, status, seconds, reason."""

    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        self.rows = []

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()
        self.status = ("pass", "")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.status = ("skip", reason)

    def addError(self, test, error):
        super().addError(test, error)
        self.status = ("fail", str(error[1]))

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.status = ("fail", str(error[1]))

    def stopTest(self, test):
        seconds = round(time.monotonic() - self.started, 2)
        self.rows.append([test.id().split(".")[-1], self.status[0], seconds, self.status[1][-3000:]])
        super().stopTest(test)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-k", action="append", default=[], metavar="TEXT", help="only tests with TEXT in their name")
    parser.add_argument("-x", action="append", default=[], metavar="TEXT", help="not the tests with TEXT in their name")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th test, from the I-th on")
    parser.add_argument("--json", metavar="FILE", help="write [name, status, seconds, reason] rows")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    arguments = parser.parse_args()
    names = [name for name in unittest.TestLoader().getTestCaseNames(TestWithForkedRanks)
             if (not arguments.k or any(text in name for text in arguments.k))
             and not any(text in name for text in arguments.x)]
    first, step = map(int, arguments.shard.split("/"))
    names = names[first::step]
    if arguments.list:
        print(*names, sep="\n")
        return 0
    started = time.monotonic()
    result = unittest.TextTestRunner(verbosity=2, resultclass=Rows).run(
        unittest.TestSuite(TestWithForkedRanks(name) for name in names))
    counts = {status: sum(row[1] == status for row in result.rows) for status in ("pass", "skip", "fail")}
    print(f"backend {BACKEND} (as {SEEN_BY_DECORATORS}), {os.environ['WORLD_SIZE']} ranks: {counts}, "
          f"{time.monotonic() - started:.0f} s")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result.rows, file, indent=0)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
