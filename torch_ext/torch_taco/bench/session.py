"""One benchmark from start to end: which sizes, how many repeats, and the figures that come out."""

import dataclasses
import datetime
import importlib.metadata
import os
import platform
import statistics
import sys

import torch

from .ranks import Ranks

FEWEST_REPEATS = 5
MOST_REPEATS = 1000
TRIAL_REPEATS = 2  # to see how long one takes; also warms up


@dataclasses.dataclass(frozen=True)
class Figure:
    """One contender at one size."""

    bytes: int
    count: int
    type: str
    op: str
    backend: str
    algorithm: str
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: int  # elements, over all ranks
    repeats: int
    fast_us: float  # 10th and
    slow_us: float  # 90th percentile


@dataclasses.dataclass(frozen=True)
class Outcome:
    machine: dict
    figures: list


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def figures_of(request, size, answers):
    """answers: of every rank, seconds of each repeat and wrong elements, by contender."""
    element = getattr(torch, request.dtype).itemsize
    count = max(1, size // element)
    figures = []
    for which, contender in enumerate(request.contenders):
        by_rank = [seconds[which] for seconds, _ in answers]
        slowest = [max(repeat) for repeat in zip(*by_rank)]
        time = statistics.median(slowest)
        algbw = count * element / time / 1e9
        figures.append(Figure(
            bytes=count * element, count=count, type=request.dtype, op=request.op, backend=contender.backend,
            algorithm=contender.algorithm, time_us=time * 1e6, algbw_gbs=algbw,
            busbw_gbs=algbw * 2 * (request.ranks - 1) / request.ranks, wrong=sum(wrong[which] for _, wrong in answers),
            repeats=len(slowest), fast_us=percentile(slowest, 0.1) * 1e6, slow_us=percentile(slowest, 0.9) * 1e6))
    return figures


def repeats_for(request, answers):
    """As many as fit into the time for one size."""
    if request.repeats:
        return request.repeats
    one_of_each = sum(max(seconds[which][-1] for seconds, _ in answers) for which in range(len(request.contenders)))
    return max(FEWEST_REPEATS, min(MOST_REPEATS, int(request.seconds_per_size / one_of_each)))


class ProgressBar:
    """On stderr, where that is a terminal."""

    WIDTH = 30

    def __init__(self, total):
        self.total = total
        self.shown = sys.stderr.isatty()

    def show(self, done, text):
        if self.shown:
            full = self.WIDTH * done // self.total
            print(f"\r\033[K[{'#' * full}{'.' * (self.WIDTH - full)}] {done}/{self.total} {text}", end="",
                  file=sys.stderr, flush=True)

    def clear(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def cpu_name():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def own_version():
    try:
        return importlib.metadata.version("torch-taco")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def machine(request):
    return {
        "torch_taco": own_version(),
        "torch": torch.__version__,
        "ranks": request.ranks,
        "nodes": request.nodes,
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpu_name(),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def run(request):
    about = machine(request)
    figures = []
    bar = ProgressBar(len(request.sizes))
    bar.show(0, "starting the ranks")
    try:
        with Ranks(request) as ranks:
            for done, size in enumerate(request.sizes):
                bar.show(done, f"{size} bytes")
                trial = ranks.measure(size, TRIAL_REPEATS)
                figures += figures_of(request, size, ranks.measure(size, repeats_for(request, trial)))
    finally:
        bar.clear()
    return Outcome(about, figures)
