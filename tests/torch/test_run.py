"""`taco run`: what it starts for which environment, its exit code, and how hosts wait for the end of an mpirun."""

import os
import re
import shlex
import shutil
import signal
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
from torch.distributed import run as torchrun
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
    ("train.py --lr 1", {}, "torchrun --standalone --nproc-per-node=1 train.py --lr 1"),
    ("--nproc 4 train.py", {}, "torchrun --standalone --nproc-per-node=4 train.py"),
    ("train.py", {"CUDA_VISIBLE_DEVICES": "1,2"},
     "torchrun --standalone --nproc-per-node=2 train.py"),
    ("--max-restarts 2 --tee 3 -m pkg.train --nproc 3", {},
     "torchrun --standalone --nproc-per-node=1 --max-restarts 2 --tee 3 -m -- pkg.train --nproc 3"),
    ("--nnodes 2 --node-rank 1 --nproc 2 --master-addr h train.py", {},
     "torchrun --master-port=29500 --nproc-per-node=2 --nnodes 2 --node-rank 1 --master-addr h train.py"),
    ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1 train.py", {},
     "torchrun --nproc-per-node=1 --nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:1 train.py"),
    # torchrun drops the `--`.
    ("--nproc 2 train.py -- x", {}, "torchrun --standalone --nproc-per-node=2 train.py x"),
    ("--nproc auto train.py", TI, f"torchrun {WHERE} --nproc-per-node=8 train.py"),
    ("--nproc gpu train.py", {"CUDA_VISIBLE_DEVICES": "1,2"},
     "torchrun --standalone --nproc-per-node=2 train.py"),
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
    ("job.py", {"HEAD_ADDR": "head-0", "HEAD_PORT": 6379, "RANK": 0, "RAY_ADDRESS": "auto"},
     f"{sys.executable} job.py"),
    ("job.py", {"HEAD_ADDR": "head-0", "HEAD_PORT": 6379, "RANK": 1}, "# nothing is started here"),
    # A process that a launcher has started.
    ("train.py", {"TACO_RANK": 0, "TACO_WORLD_SIZE": 2}, f"{sys.executable} {CHILD} train.py"),
    # By itself, as the shell of `srun --pty bash`.
    ("train.py", {"SLURM_STEP_ID": 0, "SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 1}, f"{sys.executable} {CHILD} train.py"),
    ("--nproc 2 train.py", {"SLURM_STEP_ID": 0, "SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 1},
     "torchrun --standalone --nproc-per-node=2 train.py"),
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
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    monkeypatch.setenv("TACO_LAUNCHER", "ti-mpi")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    found = plan("train.py --data-dir /opt/ml", NODE_IP_SLOT_LIST=f"{socket.gethostname()}:8,9.0.255.118:8", GPU_NUM=16)
    words = found.arguments
    assert found.how == "mpirun" and words[0] == "mpirun"
    assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    assert words[words.index("-np") + 1] == "16"
    assert words[words.index("-H") + 1] == f"{socket.gethostname()}:8,9.0.255.118:8"
    assert words[words.index("--bind-to") + 1] == "none" and words[words.index("--map-by") + 1] == "slot"
    exported = {words[index + 1] for index, word in enumerate(words) if word == "-x"}
    assert {"PATH", "LIGHT_INTRA_SIZE", "NCCL_DEBUG", "PYTORCH_ALLOC_CONF",
            f"MASTER_ADDR={socket.gethostname()}"} <= exported
    assert "TACO_LAUNCHER" not in exported
    assert words[-6:] == [sys.executable, "-m", "torch_taco.run.child", "train.py", "--data-dir", "/opt/ml"]
    monkeypatch.setattr(mpi, "flavour", lambda: "mpich")
    words = plan("train.py", NODE_IP_SLOT_LIST="127.0.0.1:2", GPU_NUM=2).arguments
    assert words[:5] == ["mpiexec", "-n", "2", "-hosts", "127.0.0.1:2"]
    assert "LIGHT_INTRA_SIZE" in words[words.index("-genvlist") + 1].split(",")
    words = plan("--master-addr 127.0.0.9 --master-port=2000 -m pkg", NODE_IP_SLOT_LIST="127.0.0.1:2", GPU_NUM=2).arguments
    assert words[words.index("MASTER_ADDR") + 1] == "127.0.0.9" and words[words.index("MASTER_PORT") + 1] == "2000"
    with pytest.raises(CannotStart, match="names the address '::1'.*name that host instead"):
        plan("train.py", NODE_IP_SLOT_LIST="[::1]:2", GPU_NUM=2)


def test_mpirun_that_does_not_answer_is_told(tmp_path, monkeypatch):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text("#!/bin/sh\nexec sleep 60\n")
    mpirun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mpi, "_VERSION_SECONDS", 0.2)
    with pytest.raises(CannotStart, match=r"`mpirun --version` does not tell.*timed out"):
        mpi.flavour()


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
    ("--nnodes 2 --node-rank 1 train.py", {}, "--nnodes is '2', but nothing says where the nodes meet"),
    ("--nnodes 2 --master-addr localhost train.py", {}, "--master-addr is 'localhost', but the job has 2 nodes"),
    ("--nnodes 2 --node-rank 2 --master-addr h train.py", {}, "--node-rank is '2', but the job has 2 nodes"),
    ("--nproc gpu train.py", {}, "no GPU is visible"),
])
def test_what_is_refused(line, variables, words):
    with pytest.raises((CannotStart, ValueError), match=words.replace(".", r"\.")):
        plan(line, **variables)


