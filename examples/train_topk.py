"""Trains with dense gradients and with TopK-compressed ones, and shows what that costs and saves.

    python examples/train_topk.py                                # 4 processes as 2 "nodes" on this machine
    torchrun --nproc-per-node 2 ... examples/train_topk.py       # under a launcher, on real nodes
    python examples/train_topk.py --plot loss.svg                # loss-bytes.svg and loss-seconds.svg

Each run in turn starts from the same parameters and sees the same images. Only what crosses between nodes is
compressed: with one node every run is dense. --model resnet18 and resnet50 train on synthetic images, for their size;
--backend gloo trains dense over gloo, to compare with.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several processes share the cores; set before torch is loaded

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import train_ddp

RANKS, NODES = 4, 2  # without a launcher
LAUNCHED = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")  # one of them says that there is one
BATCH = {"digits": 32, "resnet18": 4, "resnet50": 2}
RATE = {"digits": 0.05, "resnet18": 0.02, "resnet50": 0.01}
POINTS = 20  # of a curve
NEEDED_ACCURACY = 0.95  # of every run on digits that is long enough to get there
ENOUGH_STEPS = 240
PATIENCE_SECONDS = 3600


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions, and around them what came in."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.inner = nn.Sequential(convolution(inputs, outputs, 3, stride), nn.ReLU(), convolution(outputs, outputs, 3))
        self.around = convolution(inputs, outputs, 1, stride) if inputs != outputs or stride != 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.inner(x) + self.around(x))


def resnet18():
    """11.7 million parameters: 47 MB of gradients in every step."""
    blocks, inputs = [], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(512, 1000))


def network(name):
    if name == "resnet50":
        from torch_taco.bench.ddp import resnet50  # 25.6 million parameters: 102 MB

        return resnet50()
    return resnet18() if name == "resnet18" else train_ddp.network()


def data(name):
    """Images to train with, and to test with. Synthetic ones: each class has a pattern, under noise."""
    if name == "digits":
        return train_ddp.digits()
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 3, 8, 8, generator=generator)
    labels = torch.randint(10, (320,), generator=generator)
    images = nn.functional.interpolate(patterns[labels], size=64) + torch.randn(320, 3, 64, 64, generator=generator)
    return TensorDataset(images[:256], labels[:256]), (images[256:], labels[256:])


def batches(train_set, size, steps):
    """This rank's images of each step: every epoch in another order, a part of it each."""
    images, labels = train_set.tensors
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(1)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(order) < size * world:
            order = torch.cat([order, torch.randperm(len(labels), generator=generator)])
        mine, order = order[rank * size : (rank + 1) * size], order[size * world :]
        yield images[mine], labels[mine]


def total(number):
    """Over all ranks, exactly."""
    made = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(made)
    return made.item()


def sent_bytes(backend):
    """To other ranks over the network by this one, so far."""
    if backend != "taco":
        return 0
    import torch_taco

    return torch_taco.traffic().network_bytes


