"""`taco bench topk`: the selection of TopK alone, in one thread of this process, beside other ways to do the same.

Every contender does one step of error feedback: residual += gradient, choose the k elements of largest magnitude,
copy them out, and zero them in the residual. `r += g` is only the first part, which every step has to do: the memory's
floor. Gradients are Gaussian, a different one in each of a few repeats, as in a training.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

from torch_taco._group import extension

from . import machine
from .options import available_memory, bytes_of

FLOOR = "r += g"
OWN = "taco"
GRADIENTS = 3
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclasses.dataclass
class Contender:
    name: str
    step: Callable  # gradient, residual, k -> what is sent: None for the floor, else (indices, values)
    unpack: Callable = staticmethod(lambda sent, k: sent)  # makes that out of it, if it is not yet
    turns: int = 1  # in a row: those that take little time are measured more often


@dataclasses.dataclass
class Figure:
    elements: int
    dtype: str
    k: int
    name: str
    ms: float  # median
    fast_ms: float
    slow_ms: float
    repeats: int
    wrong: int  # elements sent or kept that are not what they must be


def own(half):
    selector = extension().TopkSelector()

    def unpack(payload, k):  # csrc/topk/payload.h
        values = payload[4 * k : (6 if half else 8) * k].view(torch.float16 if half else torch.float32)
        return payload[: 4 * k].view(torch.int32).to(torch.int64), values.float()

    return Contender(OWN, lambda gradient, residual, k: selector.select(gradient, residual, k, half), unpack, 5)


def torch_topk(gradient, residual, k):
    residual.add_(gradient)
    indices = torch.topk(residual.abs(), k, sorted=False).indices
    values = residual[indices]
    residual[indices] = 0
    return indices, values


def torch_kthvalue(gradient, residual, k):
    residual.add_(gradient)
    magnitudes = residual.abs()
    threshold = torch.kthvalue(magnitudes, residual.numel() - k + 1).values
    indices = (magnitudes >= threshold).nonzero().squeeze(1)[:k]
    values = residual[indices]
    residual[indices] = 0
    return indices, values


def nth_element(gradient, residual, k):
    """NumPy's argpartition is an introselect on indices, as C++'s nth_element."""
    import numpy

    residual.add_(gradient)
    indices = torch.from_numpy(numpy.argpartition(residual.abs().numpy(), residual.numel() - k)[-k:])
    values = residual[indices]
    residual[indices] = 0
    return indices, values


def floor(gradient, residual, k):
    residual.add_(gradient)


def contenders(half):
    found = [Contender(FLOOR, floor, turns=5), own(half), Contender("torch.topk", torch_topk),
             Contender("torch.kthvalue", torch_kthvalue)]
    try:
        import numpy  # noqa: F401
    except ImportError:
        return found
    return [*found, Contender("numpy.argpartition", nth_element)]


def wrong_elements(contender, gradient, residual, k, half):
    """Of one step: sent + kept must be gradient + residual bit for bit, and what is sent the k largest."""
    before = residual + gradient.float()
    sent = contender.step(gradient, residual, k)
    if sent is None:
        return int((residual != before).sum())
    indices, values = contender.unpack(sent, k)
    total = residual.double()
    total[indices] += values.double()
    wrong = int((total != before.double()).sum()) + abs(len(indices.unique()) - k)
    smallest = torch.topk(before.abs(), k).values[-1]
    return wrong + int((before[indices].abs() < smallest).sum())


def measure(elements, given):
    """The figures of one size. Contenders take turns, so that what else the machine does hits all of them."""
    generator = torch.Generator().manual_seed(elements)
    dtype = DTYPES[given.dtype]
    gradients = [torch.randn(elements, generator=generator).to(dtype) for _ in range(GRADIENTS)]
    k = extension().topk_count(elements, given.ratio)
    found = contenders(given.fp16)
    residuals = [torch.zeros(elements) for _ in found]
    seconds = [[] for _ in found]
    deadline = time.perf_counter() + given.seconds
    repeat = 0
    while repeat < max(given.repeats or 3, 2) or (not given.repeats and time.perf_counter() < deadline):
        gradient = gradients[repeat % GRADIENTS]
        for which, contender in enumerate(found):
            for _ in range(contender.turns):
                began = time.perf_counter()
                contender.step(gradient, residuals[which], k)
                seconds[which].append(time.perf_counter() - began)
        repeat += 1
    wrong = [wrong_elements(contender, gradients[0], residual, k, given.fp16)
             for contender, residual in zip(found, residuals, strict=True)]
    return [Figure(elements, given.dtype, k, contender.name, statistics.median(taken[1:]) * 1e3, min(taken[1:]) * 1e3,
                   max(taken[1:]) * 1e3, len(taken) - 1, bad)  # the first one makes pages and the threshold
            for contender, taken, bad in zip(found, seconds, wrong, strict=True)]


def text(figures, about):
    lines = [["elements", "k", "type", "selection", "ms", "fastest", "slowest", "wrong", "times r += g",
              "taco is faster"]]
    for figure in figures:
        base = next(other for other in figures if other.elements == figure.elements and other.name == FLOOR)
        ours = next(other for other in figures if other.elements == figure.elements and other.name == OWN)
        faster = "" if figure.name in (FLOOR, OWN) else f"{figure.ms / ours.ms:.1f} x"
        lines.append([str(figure.elements), str(figure.k), figure.dtype, figure.name, f"{figure.ms:.3f}",
                      f"{figure.fast_ms:.3f}", f"{figure.slow_ms:.3f}", str(figure.wrong),
                      f"{figure.ms / base.ms:.2f}", faster])
    widths = [max(map(len, column)) for column in zip(*lines)]
    rows = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    return "\n".join([*(f"# {line}" for line in about), *rows])


def parse(argv):
    parser = argparse.ArgumentParser(prog="taco bench topk", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", default="4M,16M,64M", help="of float32, sizes with commas between (4M,16M,64M)")
    parser.add_argument("--ratio", type=float, default=0.01, help="the part of the elements that is chosen (0.01)")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES), help="of the gradient")
    parser.add_argument("--fp16", action="store_true", help="values leave as float16")
    parser.add_argument("--repeats", type=int, default=0, help="of each size and contender (what fits into --seconds)")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each size, without --repeats (3)")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    given = parser.parse_args(argv)
    try:
        sizes = [bytes_of(part) for part in given.bytes.split(",")]
    except ValueError as error:
        parser.error(f"--bytes: {error}")
    if not 0 < given.ratio <= 1:
        parser.error(f"--ratio is {given.ratio:g}: the part of the elements that is chosen is above 0 and at most 1")
    if given.repeats < 0 or given.seconds <= 0:
        parser.error("--repeats must not be negative, and --seconds must be more than 0")
    given.elements = sorted({max(1, size // 4) for size in sizes})
    needed = 60 * given.elements[-1]
    if needed > (free := available_memory()):
        parser.error(f"--bytes {given.bytes} needs {needed >> 20} MiB of memory, but {free >> 20} MiB are free: choose "
                     "a smaller largest size")
    return given


def main(argv):
    """Prints the table; the exit code is 1 if any element was wrong."""
    given = parse(argv)
    torch.set_num_threads(1)
    figures = [figure for elements in given.elements for figure in measure(elements, given)]
    about = [f"selection with error feedback, {given.ratio * 100:g} % of the elements; 1 thread, {machine.cpu_name()}",
             f"torch {torch.__version__}, torch-taco {machine.own_version()}; median of the repeats in turn"]
    if given.json:
        print(json.dumps({"about": about, "ratio": given.ratio, "fp16": given.fp16,
                          "figures": [dataclasses.asdict(figure) for figure in figures]}, indent=1))
    else:
        print(text(figures, about))
    bad = [figure for figure in figures if figure.wrong]
    for figure in bad:
        print(f"taco bench topk: {figure.name}: {figure.wrong} wrong elements of {figure.elements}", file=sys.stderr)
    return 1 if bad else 0
