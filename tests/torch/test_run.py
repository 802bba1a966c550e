"""`taco run`: what it starts for which environment, its exit code, and how hosts wait for the end of an mpirun."""

import os
import shlex
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import launching
import ranks
import torch_taco.run
from torch_taco.run import decide, mpi, options, waiting
from torch_taco.run.plan import CannotStart

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set")

TI = {"WORLD_SIZE": 2, "RANK": 1, "GPU_NUM": 16, "GPU_NUM_PER_NODE": 8, "MASTER_ADDR": "10.35.110.11",
      "MASTER_PORT": 23456, "INDEX": 1, "NODE_LIST": "launcher.svc:8,worker-0.svc:8"}
WHERE = "--nnodes=2 --node-rank=1 --master-addr=10.35.110.11 --master-port=23456"
TF = ('{"cluster": {"ps": ["ps0:2222", "ps1:2222"], "worker": ["w0:2222", "w1:2222"]}, '
      '"task": {"type": "%s", "index": %d}, "environment": "cloud"}')
CHILD = "-m torch_taco.run.child"


def plan(line, **variables):
    return decide.decide(options.parse(shlex.split(line)),
                         {name: str(value) for name, value in {"CUDA_VISIBLE_DEVICES": "", **variables}.items()})


@pytest.mark.parametrize("line, variables, expected", [
    # The laptop.
    ("train.py --lr 1", {}, "torchrun --standalone --local-addr=localhost --nproc-per-node=1 train.py --lr 1"),
    ("--nproc 4 train.py", {}, "torchrun --standalone --local-addr=localhost --nproc-per-node=4 train.py"),
    ("train.py", {"CUDA_VISIBLE_DEVICES": "1,2"},
     "torchrun --standalone --local-addr=localhost --nproc-per-node=2 train.py"),
    ("--max-restarts 2 --tee 3 -m pkg.train --nproc 3", {},
     "torchrun --standalone --local-addr=localhost --nproc-per-node=1 --max-restarts 2 --tee 3 -m pkg.train --nproc 3"),
    ("--nnodes 2 --node-rank 1 --nproc 2 --master-addr h train.py", {},
     "torchrun --nproc-per-node=2 --nnodes 2 --node-rank 1 --master-addr h train.py"),
    # TI's DDP mode.
    ("train.py", TI, f"torchrun {WHERE} --nproc-per-node=8 train.py"),
    ("--nproc 2 train.py", TI, f"torchrun {WHERE} --nproc-per-node=2 train.py"),
    ("--nproc-per-node 3 train.py", TI, f"torchrun {WHERE} --nproc-per-node 3 train.py"),
    ("--master-port 2000 train.py", TI, "torchrun --nnodes=2 --node-rank=1 --master-addr=10.35.110.11 "
     "--nproc-per-node=8 --master-port 2000 train.py"),
    ("--rdzv-backend c10d train.py", TI, "torchrun --nnodes=2 --rdzv-endpoint=10.35.110.11:23456 "
     "--rdzv-conf=is_host=false --nproc-per-node=8 --rdzv-backend c10d train.py"),
    ("train.py", {**TI, "WORLD_SIZE": 1, "RANK": 0, "INDEX": 0, "GPU_NUM": 8, "NODE_LIST": "launcher.svc:8"},
     "torchrun --nnodes=1 --node-rank=0 --master-addr=10.35.110.11 --master-port=23456 --nproc-per-node=8 train.py"),
    # Kubeflow.
    ("train.py", {"PET_NNODES": 2, "PET_NODE_RANK": 1, "PET_NPROC_PER_NODE": "auto", "PET_MASTER_ADDR": "m",
                  "PET_MASTER_PORT": 29400},
     "torchrun --nnodes=2 --node-rank=1 --master-addr=m --master-port=29400 --nproc-per-node=1 train.py"),
    ("train.py", {"PET_NNODES": "1:4", "PET_NPROC_PER_NODE": "2", "PET_RDZV_ENDPOINT": "m:29400",
                  "PET_RDZV_BACKEND": "c10d"}, "torchrun --nproc-per-node=2 train.py"),
    # TI's PS-Worker mode: workers first, then ps.
    ("train.py", {"TF_CONFIG": TF % ("worker", 1)}, "TACO_ROLE=worker torchrun --nnodes=4 --node-rank=1 --master-addr=w0 "
     f"--master-port=2222 --nproc-per-node=1 {CHILD} train.py"),
    ("-m pkg.train x", {"TF_CONFIG": TF % ("ps", 0)}, "TACO_ROLE=ps torchrun --nnodes=4 --node-rank=2 --master-addr=w0 "
     f"--master-port=2222 --nproc-per-node=1 {CHILD} -m pkg.train x"),
    # TI's Ray mode.
    ("job.py", {"HEAD_ADDR": "head-0", "HEAD_PORT": 6379, "RANK": 0}, f"RAY_ADDRESS=head-0:6379 {sys.executable} job.py"),
    # A process that a launcher has started.
    ("train.py x", {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2, "RANK": 0, "WORLD_SIZE": 1,
                    "GPU_NUM_PER_NODE": 2}, f"{sys.executable} {CHILD} train.py x"),
    ("-m pkg", {"SLURM_STEP_ID": 0, "SLURM_PROCID": 1, "SLURM_STEP_NUM_TASKS": 2, "SLURM_LOCALID": 1},
     f"{sys.executable} {CHILD} -m pkg"),
])
def test_what_is_started(line, variables, expected):
    assert str(plan(line, **variables)) == expected


