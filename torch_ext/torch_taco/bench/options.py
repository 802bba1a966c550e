"""The command line of `taco bench`."""

import argparse
import dataclasses
import os
import re

from .cluster import bits_per_second
from .operations import OPERATIONS

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
ELEMENT_BYTES = dict(zip(DTYPES, (4, 8, 2, 2, 1, 1, 4, 8)))
OPS = ("sum", "avg", "min", "max", "product")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Backends of torch.distributed that are always there.
TORCH_PEERS = ("gloo",)
# Peers that perf/native measures, in C or C++, where they are installed.
NATIVE_PEERS = ("openmpi", "openmpi-han", "openmpi5", "openmpi5-han", "mpich", "impi", "oneccl", "oneccl-2d",
                "deepspeed", "commux")
# Those that perf/native can start on several nodes.
SPREAD_PEERS = ("openmpi", "openmpi-han")
NATIVE_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
NATIVE_DTYPES = ("float32", "float16", "bfloat16")
TOPK_DTYPES = ("float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Contender:
    """A backend of torch.distributed, for taco with the all-reduce algorithm that is forced on it, or "shared": with
    buffers in memory that all ranks of the node see."""

    backend: str
    algorithm: str = ""  # "": the backend's own choice
    topk: float = 0.0  # the part of the elements that is sent; 0: all

    @property
    def environment(self):
        forced = {"flat": "0", "2d": "1"}
        return {"LIGHT_2D_ALLREDUCE": forced[self.algorithm]} if self.algorithm in forced else {}


@dataclasses.dataclass(frozen=True)
class Request:
    collective: str
    ranks: int
    nodes: int
    rate: str  # of a node's network interface; "": unlimited
    loopback: bool  # nodes that only pretend
    bind: bool  # each rank to a core
    sizes: tuple  # bytes, ascending
    dtype: str
    op: str
    repeats: int  # 0: as many as fit into seconds_per_size
    seconds_per_size: float
    memory_gbs: float  # 0: to be measured
    contenders: tuple
    native_peers: tuple
    form: str  # text, markdown, csv or json
    plot: str  # a file, or ""


def bytes_of(text):
    found = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or int(found[1]) == 0:
        raise ValueError(f"{text!r} is no size: write a whole number from 1, with K, M or G for powers of 1024")
    return int(found[1]) * UNITS[found[2].upper()]


def sizes_of(text, step):
    """8-128M: from, to, each `step` times the one before; or a list: 4K,1M; or a single size."""
    if "-" not in text:
        return tuple(sorted({bytes_of(part) for part in text.split(",")}))
    first, last = (bytes_of(part) for part in text.split("-", 1))
    if first > last:
        raise ValueError(f"the range {text!r} is empty: its first size is larger than its last")
    sizes = [first]
    while sizes[-1] * step <= last:
        sizes.append(sizes[-1] * step)
    return tuple(sizes)


def make_parser():
    parser = argparse.ArgumentParser(
        prog="taco bench", description="Measures a collective, or DDP, over ranks that it starts on this machine.",
        epilog="time: the slowest rank of each repeat, the median over the repeats. algbw = bytes / time; busbw as in "
        "nccl-tests. Every rank writes its buffer anew before each repeat, and the backends take turns. "
        "docs/performance.md tells what every column means. `taco bench topk --help`: the selection of TopK alone.")
    parser.add_argument("collective", choices=[*OPERATIONS, "ddp"], help="ddp: a training step with the gradients of a "
                        "ResNet-50")
    parser.add_argument("--ranks", type=int, default=2, help="processes to start (2)")
    parser.add_argument("--nodes", type=int, default=1, help="nodes to spread them over (1). As root they are network "
                        "namespaces; otherwise shared memory only inside each, TCP over the loopback between them")
    parser.add_argument("--rate", default="", help="of every node's network interface, for example 1gbit (unlimited)")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, also as root")
    parser.add_argument("--bind", default="auto", choices=("auto", "core", "none"), help="bind each rank to a core; "
                        "auto: where there are as many, and no backend has threads that need another core, as gloo has")
    parser.add_argument("--bytes", default="8-128M", help="a range, a size, or sizes with commas between (8-128M)")
    parser.add_argument("--step", type=int, default=2, choices=(2, 4, 8), help="factor from size to size (2)")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--op", default="sum", choices=OPS, help="of all_reduce and reduce_scatter")
    parser.add_argument("--repeats", type=int, default=0, help="of each size and backend (what fits into --seconds)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each size, without --repeats (2)")
    parser.add_argument("--backend", default="taco", help="what is measured (taco)")
    parser.add_argument("--peers", default="", help="others to measure in turn, commas between: "
                        f"{', '.join(TORCH_PEERS)}; and after `make peers` {', '.join(NATIVE_PEERS)}")
    parser.add_argument("--algorithms", default="", help="taco once with each of these: flat,2d, and shared for "
                        "buffers of torch_taco.shared_empty (its own choice, ordinary buffers)")
    parser.add_argument("--topk", type=float, metavar="RATIO", help="taco once more with this part of the elements "
                        "sent, for example 0.01 (all_reduce over several nodes)")
    parser.add_argument("--memory-gbs", type=float, default=0.0, help="memory traffic that this machine sustains, "
                        "GB/s, for eta_mem (measured at the start)")
    parser.add_argument("--plot", default="", metavar="FILE.svg", help="draw the times over the sizes as well")
    form = parser.add_mutually_exclusive_group()
    for name in ("json", "csv", "markdown"):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"the result as {name}")
    parser.set_defaults(form="text")
    return parser


