"""What a benchmark found, as it stands in a data file."""

import dataclasses
import itertools

from .operations import OPERATIONS


@dataclasses.dataclass(frozen=True)
class Figure:
    """One contender at one size."""

    bytes: int
    count: int
    type: str
    op: str
    backend: str
    algorithm: str
    via: str  # "python", or the C++ processes of perf/native that it ran in
    time_us: float  # the slowest rank of each repeat, the median of the repeats
    algbw_gbs: float
    busbw_gbs: float
    wrong: int  # elements, over all ranks
    p50_us: float
    p99_us: float
    cpu_us: float  # of an operation, all ranks together, the median
    eta_mem: float | None  # fraction of the limit (limits.py); None: not limited by it
    eta_net: float | None
    repeats: int
    fast_us: float  # 10th and
    slow_us: float  # 90th percentile

    @property
    def name(self):
        return name_of(self.backend, self.algorithm, self.via)


@dataclasses.dataclass(frozen=True)
class DdpFigure:
    """One contender's training step."""

    backend: str
    algorithm: str
    bytes: int  # of gradients
    tensors: int
    step_ms: float  # forward, backward and communication; the slowest rank, median
    silent_step_ms: float  # the same without communication
    backward_ms: float  # of it, the backward pass
    exposed_ms: float  # communication that backward did not hide: median of (step - the silent step beside it)
    wrong: int  # elements of the averaged gradients, over all ranks
    cpu_ms: float  # of a step, all ranks together, the median
    repeats: int

    @property
    def name(self):
        return name_of(self.backend, self.algorithm)


@dataclasses.dataclass(frozen=True)
class Outcome:
    machine: dict
    figures: list


def name_of(backend, algorithm, via="python"):
    if via == f"C++, {backend}":
        via = "C++"  # in its own processes
    return f"{backend} {algorithm}".rstrip() + ("" if via == "python" else f" ({via})")


def of_native(found):
    """A figure of perf/native. Its set is the processes that it was measured in."""
    return Figure(
        bytes=found["bytes"], count=found["count"], type=found["type"],
        op="sum" if OPERATIONS[found["op"]].reduces else "none", backend=found["backend"], algorithm=found["algorithm"],
        via=f"C++, {found['set']}", time_us=found["time_us"], algbw_gbs=found["algbw_gbs"],
        busbw_gbs=found["busbw_gbs"], wrong=found["wrong"], p50_us=found["p50_us"], p99_us=found["p99_us"],
        cpu_us=found["cpu_seconds"] * 1e6, eta_mem=None, eta_net=None, repeats=found["repeats"],
        fast_us=found["min_us"], slow_us=found["p99_us"])


def outcome_of_native(kept):
    """What perf/native wrote: in size order, so that the figures of one size stand together."""
    m = kept["machine"]
    figures = sorted(map(of_native, kept["figures"]), key=lambda figure: figure.bytes)
    machine = {"collective": kept["figures"][0]["op"], "nodes": 1, "network": "shared memory", "load_before": None,
               "cores": m["usable_cpus"], "torch": None, "torch_taco": None, "kernel": None,
               "settings": m.get("contenders", []), **m}
    return Outcome(machine, figures)


def outcome_of(kept):
    """From what a data file holds; files of earlier versions lack some fields."""
    if "usable_cpus" in kept["machine"]:
        return outcome_of_native(kept)
    machine = {"collective": "all_reduce", "flag_ns": None, **kept["machine"]}
    if machine["collective"] == "ddp":
        return Outcome(machine, [DdpFigure(**figure) for figure in kept["figures"]])
    lacking = {"via": "python", "cpu_us": None, "eta_mem": None, "eta_net": None, "p99_us": None}
    figures = [Figure(**{**lacking, "p50_us": figure["time_us"], **figure}) for figure in kept["figures"]]
    return Outcome(machine, figures)


def by_size(figures):
    """The figures of one size after the other."""
    return [list(group) for _, group in itertools.groupby(figures, key=lambda figure: figure.bytes)]


def baseline(figure, others):
    """Whom a figure is compared with: the first of those measured in the same processes."""
    return next((other for other in others if other.via == figure.via and other.backend == "taco"),
                next(other for other in others if other.via == figure.via))


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
