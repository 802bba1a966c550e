"""A training step through DDP whose gradients are those of a ResNet-50: 161 tensors, 25.6 million floats.

The network is that one, with tiny pictures: as many weights as ever, little to compute. What is measured is a step
(forward, backward, averaging the gradients) and the same step without communication, in turn; the difference is the
communication that the backward pass did not hide.
"""

import os
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PICTURES = 2
PIXELS = 64
CLASSES = 1000
# By backend, what its documentation recommends for DDP: for taco, buckets in memory that all ranks of a node see.
SETTINGS = {"taco": {"DDP_DISABLE_COMM_MEM": "0"}}
BLOCKS = ((64, 3), (128, 4), (256, 6), (512, 3))  # width and number of each stage's blocks
EXPANSION = 4


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """1x1, 3x3, 1x1, and around them what came in."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = EXPANSION * width
        self.inner = nn.Sequential(convolution(inputs, width, 1), nn.ReLU(), convolution(width, width, 3, stride),
                                   nn.ReLU(), convolution(width, outputs, 1))
        self.around = convolution(inputs, outputs, 1, stride) if inputs != outputs or stride != 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.inner(x) + self.around(x))


def resnet50():
    layers = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, (width, number) in enumerate(BLOCKS):
        for index in range(number):
            layers.append(Block(inputs, width, 2 if stage > 0 and index == 0 else 1))
            inputs = EXPANSION * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


class Training:
    """One rank's: a model for each contender, all alike."""

    def __init__(self, request, rank, groups, start_line):
        self.rank = rank
        self.start_line = start_line
        self.ranks = request.ranks
        generator = torch.Generator().manual_seed(rank)
        self.pictures = torch.randn(PICTURES, 3, PIXELS, PIXELS, generator=generator)
        self.models = []
        for contender, group in zip(request.contenders, groups):
            torch.manual_seed(0)
            settings = SETTINGS.get(contender.backend, {})
            os.environ.update(settings)  # read when DDP makes its buckets
            self.models.append(DistributedDataParallel(resnet50(), process_group=group, broadcast_buffers=False,
                                                       gradient_as_bucket_view=True))
            # DDP lays its buckets out anew after the first step, and what is timed must not be that.
            for _ in range(2):
                self.step(self.models[-1])
            for name in settings:
                del os.environ[name]

    def step(self, model, communicate=True):
        """Seconds of the whole and of its backward, and CPU seconds."""
        model.zero_grad(set_to_none=False)
        self.start_line.wait(self.rank)
        cpu_began = time.process_time()
        began = time.perf_counter()
        if communicate:
            loss = model(self.pictures).square().mean()
            middle = time.perf_counter()
            loss.backward()
        else:
            with model.no_sync():
                loss = model(self.pictures).square().mean()
                middle = time.perf_counter()
                loss.backward()
        ended = time.perf_counter()
        return ended - began, ended - middle, time.process_time() - cpu_began

    def measure(self, repeats):
        """By contender: [(whole, backward, CPU)] with communication, the same without, and wrong elements."""
        loud, silent = [[] for _ in self.models], [[] for _ in self.models]
        for repeat in range(repeats):
            for turn in range(len(self.models)):
                which = (turn + repeat) % len(self.models)
                model = self.models[which]
                silent[which].append(self.step(model, communicate=False))
                loud[which].append(self.step(model))
        return loud, silent, [self.wrong(model) for model in self.models]

    def wrong(self, model):
        """Elements of the averaged gradients that are not the average of every rank's own, which each rank works out
        for itself: the seeds are known."""
        self.step(model)
        averaged = [parameter.grad.clone() for parameter in model.parameters()]
        total = [torch.zeros_like(gradient) for gradient in averaged]
        for rank in range(self.ranks):
            model.zero_grad(set_to_none=False)
            pictures = torch.randn(PICTURES, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(rank))
            with model.no_sync():
                model(pictures).square().mean().backward()
            for sum_, parameter in zip(total, model.parameters()):
                sum_ += parameter.grad
        wrong = 0
        for gradient, sum_ in zip(averaged, total):
            expected = sum_ / self.ranks
            scale = float(expected.abs().max())
            wrong += int((~torch.isclose(gradient, expected, rtol=1e-4, atol=1e-5 * scale)).sum())
        return wrong
