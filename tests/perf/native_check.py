"""A short run of perf/native beside Debian's OpenMPI, of the build folder NATIVE_BUILD; CTest starts it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf"))

from native import launchers, table  # noqa: E402

FIELDS = {"bytes", "count", "type", "op", "backend", "algorithm", "time_us", "p50_us", "p99_us", "min_us", "algbw_gbs",
          "busbw_gbs", "wrong", "cpu_seconds", "repeats", "batch", "settings", "set"}


def bench(*arguments):
    """(exit code, what --json wrote or None, output)"""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "figures.json")
        program = [sys.executable, ROOT / "perf" / "native" / "run", "--no-build", "--ranks", "2"]
        done = subprocess.run([*program, "--json", path, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300)
        whole = json.loads(path.read_text()) if path.exists() else None
        return done.returncode, whole, done.stdout + done.stderr


class Run(unittest.TestCase):
    def test_both_are_measured_and_right(self):
        code, whole, said = bench("--peers", "openmpi", "--bytes", "8-32K", "--step", "5000", "--repeats", "5")
        self.assertEqual(code, 0, said)
        self.assertEqual([(f["backend"], f["bytes"]) for f in whole["figures"]],
                         [("taco", 8), ("openmpi", 8), ("taco", 32768), ("openmpi", 32768)])
        for figure in whole["figures"]:
            self.assertEqual(set(figure), FIELDS)
            self.assertEqual((figure["wrong"], figure["repeats"], figure["count"]), (0, 5, figure["bytes"] // 4))
            self.assertGreater(figure["cpu_seconds"], 0)
            self.assertTrue(0 < figure["min_us"] <= figure["p50_us"] == figure["time_us"] <= figure["p99_us"], figure)
            self.assertAlmostEqual(figure["algbw_gbs"] * figure["time_us"] * 1000 / figure["bytes"], 1)
            self.assertAlmostEqual(figure["busbw_gbs"], figure["algbw_gbs"])  # of two ranks
        self.assertEqual(whole["machine"]["ranks"], 2)
        self.assertTrue(any("Open MPI v" in text for text in whole["machine"]["contenders"]), whole["machine"])
        self.assertIn("core to core flag", said)

    def test_one_spoiled_element_is_found(self):
        code, whole, said = bench("--peers", "openmpi", "--bytes", "4K-4K", "--repeats", "3", "--corrupt", "openmpi")
        self.assertEqual(code, 1, said)
        self.assertEqual({f["backend"]: f["wrong"] for f in whole["figures"]}, {"taco": 0, "openmpi": 1})

    def test_other_operations_and_types(self):
        for operation in ("reduce_scatter", "all_to_all"):
            code, whole, said = bench("--peers", "openmpi", "--op", operation, "--bytes", "64K-64K", "--repeats", "3")
            self.assertEqual(code, 0, said)
            self.assertEqual({f["backend"]: (f["op"], f["wrong"]) for f in whole["figures"]},
                             {"taco": (operation, 0), "openmpi": (operation, 0)})
        # No MPI adds up bfloat16: the figures are TACO's alone.
        code, whole, said = bench("--peers", "openmpi", "--dtype", "bfloat16", "--bytes", "64K-64K", "--repeats", "3")
        self.assertEqual(code, 0, said)
        self.assertEqual([(f["backend"], f["type"], f["wrong"]) for f in whole["figures"]], [("taco", "bfloat16", 0)])

    def test_peers_that_there_are_not(self):
        code, whole, said = bench("--peers", "nccl")
        self.assertEqual((code, whole), (1, None))
        self.assertIn("--peers nccl: 'nccl' is not one of openmpi, ", said)


class Table(unittest.TestCase):
    def test_a_peer_is_compared_with_the_taco_of_its_own_processes(self):
        measured = [("a", "taco", 1.0), ("a", "x", 3.0), ("b", "taco", 2.0), ("b", "y", 4.0)]
        figures = [{"set": group, "backend": backend, "bytes": 8, "time_us": time} for group, backend, time in measured]
        self.assertEqual(table.ratio(figures[1], figures), 3.0)
        self.assertEqual(table.ratio(figures[3], figures), 2.0)
        self.assertIsNone(table.ratio(figures[3], figures[3:]))

    def test_sizes(self):
        self.assertEqual(table.sizes_of("8-1K", 8), ["8", "16", "128", "1024"])
        self.assertEqual(table.sizes_of("64M", 4), [str(64 << 20)])

    def test_a_peer_that_is_not_installed_is_named(self):
        with tempfile.TemporaryDirectory() as nothing:
            sets, missing = launchers.process_sets(["mpich", "oneccl", "deepspeed"], 2, 2, nothing)
        self.assertEqual(sets, [])
        self.assertEqual(set(missing), {"mpich", "oneccl", "deepspeed"})
        self.assertIn("make peers", missing["mpich"])

    def test_ranks_that_share_cores_yield(self):
        sets, _ = launchers.process_sets(["openmpi"], 4, 2, ROOT)
        self.assertIn("mpi_yield_when_idle", sets[0].launcher)
        self.assertNotIn("core", sets[0].launcher)
        sets, _ = launchers.process_sets(["openmpi"], 2, 2, ROOT)
        self.assertEqual(sets[0].launcher[-2:], ["--bind-to", "core"])


if __name__ == "__main__":
    unittest.main()