@pytest.mark.parametrize("line, variables, is_master, master", [
    ("train.py", {}, True, None),
    ("--master-port 2000 train.py", {}, True, ("127.0.0.1", 2000, "--master-port")),
    ("--nnodes 2 --node-rank 1 --master-addr h train.py", {}, False, ("h", 29500, "--master-addr")),
    ("--nnodes 2 --master-addr h train.py", {}, True, ("h", 29500, "torchrun's default")),
    ("train.py", TI, False, ("10.35.110.11", 23456, "MASTER_ADDR")),
    ("--node-rank 0 train.py", TI, True, ("10.35.110.11", 23456, "MASTER_PORT")),
    ("--rdzv-backend c10d --rdzv-endpoint h:1 train.py", TI, False, None),
    ("train.py", {**TI, "WORLD_SIZE": 1, "RANK": 0, "INDEX": 0, "GPU_NUM": 8, "NODE_LIST": "launcher.svc:8"}, True,
     ("10.35.110.11", 23456, "MASTER_PORT")),
])
def test_who_opens_the_port_and_where_it_comes_from(line, variables, is_master, master):
    """Its owner is looked for, with one node too, and the other nodes wait for it with a word."""
    found = plan(line, **variables)
    assert found.master == master and (master is None or found.is_master == is_master)


@pytest.mark.parametrize("arguments", ["", "-- x", "a -- x", "-- -- x", "-- --nproc 3", "--nproc 3 --help", "-- --dry-run"])
@pytest.mark.parametrize("head", ["train.py", "-- train.py", "-m pkg"])
def test_script_sees_what_it_sees_under_torchrun(head, arguments):
    """And where torchrun takes an argument of the script for one of its own, and refuses it, what was typed."""
    parser = torchrun.get_args_parser()
    parser.allow_abbrev = False
    expected = parser.parse_args(shlex.split(f"{head} {arguments}"))
    expected = [expected.training_script, *expected.training_script_args]
    own = f"--nproc 2 {head} {arguments}"
    handed_over = torchrun.parse_args(plan(own).arguments)
    assert [handed_over.training_script, *handed_over.training_script_args] == expected
    assert options.parse(shlex.split(own)).script == expected
    handed_over = torchrun.parse_args(plan(f"{head} {arguments}", TF_CONFIG=TF % ("worker", 1)).arguments)
    assert handed_over.training_script_args[-len(expected):] == expected
    words = plan(f"{head} {arguments}", OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2).arguments
    assert words[len(words) - len(expected):] == expected


@pytest.mark.parametrize("line, words", [
    ("--nproc 2 --nproc-per-node 3 train.py", "--nproc is '2', but --nproc-per-node is '3'"),
    ("--port 70000 train.py", "'70000' is no port"),
    ("--nproc many train.py", "'many' is no number of processes"),
    ("--wait-seconds inf train.py", "'inf' is no time to wait"),
    ("--wait-seconds 0 train.py", "'0' is no time to wait"),
    ("""--mpirun-options "--tag 'x" train.py""", "--mpirun-options is '--tag 'x', which is not written as in a shell"),
    ("--dry train.py", "unrecognized arguments: --dry"),
    ("--nproc-per 2 train.py", "unrecognized arguments: --nproc-per"),
])
def test_command_line_that_is_wrong(line, words, capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse(shlex.split(line))
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_script_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(launching.environment()):
        monkeypatch.delenv(name)
    assert torch_taco.run.main(["--nproc", "2", "none.py"]) == 2
    assert capsys.readouterr().err == f"taco run: there is no script 'none.py' in {tmp_path}; give its path, or -m " \
                                      "and a module\n"


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(decide, "decide", interrupt)
    assert torch_taco.run.main(["train.py"]) == 130
    assert capsys.readouterr().err == "taco run: interrupted\n"


def test_command_line(capsys, monkeypatch):
    for name in set(os.environ) - set(launching.environment()):
        monkeypatch.delenv(name)
    assert torch_taco.run.main(["--print-env"]) == 0
    shown = capsys.readouterr().out
    assert "row 14, single" in shown and "-> single" in shown and "ti-ddp" in shown
    assert torch_taco.run.main(["--dry-run", "--nproc", "2", "train.py"]) == 0
    assert capsys.readouterr().out == "torchrun --standalone --nproc-per-node=2 train.py\n"
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
    """By `python -m torch_taco.run -m module`. What the command is told about itself does not reach the processes."""
    (tmp_path / "leave.py").write_text("import os, sys\nassert 'TACO_LAUNCHER' not in os.environ\n"
                                       "if os.environ['RANK'] == '1': sys.exit(7)\n")
    out, errors = launching.run([sys.executable, "-m", "torch_taco.run", "--nproc", 2, "-m", "leave"], code=7,
                                cwd=tmp_path, TACO_LAUNCHER="single")
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
                  NODE_IP_SLOT_LIST="127.0.0.1:2", MASTER_PORT=launching.free_port(), TACO_LAUNCHER="ti-mpi",
                  **fake_mpirun)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["2.0 0 ['x']", "2.0 1 ['x']"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_goes_to_mpirun_and_is_the_exit_code(tmp_path, number):
    """Though mpirun makes an exit code of its own of it; and Ctrl-C reaches it from `taco run` only."""
    (tmp_path / "train.py").touch()
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/bash\nif [ \"$1\" = --version ]; then exit; fi\n"
                       "trap 'kill $!; echo ended > ended; exit 3' TERM INT\n"
                       "sleep 60 & cut -d' ' -f6 /proc/$$/stat > started.new; mv started.new started; wait\n")
    program.chmod(0o755)
    variables = launching.environment(NODE_IP_SLOT_LIST="127.0.0.1:1", GPU_NUM=1, GPU_NUM_PER_NODE=1)
    variables["PATH"] = f"{tmp_path}:{variables['PATH']}"
    with subprocess.Popen([sys.executable, "-m", "torch_taco.run", "train.py"], cwd=tmp_path, env=variables) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert (tmp_path / "ended").exists()
    assert int((tmp_path / "started").read_text()) != os.getsid(0)


@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="no mpirun.openmpi: apt-get install openmpi-bin")
def test_under_mpirun_a_script_that_knows_env_only_gets_a_master(tmp_path):
    (tmp_path / "plain.py").write_text(textwrap.dedent("""
        import os, torch, torch.distributed as dist
        dist.init_process_group("taco")
        value = torch.ones(1)
        dist.all_reduce(value)
        open(f"rank{dist.get_rank()}", "w").write(f"{value.item()} {os.environ['MASTER_ADDR']}")
        dist.destroy_process_group()
    """))
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    launching.run(["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-np", 2, sys.executable, "-m",
                   "torch_taco.run", "plain.py"], cwd=tmp_path, **allowed)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["2.0 127.0.0.1"] * 2