def test_mpi_mode_on_the_first_host(monkeypatch):
    monkeypatch.setattr(mpi, "flavour", lambda: "openmpi")
    monkeypatch.setenv("LIGHT_INTRA_SIZE", "8")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    found = plan("train.py --data-dir /opt/ml", NODE_IP_SLOT_LIST=f"{socket.gethostname()}:8,9.0.255.118:8", GPU_NUM=16)
    words = found.arguments
    assert found.how == "mpirun" and words[0] == "mpirun"
    assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    assert words[words.index("-np") + 1] == "16"
    assert words[words.index("-H") + 1] == f"{socket.gethostname()}:8,9.0.255.118:8"
    exported = {words[index + 1] for index, word in enumerate(words) if word == "-x"}
    assert {"PATH", "LIGHT_INTRA_SIZE", "NCCL_DEBUG", f"MASTER_ADDR={socket.gethostname()}"} <= exported
    assert words[-6:] == [sys.executable, "-m", "torch_taco.run.child", "train.py", "--data-dir", "/opt/ml"]
    monkeypatch.setattr(mpi, "flavour", lambda: "mpich")
    words = plan("train.py", NODE_IP_SLOT_LIST="127.0.0.1:2", GPU_NUM=2).arguments
    assert words[:5] == ["mpiexec", "-n", "2", "-hosts", "127.0.0.1:2"]
    assert "LIGHT_INTRA_SIZE" in words[words.index("-genvlist") + 1].split(",")


def test_mpi_mode_on_another_host(tmp_path):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text(f"train-96-launcher slots=1\n{socket.gethostname()} slots=1\n")
    found = plan("train.py", OMPI_MCA_orte_default_hostfile=hostfile, GPU_NUM=2, GPU_NUM_PER_NODE=1)
    assert (found.how, found.hosts) == ("wait", ["train-96-launcher", socket.gethostname()])
    assert "train-96-launcher starts the job" in str(found)


def test_processes_may_share_a_gpu_and_it_is_said():
    """A fraction of a GPU counts as one on the platform."""
    node = {**TI, "WORLD_SIZE": 1, "RANK": 0, "INDEX": 0, "GPU_NUM": 1, "GPU_NUM_PER_NODE": 1, "NODE_LIST": "a:1"}
    found = plan("--nproc 4 train.py", **node)
    assert "--nproc-per-node=4" in found.arguments and found.notes == ["4 processes of this node share 1 GPU"]
    assert plan("train.py", **node).notes == []
    found = plan("--nproc 2 train.py", NODE_IP_SLOT_LIST="127.0.0.1:1", GPU_NUM=1)
    assert found.notes == ["2 processes of a host share 1 GPU (slots of the host list)"]


