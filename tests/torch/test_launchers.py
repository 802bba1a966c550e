"""Real launchers run examples/train_ddp.py, unchanged, to the same loss. (mpirun: tests/mpi/test_mpirun.py; two nodes:
tests/cluster/test_ti_two_nodes.py; Ray: test_launch_ray.py; srun: test_launch_slurm.py.)"""

import importlib.util
import sys
import textwrap

import pytest

import launching
import ranks

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set")

# The TI platform's variables of a node with two GPUs, which stay in the environment of whatever is started there.
LEFT_OVER = {"NODE_LIST": "localhost:2", "INDEX": 0, "WORLD_SIZE": 1, "RANK": 0, "GPU_NUM": 2, "GPU_NUM_PER_NODE": 2,
             "MASTER_ADDR": "127.0.0.1"}
# The line of the platform's guide.
GUIDE = ("python -m torch.distributed.launch --nproc_per_node $GPU_NUM_PER_NODE --nnodes $WORLD_SIZE --node_rank $RANK "
         "--master_addr $MASTER_ADDR --master_port $MASTER_PORT")
# Rank 1 exits with 1 once, and the job goes on.
CRASH_ONCE = textwrap.dedent("""
    import os, pathlib, runpy, sys
    if os.environ["RANK"] == "1":
        try:
            pathlib.Path(sys.argv[1]).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            sys.exit(1)
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
""")


def train(command, **variables):
    """Runs a launcher's command line on train_ddp.py with two processes."""
    output, errors = launching.run(f"{command} {launching.TRAIN} --steps {launching.STEPS}", **variables)
    launching.check_training(output, 2)
    return errors


def test_torchrun():
    train(f"torchrun --nproc-per-node 2 --master-port {launching.free_port()}", **LEFT_OVER)


def test_torchrun_c10d_restarts_after_a_crash(tmp_path):
    script, marker = tmp_path / "crash_once.py", tmp_path / "crashed"
    script.write_text(CRASH_ONCE)
    errors = train("torchrun --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0 --max-restarts 2 "
                   f"{script} {marker}", **LEFT_OVER)
    assert marker.exists() and "exitcode: 1" in errors


def test_torch_distributed_launch_as_the_guide_says():
    train(GUIDE, MASTER_PORT=launching.free_port(), **LEFT_OVER)


def test_taco_run_replaces_it():
    """The same variables, and `taco run train.py` alone."""
    errors = train("taco run", MASTER_PORT=launching.free_port(), **LEFT_OVER)
    assert "taco run:" not in errors, "nothing to remark"


@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
def test_accelerate():
    train(f"{sys.executable} -m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 "
          f"--mixed_precision no --dynamo_backend no --main_process_port {launching.free_port()}", **LEFT_OVER)
