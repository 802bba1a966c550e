"""One benchmark from start to end: which sizes, how many repeats, and the figures that come out."""

import contextlib
import dataclasses
import os
import statistics
import sys

from . import cluster, ddp, limits, machine
from .errors import BenchError
from .figures import DdpFigure, Figure, Outcome, percentile
from .native import Native
from .operations import OPERATIONS, counts
from .options import ELEMENT_BYTES
from .ranks import MEMORY_PART_BYTES, Ranks

FEWEST_REPEATS = 5
MOST_REPEATS = 1000
MOST_STEPS = 50
TRIAL_REPEATS = 2  # to see how long one takes; also warms up
# What each backend is set to, where it is not what it would choose itself.
SETTINGS = {"gloo": "interface {interface}"}


def figures_of(request, size, answers, memory, cache):
    """answers: of every rank, seconds and CPU seconds of each repeat and wrong elements, by contender."""
    operation = OPERATIONS[request.collective]
    element = ELEMENT_BYTES[request.dtype]
    whole, count = counts(operation, size, element, request.ranks)
    real = whole * element if size else 0  # a barrier has no bytes
    rate = cluster.bits_per_second(request.rate) if request.rate else 0
    figures = []
    for which, contender in enumerate(request.contenders):
        slowest = [max(repeat) for repeat in zip(*(seconds[which] for seconds, _, _ in answers))]
        cpu = statistics.median(sum(repeat) for repeat in zip(*(cpu[which] for _, cpu, _ in answers)))
        time = statistics.median(slowest)
        algbw = real / time / 1e9
        figures.append(Figure(
            bytes=real, count=count if size else 0, type=request.dtype, op=request.op if operation.reduces else "none",
            backend=contender.backend, algorithm=contender.algorithm, via="python", time_us=time * 1e6, algbw_gbs=algbw,
            busbw_gbs=algbw * operation.bus_factor(request.ranks), wrong=sum(wrong[which] for _, _, wrong in answers),
            p50_us=time * 1e6, p99_us=percentile(slowest, 0.99) * 1e6, cpu_us=cpu * 1e6,
            eta_mem=limits.eta_mem(operation, real, request.ranks, memory, time, cache),
            eta_net=None if contender.topk else limits.eta_net(operation, real, request.ranks, request.nodes, rate,
                                                               time),  # the limit is that of sending everything
            repeats=len(slowest), fast_us=percentile(slowest, 0.1) * 1e6, slow_us=percentile(slowest, 0.9) * 1e6))
    return figures


def with_limits(request, figures, memory, cache):
    """Figures of perf/native, held against the same limits."""
    operation = OPERATIONS[request.collective]
    rate = cluster.bits_per_second(request.rate) if request.rate else 0
    return [dataclasses.replace(
        figure, eta_mem=limits.eta_mem(operation, figure.bytes, request.ranks, memory, figure.time_us / 1e6, cache),
        eta_net=limits.eta_net(operation, figure.bytes, request.ranks, request.nodes, rate, figure.time_us / 1e6))
        for figure in figures]


def repeats_for(request, one_of_each, most=MOST_REPEATS):
    """As many as fit into the time for one size."""
    return request.repeats or max(FEWEST_REPEATS, min(most, int(request.seconds_per_size / one_of_each)))


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


@contextlib.contextmanager
def network(request):
    """The cluster to run on, or None, and what connects the nodes, in words."""
    if request.nodes == 1:
        yield None, "shared memory"
        return
    missing = "--loopback is given" if request.loopback else cluster.why_not()
    if missing:
        if request.rate or request.native_peers:
            what = f"--rate {request.rate}" if request.rate else f"--peers {request.native_peers[0]}"
            raise BenchError(f"{what} needs nodes that are network namespaces: {missing}")
        yield None, f"loopback ({missing})"
        return
    with cluster.Cluster(request.nodes, rate=request.rate or None, mtu=cluster.REAL_MTU) as made:
        limit = f"tbf {request.rate}" if request.rate else "no limit"
        yield made, f"namespaces, veth, bridge, {limit}, MTU {cluster.REAL_MTU}"