def train(given, ratio):
    """One run. ratio: None for dense. What the table and the curves need."""
    torch.manual_seed(0)
    train_set, test_set = data(given.model)
    model = DistributedDataParallel(network(given.model), broadcast_buffers=False, gradient_as_bucket_view=True)
    if ratio is not None:
        import torch_taco

        model.register_comm_hook(torch_taco.TopkState(ratio, given.fp16, given.warmup_steps), torch_taco.topk_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE[given.model], momentum=0.9)
    every = max(1, given.steps // POINTS)
    points, losses, seconds = [], [], 0.0
    before = sent_bytes(given.backend)
    started = time.perf_counter()
    for step, (images, labels) in enumerate(batches(train_set, BATCH[given.model], given.steps), 1):
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % every == 0 or step == given.steps:
            seconds += time.perf_counter() - started
            sent = sent_bytes(given.backend) - before
            mean = total(sum(losses)) / dist.get_world_size() / len(losses)
            points.append({"step": step, "seconds": seconds, "sent": total(sent), "loss": mean})
            losses.clear()
            before = sent_bytes(given.backend) - sent  # what was sent for the curve is not counted
            started = time.perf_counter()
    model.eval()
    loss, correct = train_ddp.evaluate(model.module, *test_set)
    return {"ratio": ratio, "test_loss": loss, "accuracy": correct, "points": points,
            "images_per_second": given.steps * BATCH[given.model] * dist.get_world_size() / seconds,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "identical": train_ddp.replicas_identical(model.module)}


def name_of(run, backend):
    return f"{backend} dense" if run["ratio"] is None else f"TopK {run['ratio'] * 100:g} %"


def show(given, runs):
    print(f"\n{given.model}, {runs[0]['parameters'] / 1e6:.1f} million parameters, {dist.get_world_size()} ranks, "
          f"{given.steps} steps")
    print(f"  {'':14}{'test accuracy':>14}{'test loss':>11}{'images/s':>10}{'MB sent':>10}{'seconds':>9}  "
          "replicas identical")
    for run in runs:
        sent = f"{run['points'][-1]['sent'] / 1e6:.1f}" if given.backend == "taco" else "-"
        print(f"  {name_of(run, given.backend):14}{run['accuracy']:14.3f}{run['test_loss']:11.4f}"
              f"{run['images_per_second']:10.0f}{sent:>10}{run['points'][-1]['seconds']:9.1f}  "
              f"{'yes' if run['identical'] else 'NO'}")


def draw(given, runs, path):
    """Loss against bytes and against time, both axes logarithmic, into two files beside `path`."""
    from torch_taco.bench import plot

    axes = {"bytes": ("sent", "bytes sent over the network by all ranks", plot.size_name, 1.0),
            "seconds": ("seconds", "time", plot.time_name, 1e6)}
    written = []
    for kind, (key, words, name, unit) in axes.items():
        # A loss of 0 has no place on a logarithmic axis.
        lines = {name_of(run, given.backend): [(point[key] * unit, max(point["loss"], 1e-6)) for point in run["points"]
                                               if point[key] > 0] for run in runs}
        lines = {run: line for run, line in lines.items() if line}
        if not lines:
            continue  # gloo counts no bytes
        places = [x for line in lines.values() for x, _ in line]
        axis = plot.Axis(places, 0, 1)
        chart = plot.chart(f"Training loss of {given.model}", lines, [(x, name(x)) for x in axis.powers_of_ten()],
                           "{:g}".format, words)
        file = path.with_name(f"{path.stem}-{kind}{path.suffix}")
        file.write_text(chart)
        written.append(str(file))
    print(f"loss curves: {', '.join(written)}")


def worker(given):
    runs = []
    for ratio in given.ratios:
        if dist.get_rank() == 0:
            print(f"training: {'dense' if ratio is None else f'TopK {ratio * 100:g} %'}", file=sys.stderr)
        runs.append(train(given, ratio))
    if dist.get_rank() == 0:
        show(given, runs)
        if given.plot:
            draw(given, runs, given.plot)
        for run in runs:
            if not run["identical"]:
                raise SystemExit(f"{name_of(run, given.backend)}: the replicas differ")
            if given.model == "digits" and given.steps >= ENOUGH_STEPS and run["accuracy"] < NEEDED_ACCURACY:
                raise SystemExit(f"{name_of(run, given.backend)}: the test accuracy {run['accuracy']:.3f} is below "
                                 f"{NEEDED_ACCURACY}")


def alone(rank, port, given):
    """One of the processes that this script has started itself."""
    os.environ["TACO_NODE_ID"] = str(rank * NODES // RANKS)
    dist.init_process_group(given.backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=120))
    torch.set_num_threads(1)
    try:
        worker(given)
    finally:
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def start(given):
    """The two "nodes" of the demo; the exit code."""
    import demo

    context = demo.multiprocessing.get_context("fork")  # the four need not load torch again
    port = demo.free_port()
    workers = [context.Process(target=alone, args=(rank, port, given), daemon=True) for rank in range(RANKS)]
    for process in workers:
        process.start()
    failed = demo.wait_for(workers, PATIENCE_SECONDS)
    return f"train_topk: rank(s) {', '.join(map(str, failed))} failed, see above" if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="taco")
    parser.add_argument("--model", default="digits", choices=list(BATCH))
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--ratios", default="dense,0.01,0.001", help="the runs: dense, or a part of the elements")
    parser.add_argument("--warmup-steps", type=int, default=24, help="of the TopK runs: dense, then the ratio falls")
    parser.add_argument("--fp16", action="store_true", help="values travel as float16")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.svg", help="draw loss against bytes and time")
    given = parser.parse_args()
    try:
        given.ratios = [None if part == "dense" else float(part) for part in given.ratios.split(",")]
    except ValueError:
        parser.error(f"--ratios is {given.ratios!r}, but must be dense, or numbers, with commas between")
    if any(ratio is not None and not 0 < ratio <= 1 for ratio in given.ratios):
        parser.error("--ratios: a ratio is above 0 and at most 1")
    if given.backend != "taco":
        given.ratios = [None]
    if given.steps < 1:
        parser.error(f"--steps is {given.steps}, but must be at least 1")
    if not any(name in os.environ for name in LAUNCHED):
        return start(given)
    dist.init_process_group(given.backend, init_method="taco://" if given.backend == "taco" else "env://")
    worker(given)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
