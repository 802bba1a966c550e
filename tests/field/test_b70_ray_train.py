"""B70 (ray PR#40376): under Ray Train each worker sees get_backend() == "taco", and shuts down within 30 s.

A cluster of two Ray nodes on this machine, one worker on each, as in the TI platform's Ray mode: HEAD_ADDR, HEAD_PORT
and RANK, the pod's index, are set for the nodes, and so for the workers, and RANK must not be taken for theirs."""

import importlib.util
import json
import sys
import textwrap

import pytest

import launching
import ranks

pytestmark = [
    pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'ray[train]')"),
]

# Starts the nodes, then one command there after the other; the last line says how each has ended.
CLUSTER = textwrap.dedent("""
    import json, os, subprocess, sys, time
    os.environ.update(HEAD_ADDR="127.0.0.1", HEAD_PORT="1", RANK="0", RAY_TRAIN_V2_ENABLED="1")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        host, port = cluster.address.rsplit(":", 1)
        started = time.time()
        done = subprocess.run(sys.argv[2:], env=dict(os.environ, HEAD_ADDR=host, HEAD_PORT=port), text=True,
                              capture_output=True, timeout=240)
        ended = time.time()
    finally:
        cluster.shutdown()
    with open(sys.argv[1], "w") as file:
        json.dump([done.returncode, done.stdout, done.stderr, ended], file)
""")


def test_train_ray(tmp_path):
    script, result, storage = tmp_path / "cluster.py", tmp_path / "result", tmp_path / "storage"
    script.write_text(CLUSTER)
    launching.run([sys.executable, script, result, launching.BIN / "taco", "run", launching.ROOT / "examples" /
                   "train_ray.py", "--workers", 2, "--steps", launching.STEPS, "--storage", storage], timeout=300)
    code, output, errors, ended = json.loads(result.read_text())
    assert code == 0, output + errors
    assert "backend: taco" in output
    launching.check_training(output, 2)
    assert "the script runs as a Ray driver" in errors
    # The model is saved when the training is over.
    [model] = storage.rglob("model.pt")
    assert ended - model.stat().st_mtime < 30