def settings_of(request, over_cluster):
    interface = "eth0" if over_cluster else os.environ.get("GLOO_SOCKET_IFNAME", "of its own choice")
    found = []
    for contender in request.contenders:
        of_ddp = ddp.SETTINGS.get(contender.backend, {}) if request.collective == "ddp" else {}
        set_to = {**contender.environment, **of_ddp}
        words = [f"{name}={value}" for name, value in set_to.items()]
        if contender.algorithm == "shared":
            words.append("buffers of torch_taco.shared_empty")
        if contender.topk:
            words.append(f"topk_all_reduce, ratio {contender.topk:g}, float32 values")
        said = " ".join(words) or SETTINGS.get(contender.backend, "defaults").format(interface=interface)
        found.append(f"{contender.backend} {contender.algorithm}".rstrip() + f": {said}")
    return found


def memory_bandwidth(request, ranks):
    """Bytes a second: given, or 3 bytes for each byte of the array that all ranks together add to, the best repeat."""
    if request.memory_gbs:
        return request.memory_gbs * 1e9
    slowest = [max(repeat) for repeat in zip(*ranks.ask("memory_seconds"))]
    return 3 * MEMORY_PART_BYTES / min(slowest)


def run(request):
    bar = ProgressBar(len(request.sizes))
    bar.show(0, "starting the ranks")
    figures = []
    try:
        with network(request) as (made, words):
            native = Native(request, made)
            about = machine.describe(request, words)
            about["settings"] = settings_of(request, made is not None)
            with Ranks(request, made) as ranks:
                if request.collective == "ddp":
                    return Outcome(about, ddp_figures(request, ranks))
                # Over several nodes the network is the limit.
                memory = memory_bandwidth(request, ranks) if request.nodes == 1 else 0
                about["memory_gbs"] = round(memory / 1e9, 1) or None
                for done, size in enumerate(request.sizes):
                    bar.show(done, f"{size} bytes")
                    figures += one_size(request, ranks, size, memory, about["last_cache_bytes"])
                    measured = native.measure(size, request.repeats)
                    figures += with_limits(request, measured, memory, about["last_cache_bytes"])
                about["settings"] += native.settings + native.given_up
    finally:
        bar.clear()
    return Outcome(about, figures)


def one_size(request, ranks, size, memory, cache):
    what = (request.collective, request.dtype, request.op)
    trial = ranks.ask("measure", what, size, TRIAL_REPEATS, True)
    one_of_each = sum(max(seconds[which][-1] for seconds, _, _ in trial) for which in range(len(request.contenders)))
    answers = ranks.ask("measure", what, size, repeats_for(request, one_of_each), False)
    figures = figures_of(request, size, answers, memory, cache)
    in_trial = [sum(wrong[which] for _, _, wrong in trial) for which in range(len(figures))]
    return [dataclasses.replace(figure, wrong=figure.wrong + more) for figure, more in zip(figures, in_trial)]


def ddp_figures(request, ranks):
    trial = ranks.ask("ddp", 1)
    pair = sum(max(loud[which][0][0] + silent[which][0][0] for loud, silent, _ in trial)
               for which in range(len(request.contenders)))
    answers = ranks.ask("ddp", repeats_for(request, pair, MOST_STEPS))
    return [ddp_figure(contender, [(loud[which], silent[which], wrong[which]) for loud, silent, wrong in answers])
            for which, contender in enumerate(request.contenders)]


def ddp_figure(contender, answers):
    """answers: of every rank."""
    def slowest(part, number):
        """Of each repeat, the slowest rank's."""
        return [max(step[number] for step in steps) for steps in zip(*(answer[part] for answer in answers))]

    median = statistics.median
    step, silent = slowest(0, 0), slowest(1, 0)
    # Of neighbours in time: what the machine does besides changes slowly.
    exposed = median(with_it - without for with_it, without in zip(step, silent))
    cpu = median(sum(step[2] for step in steps) for steps in zip(*(answer[0] for answer in answers)))
    sizes = [parameter.numel() for parameter in ddp.resnet50().parameters()]
    return DdpFigure(
        backend=contender.backend, algorithm=contender.algorithm, bytes=4 * sum(sizes), tensors=len(sizes),
        step_ms=median(step) * 1e3, silent_step_ms=median(silent) * 1e3, backward_ms=median(slowest(1, 1)) * 1e3,
        exposed_ms=exposed * 1e3,
        wrong=sum(answer[2] for answer in answers), cpu_ms=cpu * 1e3, repeats=len(answers[0][0]))
