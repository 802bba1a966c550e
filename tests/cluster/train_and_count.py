"""What every rank of tests/cluster runs under torchrun: DDP steps, with the node's counter read around them.

  train_and_count.py backend steps folder choice...

For each choice of LIGHT_2D_ALLREDUCE ("unset", "0", "1") a group of its own trains a model of its own. The
report, choice -> figures, goes into the file folder/rank.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BACKEND, STEPS, FOLDER, CHOICES = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4:]


def sent():
    """The node's interface: bytes and packets that have left."""
    text = subprocess.run(["ip", "-s", "-j", "link", "show", "eth0"], check=True, capture_output=True, text=True).stdout
    count = json.loads(text)[0]["stats64"]["tx"]
    return [count["bytes"], count["packets"]]


def make_group(choice):
    os.environ.pop("LIGHT_2D_ALLREDUCE", None)
    if choice != "unset":
        os.environ["LIGHT_2D_ALLREDUCE"] = choice
    return dist.new_group()


def train(choice):
    torch.manual_seed(3)
    group = make_group(choice)
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(),
                                                        torch.nn.Linear(4096, 1024)), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []

    def step(number):
        x = torch.randn(2, 1024, generator=torch.Generator().manual_seed(10 * number + rank))
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    for number in range(2):  # the first step's buckets are made anew after it
        step(number)
    dist.barrier(group)
    before = sent()
    dist.barrier(group)
    for number in range(2, 2 + STEPS):
        step(number)
    dist.barrier(group)
    after = sent()
    dist.barrier(group)

    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value, group=group)
    report = {
        "rank": rank, "before": before, "after": after, "digest": digest, "losses": losses, "sum": value.item(),
        "gradient_bytes": sum(4 * p.numel() for p in model.parameters()), "steps": STEPS,
        "host": os.uname().nodename,
    }
    if BACKEND == "taco":
        import torch_taco

        report["describe"] = torch_taco.describe(group)
        report["plan"] = str(torch_taco.explain(report["gradient_bytes"] // 2, group=group))
        report["traffic"] = list(torch_taco.traffic(group))
    return report


torch.set_num_threads(1)
dist.init_process_group(BACKEND)
reports = {choice: train(choice) for choice in CHOICES}
(FOLDER / str(dist.get_rank())).write_text(json.dumps(reports))
dist.destroy_process_group()