def split(text):
    return [part.strip() for part in text.split(",") if part.strip()]


def parse(argv):
    parser = make_parser()
    given = parser.parse_args(argv)
    try:
        return request_of(given)
    except ValueError as error:
        parser.error(str(error))


def request_of(given):
    """ValueError with one sentence where it makes no sense."""
    if given.ranks < 2:
        raise ValueError(f"--ranks is {given.ranks}: a collective takes at least 2")
    if not 1 <= given.nodes <= given.ranks:
        raise ValueError(f"--nodes is {given.nodes}, but must be from 1 to the number of ranks, {given.ranks}")
    if given.repeats < 0 or given.seconds <= 0 or given.memory_gbs < 0:
        raise ValueError("--repeats and --memory-gbs must not be negative, and --seconds must be more than 0")
    check_rate(given)
    if given.plot and given.collective in ("barrier", "ddp"):
        raise ValueError(f"--plot draws times over sizes, of which {given.collective} has none")
    sizes = sizes_for(given)
    contenders, native = contenders_of(given)
    return Request(
        collective=given.collective, ranks=given.ranks, nodes=given.nodes, rate=given.rate, loopback=given.loopback,
        bind=binds(given, contenders), sizes=sizes, dtype=given.dtype, op=given.op, repeats=given.repeats,
        seconds_per_size=given.seconds, memory_gbs=given.memory_gbs, contenders=contenders, native_peers=native,
        form=given.form, plot=given.plot)


def binds(given, contenders):
    """Bound to one core, gloo's own thread and the one that waits for it hinder each other: 10 times slower."""
    cores = len(os.sched_getaffinity(0))
    if given.bind == "core" and given.ranks > cores:
        raise ValueError(f"--bind core needs a core for each of {given.ranks} ranks, but there are {cores}: "
                         "leave it out")
    if given.bind == "auto":
        return given.ranks <= cores and not any(contender.backend in TORCH_PEERS for contender in contenders)
    return given.bind == "core"


def check_rate(given):
    if not given.rate:
        return
    try:
        bits_per_second(given.rate)
    except ValueError as error:
        raise ValueError(f"--rate: {error}") from None
    if given.nodes == 1:
        raise ValueError(f"--rate {given.rate} is the network's between nodes, but --nodes is 1")
    if given.loopback:
        raise ValueError(f"--rate {given.rate} needs nodes that are network namespaces: leave --loopback out")


