"""What `taco bench` measures: for each collective how its size is counted, its bus bandwidth, and the least that any
implementation moves. The first two are as in nccl-tests. Knows nothing of torch."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Operation:
    """P ranks, N nodes of g ranks; S is the size that the table shows."""

    name: str
    # busbw = algbw x this: what one rank's link would carry in the best of all algorithms over equal links.
    bus_factor: Callable  # of P
    # The least memory traffic of one rank as a part of S: what it must read of its own and write of the result once
    # if everything between stays in caches.
    memory_part: Callable  # of P
    # The least that must pass through one node's network interface in one direction as a part of S.
    network_part: Callable  # of N, g
    reduces: bool = False
    # S is the buffer that holds every rank's part; what the table counts is one part.
    of_all_ranks: bool = False


def _others(count):
    return (count - 1) / count


OPERATIONS = {operation.name: operation for operation in (
    Operation("all_reduce", lambda P: 2 * _others(P), lambda P: 2.0, lambda N, g: 2 * _others(N), reduces=True),
    Operation("all_gather", _others, lambda P: 1 + 1 / P, lambda N, g: _others(N), of_all_ranks=True),
    Operation("reduce_scatter", _others, lambda P: 1 + 1 / P, lambda N, g: _others(N), reduces=True, of_all_ranks=True),
    Operation("broadcast", lambda P: 1.0, lambda P: 1.0, lambda N, g: float(N > 1)),
    Operation("all_to_all", _others, lambda P: 2.0, lambda N, g: g * _others(N), of_all_ranks=True),
    Operation("sendrecv", lambda P: 1.0, lambda P: 2.0, lambda N, g: float(N > 1)),
    Operation("barrier", lambda P: 0.0, lambda P: 0.0, lambda N, g: 0.0),
)}


def counts(operation, size, element_bytes, ranks):
    """(elements of the whole buffer, elements that the table counts) for a size in bytes: at least one a rank."""
    whole = max(1, size // element_bytes)
    if not operation.of_all_ranks:
        return whole, whole
    part = max(1, whole // ranks)
    return part * ranks, part
