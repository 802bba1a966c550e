"""The TI platform's PS-Worker mode: `taco run` on four instances, of which TF_CONFIG says what they are."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

import launching
import ranks

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set")


def instances(folder, *command, servers=2, workers=2, timeout=240):
    """Runs the command on every instance; {(type, index): (exit code, stdout, stderr)}."""
    # Of these only the first worker's, the master's, is used.
    ports = [launching.free_port() for _ in range(servers + workers)]
    cluster = {"ps": [f"localhost:{port}" for port in ports[:servers]],
               "worker": [f"localhost:{port}" for port in ports[servers:]]}
    tasks = [(kind, index) for kind, hosts in cluster.items() for index in range(len(hosts))]
    running = []
    for kind, index in tasks:
        config = {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}
        with open(folder / f"{kind}{index}.out", "w") as out, open(folder / f"{kind}{index}.err", "w") as err:
            running.append(subprocess.Popen(
                [launching.BIN / "taco", "run", *map(str, command)], stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                env=launching.environment(TF_CONFIG=json.dumps(config))))
    try:
        codes = [process.wait(timeout) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    return {(kind, index): (code, (folder / f"{kind}{index}.out").read_text(), (folder / f"{kind}{index}.err").read_text())
            for (kind, index), code in zip(tasks, codes)}


def test_training(tmp_path):
    """2 ps and 2 workers reach the accuracy that the demo asks of DDP, and all end with 0."""
    found = instances(tmp_path, launching.ROOT / "examples" / "train_parameter_server.py", "--epochs", 6)
    assert {task: code for task, (code, _, _) in found.items()} == dict.fromkeys(found, 0), found
    for index in (0, 1):
        [accuracy] = re.findall(rf"^worker {index}: .*test accuracy: (.+)$", found["worker", index][1], re.MULTILINE)
        assert float(accuracy) >= 0.95, found
        assert found["ps", index][1] == ""


# No process groups: what is tested is when the instances end.
ROLES = textwrap.dedent("""
    import os, pathlib, sys, time
    from torch_taco.run import roles
    roles.GRACE_SECONDS = 1.0
    role, rank = os.environ["TACO_ROLE"], os.environ["RANK"]
    print(role, rank, os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"], sys.argv[1:], flush=True)
    if role == "ps":
        while True:
            time.sleep(0.1)
    while not pathlib.Path(__file__).with_name("ps0.out").read_text():
        time.sleep(0.05)  # a server that is told of the end before it has begun prints nothing
    if sys.argv[1] == "fail":
        sys.exit(3)
    if sys.argv[1] == "os._exit":
        os._exit(0)
""")


@pytest.mark.parametrize("way, codes", [
    ("end", {"ps": 0, "worker": 0}), ("os._exit", {"ps": 0, "worker": 0}), ("fail", {"ps": 1, "worker": 3})])
def test_servers_end_with_the_last_worker(tmp_path, way, codes):
    """A server that would serve for ever ends with 0 after the last worker, with 1 when a worker has failed."""
    script = tmp_path / "roles.py"
    script.write_text(ROLES)
    found = instances(tmp_path, script, way, servers=1, workers=1)
    assert {kind: code for (kind, _), (code, _, _) in found.items()} == codes, found
    assert found["worker", 0][1] == f"worker 0 2 0 ['{way}']\n"
    assert found["ps", 0][1] == f"ps 1 2 0 ['{way}']\n"
    said = "the worker of rank 0 has failed: SystemExit: 3" if way == "fail" else "the workers are done"
    assert f"taco run: ps of rank 1: " in found["ps", 0][2] and said in found["ps", 0][2]
    if way == "end":
        assert "the script has 1 s to end by itself" in found["ps", 0][2]


# Worker 1 is killed when worker 0, whose script ends at once, has said that it waits for it.
KILLED = textwrap.dedent("""
    import os, pathlib, signal, time
    from torch_taco.run import roles
    roles.FIRST_PROGRESS_SECONDS = 0.2
    role, rank = os.environ["TACO_ROLE"], os.environ["RANK"]
    said = pathlib.Path(__file__).with_name("worker0.err")
    if role == "ps":
        while True:
            time.sleep(0.1)
    if rank == "1":
        while "still waiting for 1 of 2 workers" not in said.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
""")


def test_killed_worker_ends_the_servers_and_rank_0_outlasts_the_others(tmp_path):
    """The agent says what the dead process cannot; rank 0's worker stays for the last one, and with it the store."""
    script = tmp_path / "roles.py"
    script.write_text(KILLED)
    found = instances(tmp_path, script, servers=1, workers=2)
    codes = {("ps", 0): 1, ("worker", 0): 1, ("worker", 1): 137}
    assert {task: code for task, (code, _, _) in found.items()} == codes, found
    for task in (("ps", 0), ("worker", 0)):
        assert re.search(r"ends, since the worker on \S+ has failed: signal 9", found[task][2]), found
