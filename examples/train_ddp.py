"""Trains a small network on handwritten digits with plain DistributedDataParallel.

    torchrun --nproc-per-node 4 examples/train_ddp.py --backend taco

Nothing here knows TACO but the name of the backend and init_method="taco://", with which the script runs under every
launcher (docs/launching.md). --backend gloo runs the same script without either.
"""

import argparse
import hashlib
import itertools
import statistics
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm


def digits():
    """1797 images of 8 x 8 pixels: four fifths to train with, one fifth to test."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    return TensorDataset(images[train], labels[train]), (images[test], labels[test])


def network():
    """1.6 million parameters: 6.4 MB of gradients in every step."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 4 * 4, 1536), nn.ReLU(), nn.Linear(1536, 10))


def fit(model, train_set, epochs, steps=None):
    """Trains, at most so many steps, and returns the images per second of all ranks together, in the median epoch."""
    sampler = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = min(steps or epochs * len(loader), epochs * len(loader))
    bar = tqdm(total=steps, desc=f"training ({dist.get_backend()})", unit="step", mininterval=0.5,
               disable=dist.get_rank() != 0)
    speeds = []
    while steps > 0:
        started = time.perf_counter()
        sampler.set_epoch(len(speeds))
        trained = 0
        for images, labels in itertools.islice(loader, steps):
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update()
            steps -= 1
            trained += len(images)
        speeds.append(dist.get_world_size() * trained / (time.perf_counter() - started))
    bar.close()
    return statistics.median(speeds)


def evaluate(model, images, labels):
    """The loss on a set, and the share that the model gets right."""
    with torch.no_grad():
        scores = model(images)
        return cross_entropy(scores, labels).item(), (scores.argmax(1) == labels).float().mean().item()


def accuracy(model, images, labels):
    return evaluate(model, images, labels)[1]


def replicas_identical(model):
    """Do all ranks hold the same parameters, to the last bit?"""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest.hexdigest())
    return len(set(digests)) == 1


def train(epochs, steps=None):
    torch.manual_seed(0)
    train_set, test_set = digits()
    model = DistributedDataParallel(network())
    speed = fit(model, train_set, epochs, steps)
    (loss, correct), identical = evaluate(model.module, *test_set), replicas_identical(model.module)
    if dist.get_rank() == 0:
        print(f"test loss: {loss:.6f}")
        print(f"test accuracy: {correct:.3f}")
        print(f"images/s: {speed:.0f}")
        print(f"replicas identical: {'yes' if identical else 'NO'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="taco")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="stop after so many")
    parser.add_argument("--local-rank", "--local_rank", help="python -m torch.distributed.launch adds it")
    arguments = parser.parse_args()

    method = "taco://" if arguments.backend == "taco" else "env://"
    dist.init_process_group(backend=arguments.backend, init_method=method)
    train(arguments.epochs, arguments.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
