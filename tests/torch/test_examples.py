"""The examples do what the documentation says."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(script, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TACO_", "LIGHT_"))}
    done = subprocess.run([sys.executable, ROOT / script, *arguments], env=environment, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_demo():
    done = run("examples/demo.py", "--epochs", "8")
    cells = {line[:24].strip(): line[24:].split() for line in done.stdout.splitlines() if line.startswith("  ")}
    assert all(float(accuracy) >= 0.95 for accuracy in cells["test accuracy"])
    assert "\nreplicas identical: yes\n" in done.stdout
    # 2 nodes of 2 ranks: 2D sends 2 (N-1) = 2 times the gradients across nodes, flat g = 2 times that.
    gradients = float(re.search(r"(\d+) MB of gradients", done.stdout)[1])
    [crossed], [flat] = cells["MB between the nodes"], cells["a flat all-reduce"]
    assert abs(float(crossed) / (2 * gradients) - 1) < 0.03
    assert abs(float(flat) / (4 * gradients) - 1) < 0.03
    assert all(float(speed) > 0 for speed in cells["images/s"])


STEPS, PARAMETERS = 60, 1_608_586


def test_train_topk(tmp_path):
    """Short, so the networks are not done: both learn, they compare, and send what the formula says."""
    assert PARAMETERS == sum(parameter.numel() for parameter in train_ddp().network().parameters())
    done = run("examples/train_topk.py", "--steps", str(STEPS), "--ratios", "dense,0.01", "--warmup-steps", "0",
               "--plot", str(tmp_path / "loss.svg"))
    rows = {line[:16].strip(): line[16:].split() for line in done.stdout.splitlines() if re.match("  (taco|TopK)", line)}
    (dense, dense_loss, *_), (topk, topk_loss, *_) = (map(float, rows[name][:4]) for name in ("taco dense", "TopK 1 %"))
    assert [row[-1] for row in rows.values()] == ["yes", "yes"], "the replicas differ"
    assert dense > 0.8 and topk > dense - 0.2, "of ten digits; docs/topk.md has the tolerance"
    assert dense_loss < 1 and topk_loss < 1.5  # guessing has ln(10) = 2.3
    # Dense: every node sends what its columns sum up, once. TopK: 2 dense steps, then 8 bytes for each of 1 %.
    megabytes = 4 * PARAMETERS / 1e6
    expected = {"taco dense": 2 * megabytes * STEPS, "TopK 1 %": 2 * megabytes * (2 + (STEPS - 2) * 0.02)}
    for name, sent in expected.items():
        assert abs(float(rows[name][3]) / sent - 1) < 0.03, (name, rows[name], sent)
    for kind in ("bytes", "seconds"):
        tree = xml.etree.ElementTree.parse(tmp_path / f"loss-{kind}.svg")
        assert len(tree.findall("{*}polyline")) == 2
        assert {"taco dense", "TopK 1 %"} <= {element.text for element in tree.iter() if element.tag.endswith("text")}


def train_ddp():
    return load("train_ddp", "examples/train_ddp.py")


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def test_the_published_convergence_is_what_was_measured():
    convergence = load("convergence", "perf/convergence/run")
    published = (ROOT / "docs" / "topk.md").read_text()
    for path in sorted((ROOT / "perf" / "convergence").glob("*.json")):
        found = json.loads(path.read_text())
        for name, task in found["tasks"].items():
            assert convergence.table(name, task, found["ratio"]) in published, (path.name, name)
            assert len(task["runs"]) == 3 * len(convergence.WAYS)
            assert all(run["replicas identical"] for run in task["runs"])