def sizes_for(given):
    if given.collective in ("barrier", "ddp"):
        return (0,)
    try:
        sizes = sizes_of(given.bytes, given.step)
    except ValueError as error:
        raise ValueError(f"--bytes: {error}") from None
    needed = (3 if OPERATIONS[given.collective].of_all_ranks else 2) * given.ranks * sizes[-1]
    if needed > (free := available_memory()):
        raise ValueError(f"--bytes {given.bytes} with {given.ranks} ranks needs {needed >> 20} MiB of memory, but "
                         f"{free >> 20} MiB are free: choose a smaller largest size or fewer ranks")
    return sizes


def contenders_of(given):
    algorithms = split(given.algorithms)
    if unknown := set(algorithms) - {"flat", "2d", "shared"}:
        raise ValueError(f"--algorithms: {', '.join(sorted(unknown))} is not one of flat, 2d, shared")
    if "shared" in algorithms and given.collective == "ddp":
        raise ValueError("--algorithms shared is an all-reduce's; ddp has its buckets in shared memory without it")
    if algorithms and given.backend != "taco":
        raise ValueError(f"--algorithms are taco's, but --backend is {given.backend}")
    check_topk(given)
    if algorithms and given.collective not in ("all_reduce", "ddp"):
        raise ValueError(f"--algorithms are the all-reduce's, but {given.collective} is measured")
    peers = split(given.peers)
    if unknown := [peer for peer in peers if peer not in TORCH_PEERS + NATIVE_PEERS]:
        raise ValueError(f"--peers: {', '.join(unknown)} is not one of {', '.join(TORCH_PEERS + NATIVE_PEERS)}")
    native = tuple(dict.fromkeys(peer for peer in peers if peer in NATIVE_PEERS))
    for peer in native:
        check_native(given, peer)
    own = [Contender(given.backend, algorithm) for algorithm in algorithms or [""]]
    if given.topk:
        own.append(Contender("taco", f"topk {given.topk:g}", given.topk))
    others = [Contender(peer) for peer in peers if peer in TORCH_PEERS]
    return tuple(dict.fromkeys(own + others)), native  # each once


def check_topk(given):
    if given.topk is None:
        return
    if not 0 < given.topk < 1:
        raise ValueError(f"--topk is {given.topk:g}: the part of the elements that is sent lies between 0 and 1")
    if given.backend != "taco" or given.collective != "all_reduce":
        raise ValueError(f"--topk is taco's all-reduce, but {given.backend}'s {given.collective} is measured")
    if given.nodes == 1:
        raise ValueError(f"--topk {given.topk:g} compresses what goes from node to node, but --nodes is 1")
    if given.dtype not in TOPK_DTYPES or given.op != "sum":
        raise ValueError(f"--topk: only sums of {', '.join(TOPK_DTYPES)} are measured, not --dtype {given.dtype} "
                         f"--op {given.op}")


def check_native(given, peer):
    allowed = (("collective", given.collective, NATIVE_COLLECTIVES), ("--dtype", given.dtype, NATIVE_DTYPES),
               ("--op", given.op, ("sum",)))
    for option, value, values in allowed:
        if value not in values:
            raise ValueError(f"--peers {peer}: it is measured by perf/native, which has no {option} {value}, only "
                             f"{', '.join(map(str, values))}")
    if given.nodes > 1 and peer not in SPREAD_PEERS:
        raise ValueError(f"--peers {peer}: over several nodes only {', '.join(TORCH_PEERS + SPREAD_PEERS)} are "
                         "measured")
    if given.nodes > 1 and (given.loopback or given.ranks % given.nodes):
        raise ValueError(f"--peers {peer}: over several nodes it needs namespaces, so no --loopback, and as many ranks "
                         "on each")


def available_memory():
    """Free memory, and what the kernel gives up when somebody needs it."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) << 10
