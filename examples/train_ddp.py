"""Trains a small network on handwritten digits with plain DistributedDataParallel.

    torchrun --nproc-per-node 4 examples/train_ddp.py --backend taco

Nothing here knows TACO but the name of the backend; --backend gloo runs the same script without it.
"""

import argparse
import hashlib
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


def fit(model, train_set, epochs):
    """Trains, and returns the images per second of all ranks together, in the median epoch."""
    sampler = DistributedSampler(train_set, seed=0)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    bar = tqdm(total=epochs * len(loader), desc=f"training ({dist.get_backend()})", unit="step", mininterval=0.5,
               disable=dist.get_rank() != 0)
    seconds = []
    for epoch in range(epochs):
        started = time.perf_counter()
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update()
        seconds.append(time.perf_counter() - started)
    bar.close()
    return sampler.total_size / statistics.median(seconds)


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def replicas_identical(model):
    """Do all ranks hold the same parameters, to the last bit?"""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest.hexdigest())
    return len(set(digests)) == 1


def train(epochs):
    torch.manual_seed(0)
    train_set, test_set = digits()
    model = DistributedDataParallel(network())
    speed = fit(model, train_set, epochs)
    correct, identical = accuracy(model.module, *test_set), replicas_identical(model.module)
    if dist.get_rank() == 0:
        print(f"test accuracy: {correct:.3f}")
        print(f"images/s: {speed:.0f}")
        print(f"replicas identical: {'yes' if identical else 'NO'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="taco")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()

    dist.init_process_group(backend=arguments.backend)
    train(arguments.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
