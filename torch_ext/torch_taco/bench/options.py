"""The command line of `taco bench`."""

import argparse
import dataclasses
import re

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
OPS = ("sum", "avg", "min", "max", "product")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclasses.dataclass(frozen=True)
class Contender:
    """One of the columns: a backend, for taco with the all-reduce algorithm that is forced on it."""

    backend: str
    algorithm: str = ""  # "": the backend's own choice

    @property
    def name(self):
        return f"{self.backend} {self.algorithm}".rstrip()

    @property
    def environment(self):
        forced = {"flat": "0", "2d": "1"}
        return {"LIGHT_2D_ALLREDUCE": forced[self.algorithm]} if self.algorithm else {}


@dataclasses.dataclass(frozen=True)
class Request:
    ranks: int
    nodes: int
    sizes: tuple  # bytes, ascending
    dtype: str
    op: str
    repeats: int  # 0: as many as fit into seconds_per_size
    seconds_per_size: float
    contenders: tuple
    form: str  # text, markdown, csv or json


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
        prog="taco bench", description="Measures a collective over ranks that it starts on this machine.",
        epilog="time: the slowest rank of each repeat, the median over the repeats. algbw = bytes / time; busbw = "
        "algbw x 2 (ranks - 1) / ranks, as in nccl-tests. Every rank writes its buffer anew before each repeat, and "
        "the backends take turns.")
    parser.add_argument("collective", choices=["all_reduce"])
    parser.add_argument("--ranks", type=int, default=2, help="processes to start (2)")
    parser.add_argument("--nodes", type=int, default=1, help="pretend that many nodes: shared memory only inside each, "
                        "TCP over the loopback between them (1)")
    parser.add_argument("--bytes", default="8-128M", help="a range, a size, or sizes with commas between (8-128M)")
    parser.add_argument("--step", type=int, default=2, choices=(2, 4, 8), help="factor from size to size (2)")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--op", default="sum", choices=OPS)
    parser.add_argument("--repeats", type=int, default=0, help="of each size and backend (as many as fit into --seconds)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each size, without --repeats (2)")
    parser.add_argument("--backend", default="taco", help="what is measured (taco)")
    parser.add_argument("--peers", default="", help="other backends to measure in turn, commas between: gloo")
    parser.add_argument("--algorithms", default="", help="taco once with each of these: flat,2d (its own choice)")
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
    if given.ranks < 2:
        parser.error(f"--ranks is {given.ranks}: an all-reduce takes at least 2")
    if not 1 <= given.nodes <= given.ranks:
        parser.error(f"--nodes is {given.nodes}, but must be from 1 to the number of ranks, {given.ranks}")
    if given.repeats < 0 or given.seconds <= 0:
        parser.error("--repeats must not be negative, and --seconds must be more than 0")
    try:
        sizes = sizes_of(given.bytes, given.step)
    except ValueError as error:
        parser.error(f"--bytes: {error}")
    algorithms = split(given.algorithms)
    if unknown := set(algorithms) - {"flat", "2d"}:
        parser.error(f"--algorithms: {', '.join(sorted(unknown))} is not one of flat, 2d")
    if algorithms and given.backend != "taco":
        parser.error(f"--algorithms are taco's, but --backend is {given.backend}")
    own = [Contender(given.backend, algorithm) for algorithm in algorithms or [""]]
    peers = [Contender(backend) for backend in split(given.peers)]
    contenders = tuple(dict.fromkeys(own + peers))  # each once
    needed = 2 * given.ranks * sizes[-1]
    if needed > (free := available_memory()):
        parser.error(f"--bytes {given.bytes} with {given.ranks} ranks needs {needed >> 20} MiB of memory, but "
                     f"{free >> 20} MiB are free: choose a smaller largest size or fewer ranks")
    return Request(given.ranks, given.nodes, sizes, given.dtype, given.op, given.repeats, given.seconds, contenders,
                   given.form)


def available_memory():
    """Free memory, and what the kernel gives up when somebody needs it."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) << 10
