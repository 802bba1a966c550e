"""What every rank of tests/cluster runs under torchrun: DDP steps, with the node's counter read around them."""

import hashlib
import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BACKEND = sys.argv[1]
STEPS = int(sys.argv[2])


def sent():
    """The node's interface: bytes and packets that have left."""
    text = subprocess.run(["ip", "-s", "-j", "link", "show", "eth0"], check=True, capture_output=True, text=True).stdout
    count = json.loads(text)[0]["stats64"]["tx"]
    return [count["bytes"], count["packets"]]


torch.set_num_threads(1)
torch.manual_seed(3)
dist.init_process_group(BACKEND)
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(),
                                                    torch.nn.Linear(4096, 1024)))
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
dist.barrier()
before = sent()
dist.barrier()
for number in range(2, 2 + STEPS):
    step(number)
dist.barrier()
after = sent()
dist.barrier()

digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
value = torch.tensor([rank + 1.0])
dist.all_reduce(value)
report = {
    "rank": rank, "before": before, "after": after, "digest": digest, "losses": losses, "sum": value.item(),
    "gradient_bytes": sum(4 * p.numel() for p in model.parameters()), "steps": STEPS,
    "host": os.uname().nodename,
}
if BACKEND == "taco":
    import torch_taco

    report["describe"] = torch_taco.describe()
    report["plan"] = str(torch_taco.explain(report["gradient_bytes"] // 2))
    report["traffic"] = list(torch_taco.traffic())
print("REPORT " + json.dumps(report), flush=True)
dist.destroy_process_group()
