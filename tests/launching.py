"""For tests of launchers: a clean environment, and the loss that examples/train_ddp.py must come to."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import torch

import ranks

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAIN = ROOT / "examples" / "train_ddp.py"
BIN = pathlib.Path(sys.executable).parent
STEPS = 3

# What launchers leave in an environment: none of it may come from around the tests.
_FOREIGN = re.compile(r"(TACO|LIGHT|TORCHELASTIC|PET|OMPI|PMI|PMIX|PRTE|SLURM|HOROVOD|MPI)_|(RANK|WORLD_SIZE|LOCAL_RANK|"
                      r"LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|GPU_NUM|GPU_NUM_PER_NODE|NODE_LIST|INDEX|TF_CONFIG|"
                      r"NODE_IP_SLOT_LIST|HEAD_ADDR|HEAD_PORT)$")


def environment(**variables):
    """This process's, without what a launcher might have left there, and with our commands first on PATH."""
    clean = {name: value for name, value in os.environ.items() if not _FOREIGN.match(name)}
    clean.update({"PATH": f"{BIN}:{clean['PATH']}", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                  "PYTHONUNBUFFERED": "1"})
    clean.update({name: str(value) for name, value in variables.items()})
    return clean


def run(command, *, cwd=None, timeout=180, code=0, **variables):
    """(stdout, stderr) of a command that must end with `code`; a text is given to bash."""
    words = ["bash", "-c", command] if isinstance(command, str) else list(map(str, command))
    done = subprocess.run(words, env=environment(**variables), cwd=cwd, capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def free_port():
    with ranks.socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@functools.cache
def expected_loss(world, steps=STEPS):
    """What DDP on so many ranks comes to, computed by one process: the mean gradient of all ranks' batches is the
    gradient of one large batch."""
    sys.path.insert(0, str(TRAIN.parent))
    try:
        import train_ddp
    finally:
        sys.path.pop(0)
    from torch.utils.data import DataLoader, DistributedSampler

    with torch.random.fork_rng():
        torch.manual_seed(0)
        train_set, test_set = train_ddp.digits()
        model = train_ddp.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    shares = [iter(DataLoader(train_set, batch_size=32, sampler=DistributedSampler(train_set, world, rank, seed=0)))
              for rank in range(world)]
    for _ in range(steps):
        batches = [next(share) for share in shares]
        images, labels = (torch.cat(parts) for parts in zip(*batches))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return train_ddp.evaluate(model, *test_set)[0]


def check_training(output, world, steps=STEPS):
    """The output of train_ddp.py: it came to the loss, on replicas that are identical."""
    found = re.findall(r"^test loss: (.+)$", output, re.MULTILINE)
    assert len(found) == 1, output
    assert abs(float(found[0]) - expected_loss(world, steps)) < 2e-5, (found, expected_loss(world, steps))
    assert "replicas identical: yes" in output