@pytest.mark.parametrize("line, variables, words", [
    ("--max-restarts 2 train.py", {"NODE_IP_SLOT_LIST": "127.0.0.1:1", "GPU_NUM": 1}, "--max-restarts 2: in MPI mode"),
    ("train.py", {"NODE_IP_SLOT_LIST": "192.0.2.77:1,192.0.2.78:1", "GPU_NUM": 2}, "is none of 192.0.2.77, 192.0.2.78"),
    ("--nproc 2 train.py", {"TF_CONFIG": TF % ("ps", 0)}, "each task of TF_CONFIG is one process"),
    ("--nproc 2 train.py", {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, "this process is rank 0 of 2 already"),
    ("--tee 3 train.py", {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, "torchrun is not used"),
    ("--nproc 2 job.py", {"HEAD_ADDR": "h", "RANK": 0}, "the workers are Ray's"),
    ("train.py", {**TI, "GPU_NUM": 8}, "GPU_NUM"),
    ("--master-port 66660 train.py", TI, "66660"),
])
def test_what_is_refused(line, variables, words):
    with pytest.raises((CannotStart, ValueError), match=words.replace(".", r"\.")):
        plan(line, **variables)


def test_command_line(capsys, monkeypatch):
    for name in set(os.environ) - set(launching.environment()):
        monkeypatch.delenv(name)
    assert torch_taco.run.main(["--print-env"]) == 0
    shown = capsys.readouterr().out
    assert "row 14, single" in shown and "-> single" in shown and "ti-ddp" in shown
    assert torch_taco.run.main(["--dry-run", "--nproc", "2", "train.py"]) == 0
    assert capsys.readouterr().out == "torchrun --standalone --local-addr=localhost --nproc-per-node=2 train.py\n"
    with pytest.raises(SystemExit) as ended:
        torch_taco.run.main([])
    assert ended.value.code == 2 and "no script was given" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        torch_taco.run.main(["--nprocs-per-nodes", "2", "train.py"])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        torch_taco.run.main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "--dry-run" in shown and "--max-restarts" in shown
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert torch_taco.run.main(["train.py"]) == 2
    assert "taco run: " in (said := capsys.readouterr().err) and "WORLD_SIZE" in said


def test_exit_code_is_the_scripts(tmp_path):
    """By `python -m torch_taco.run -m module`, with a signal's code as a shell shows it."""
    (tmp_path / "leave.py").write_text("import os, sys\nif os.environ['RANK'] == '1': sys.exit(7)\n")
    out, errors = launching.run([sys.executable, "-m", "torch_taco.run", "--nproc", 2, "-m", "leave"], code=7, cwd=tmp_path)
    assert out == "" and "exitcode  : 7" in errors


# --- TI's MPI mode ----------------------------------------------------------------------------------

# Stands for mpirun: starts the processes on this host, with Open MPI's variables, and ends with the worst exit code.
FAKE_MPIRUN = textwrap.dedent("""\
    #!/bin/bash
    if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi
    while [ "$1" != "$PYTHON" ]; do
      case "$1" in -np) count=$2;; -x) [[ "$2" == *=* ]] && export "$2";; esac
      shift
    done
    pids=() code=0
    for ((rank = 0; rank < count; rank++)); do
      OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$count OMPI_COMM_WORLD_LOCAL_RANK=$rank \\
        OMPI_COMM_WORLD_LOCAL_SIZE=$count "$@" & pids+=($!)
    done
    for pid in "${pids[@]}"; do wait $pid || code=$?; done
    exit $code
    """)


@pytest.fixture
def fake_mpirun(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "mpirun"
    program.write_text(FAKE_MPIRUN)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PYTHON": sys.executable, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_mpi_mode_runs_a_script_that_knows_nothing_of_mpi(tmp_path, fake_mpirun):
    """Through env://, in the processes of mpirun: rank, world size and master are set, the platform's are ignored."""
    (tmp_path / "plain.py").write_text(textwrap.dedent("""
        import os, sys, torch, torch.distributed as dist
        dist.init_process_group("taco")
        value = torch.ones(1)
        dist.all_reduce(value)
        open(f"rank{dist.get_rank()}", "w").write(f"{value.item()} {os.environ['LOCAL_RANK']} {sys.argv[1:]}")
        dist.destroy_process_group()
        sys.exit(5 * dist.is_initialized())
    """))
    launching.run([launching.BIN / "taco", "run", "plain.py", "x"], cwd=tmp_path, GPU_NUM=2, GPU_NUM_PER_NODE=2,
                  NODE_IP_SLOT_LIST="127.0.0.1:2", MASTER_PORT=launching.free_port(), **fake_mpirun)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["2.0 0 ['x']", "2.0 1 ['x']"]


@pytest.fixture
def port():
    return launching.free_port()


def test_other_hosts_learn_the_exit_code(port):
    announcer = waiting.Announcer(port, "job", 3)
    codes, said = [], []
    threads = [threading.Thread(target=lambda: codes.append(
        waiting.wait_for_end("localhost", port, "job", 20, said.append))) for _ in range(3)]
    for thread in threads[:2]:
        thread.start()
    # Strangers are not counted.
    with socket.create_connection(("localhost", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    deadline = time.monotonic() + 20
    while announcer.missing() != 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert announcer.missing() == 1
    # The third comes after the job's end, and is told as well.
    late = threading.Timer(0.3, threads[2].start)
    late.start()
    announcer.end(3, late_seconds=20)
    late.join()
    for thread in threads:
        thread.join(20)
    assert codes == [3, 3, 3] and said == []


def test_host_that_never_asks_is_not_waited_for_long(port):
    announcer = waiting.Announcer(port, "job", 1)
    started = time.monotonic()
    announcer.end(0, late_seconds=0.3)
    assert 0.3 <= time.monotonic() - started < 5


def test_first_host_that_dies_is_an_error_of_the_others(port):
    code = textwrap.dedent(f"""
        import os, time
        from torch_taco.run import waiting
        announcer = waiting.Announcer({port}, "job", 1)
        while announcer.missing():
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    """)
    with subprocess.Popen([sys.executable, "-c", code], env=launching.environment()):
        with pytest.raises(CannotStart, match="localhost has not said how the job ended"):
            waiting.wait_for_end("localhost", port, "job", 60, lambda line: None)


def test_first_host_that_does_not_come(port):
    with pytest.raises(ValueError, match=f"localhost.*{port}|{port}.*localhost"):
        waiting.wait_for_end("localhost", port, "job", 0.5, lambda line: None)


def test_occupied_port_is_named(port):
    with socket.create_server(("", port)):
        with pytest.raises(ValueError, match=str(os.getpid())):
            waiting.Announcer(port, "job", 1)
