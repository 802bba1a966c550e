"""The demo does what docs/algorithms.md says."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_demo():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TACO_", "LIGHT_"))}
    done = subprocess.run([sys.executable, ROOT / "examples" / "demo.py", "--epochs", "8"], env=environment,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = {line[:24].strip(): line[24:].split() for line in done.stdout.splitlines() if line.startswith("  ")}
    assert all(float(accuracy) >= 0.95 for accuracy in cells["test accuracy"])
    assert "\nreplicas identical: yes\n" in done.stdout
    # 2 nodes of 2 ranks: 2D sends 2 (N-1) = 2 times the gradients across nodes, flat g = 2 times that.
    gradients = float(re.search(r"(\d+) MB of gradients", done.stdout)[1])
    [crossed], [flat] = cells["MB between the nodes"], cells["a flat all-reduce"]
    assert abs(float(crossed) / (2 * gradients) - 1) < 0.03
    assert abs(float(flat) / (4 * gradients) - 1) < 0.03
    assert all(float(speed) > 0 for speed in cells["images/s"])