@pytest.fixture
def port():
    return launching.free_port()


def test_other_hosts_learn_the_exit_code(port):
    announcer = waiting.Announcer(port, "job", 3)
    codes, said = [], []
    threads = [threading.Thread(target=lambda name=name: codes.append(
        waiting.wait_for_end("localhost", port, "job", 20, said.append, name))) for name in "abc"]
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


def test_host_that_was_started_again_counts_once_and_a_line_may_come_in_parts(port):
    announcer = waiting.Announcer(port, "job", 2)
    codes = []
    with socket.create_connection(("localhost", port)) as before:
        for part in (b"jo", b"b a", b"\n"):
            before.sendall(part)
            time.sleep(0.05)
        assert before.recv(100) == b"taco\n"
        assert announcer.missing() == 1
    threads = [threading.Thread(target=lambda name=name: codes.append(
        waiting.wait_for_end("localhost", port, "job", 20, print, name))) for name in "ab"]
    threads[0].start()
    time.sleep(0.1)
    assert announcer.missing() == 1
    threads[1].start()
    started = time.monotonic()
    announcer.end(4, late_seconds=60)
    for thread in threads:
        thread.join(20)
    assert codes == [4, 4] and time.monotonic() - started < 30


def test_failing_accept_does_not_end_the_announcer(port, monkeypatch):
    announcer = waiting.Announcer(port, "job", 1)
    accept, failures = socket.socket.accept, []

    def fails_once(listener):
        if not failures:
            failures.append("Too many open files")
            raise OSError(24, failures[0])
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", fails_once)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(waiting.wait_for_end("localhost", port, "job", 20, print)))
    thread.start()
    announcer.end(0, late_seconds=20)
    thread.join(20)
    assert codes == [0] and failures


def test_waiting_host_says_so_and_something_else_that_has_the_port_is_named(port, monkeypatch):
    monkeypatch.setattr(waiting, "PROGRESS_SECONDS", 0.1)
    announcer = waiting.Announcer(port, "job", 1)
    codes, said = [], []
    spoke = threading.Event()
    thread = threading.Thread(target=lambda: codes.append(waiting.wait_for_end(
        "localhost", port, "job", 20, lambda line: (said.append(line), spoke.set()))))
    thread.start()
    assert spoke.wait(20)
    announcer.end(0)
    thread.join(20)
    assert codes == [0] and re.match("still waiting for the job that localhost has started", said[0])
    monkeypatch.setattr(waiting, "_GREETING_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CannotStart, match=f"{where} answers, but not as the `taco run`.*nothing within 0.3 s.*--port"):
            waiting.wait_for_end("127.0.0.1", silent.getsockname()[1], "job", 20, print)


def test_host_that_never_asks_is_not_waited_for_long(port):
    announcer = waiting.Announcer(port, "job", 1)
    started = time.monotonic()
    announcer.end(0, late_seconds=0.3)
    assert 0.3 <= time.monotonic() - started < 30


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
