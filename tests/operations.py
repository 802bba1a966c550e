"""A catalogue of every operation of torch.distributed, in one form, so that a test can sweep all of them.

A Case says what to move (rank, world, shape, dtype, reduction, root). Operation.buffers makes this rank's
inputs and outputs, Operation.issue calls torch.distributed, Operation.expected computes what the outputs must
hold, from the patterns of all ranks and without any communication. Contents are distinct per rank, per tensor
and (as far as the dtype reaches) per element, and small enough that every reduction is exact: results are
compared to the last bit.
"""

import dataclasses
import math
from typing import Callable

import torch
import torch.distributed as dist

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64,
            torch.uint8, torch.uint16, torch.uint32, torch.uint64]
ARITHMETIC = [*FLOATS, *COMPLEX, *INTEGERS, torch.bool]
# Moved as bytes; nothing can be added up in them.
OPAQUE = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
                                            "float8_e8m0fnu") if hasattr(torch, name)]
DTYPES = [*ARITHMETIC, *OPAQUE]

SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = (
    "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
REDUCTIONS = [SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM]
PREMUL_FACTOR = 0.5

# (prime modulus, so that neighbours differ): W * modulus must be exact in the dtype for up to 8 ranks.
_MODULUS = {
    torch.int8: 13, torch.uint8: 31, torch.bfloat16: 31, torch.float16: 251, torch.bool: 2,
    torch.int16: 4093, torch.uint16: 8191, **dict.fromkeys(OPAQUE, 251),
}


def reductions(dtype, name=""):
    """The reductions that have a meaning for a dtype (and that the operation of this name lets through)."""
    if dtype in FLOATS:
        return [SUM, AVG, PRODUCT, MIN, MAX, PREMUL_SUM]
    if dtype in COMPLEX:
        # torch's all_reduce sees complex numbers as pairs of real ones, and refuses what those cannot say.
        return [SUM, AVG, PREMUL_SUM] + ([] if name.startswith("all_reduce") else [PRODUCT])
    if dtype in INTEGERS:
        return [SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR]
    if dtype is torch.bool:
        return [SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR]
    return []


def reduce_op(name):
    """The ReduceOp that torch takes."""
    if name == PREMUL_SUM:
        return dist._make_nccl_premul_sum(PREMUL_FACTOR)
    return getattr(dist.ReduceOp, name)


def period(dtype, reduction=SUM):
    """After so many elements a pattern repeats itself."""
    return 2 if reduction == PRODUCT else _MODULUS.get(dtype, 65521)


def tiled(one_period, shape):
    """A pattern of any length from its first period: arithmetic on megabytes would be most of a test's time."""
    numel = math.prod(shape)
    if numel <= one_period.numel():
        return one_period[:numel].reshape(shape)
    whole = one_period.view(torch.uint8) if one_period.dtype in OPAQUE else one_period
    whole = whole.repeat(-(-numel // one_period.numel()))[:numel]
    return whole.view(one_period.dtype).reshape(shape)


def pattern(rank, shape, dtype, salt=0, reduction=SUM, world=1):
    """What tensor number `salt` of a rank holds."""
    return tiled(_period_of(rank, min(math.prod(shape), period(dtype, reduction)), dtype, salt, reduction, world), shape)


def _period_of(rank, numel, dtype, salt, reduction, world):
    modulus = _MODULUS.get(dtype, 65521)
    step = torch.arange(numel, dtype=torch.int64)
    if reduction == PRODUCT:
        value = 1 + (step + rank + salt) % 2
    else:
        value = (step * 7 + rank * 5 + salt * 11 + 3) % modulus
        if reduction == AVG:  # multiples of W: the mean is exact
            value = value % max(2, modulus // world) * world
    if dtype in OPAQUE:
        return value.to(torch.uint8).view(dtype)
    if dtype in COMPLEX:
        part = torch.float32 if dtype is torch.complex64 else torch.float64
        other = (value + 1) % 97 * (world if reduction == AVG else 1)
        return torch.complex(value.to(part), other.to(part))
    return value.to(dtype)


def reduced(tensors, reduction):
    """The exact reduction of a list of tensors, rounded once to their dtype."""
    dtype = tensors[0].dtype
    if dtype is torch.bool:
        wide = torch.stack(tensors)
        if reduction in (SUM, MAX, BOR):
            return wide.any(0)
        if reduction in (PRODUCT, MIN, BAND):
            return wide.all(0)
        return wide.sum(0) % 2 == 1
    wide_dtype = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    total = tensors[0].to(wide_dtype)
    for tensor in tensors[1:]:
        other = tensor.to(wide_dtype)
        total = {
            SUM: torch.add, AVG: torch.add, PREMUL_SUM: torch.add, PRODUCT: torch.mul, MIN: torch.minimum,
            MAX: torch.maximum, BAND: torch.bitwise_and, BOR: torch.bitwise_or, BXOR: torch.bitwise_xor,
        }[reduction](total, other)
    if reduction == AVG:
        total = total / len(tensors) if wide_dtype is not torch.int64 else total // len(tensors)
    if reduction == PREMUL_SUM:
        total = total * PREMUL_FACTOR
    return total.to(dtype)


def same_bits(left, right):
    """Whether two tensors have equal shape, dtype and bytes."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.numel() == 0:
        return True
    return torch.equal(_bytes_of(left.detach()), _bytes_of(right.detach()))


def _bytes_of(tensor):
    # contiguous() would return a tensor of one element as it is, whatever its stride.
    if not tensor.is_contiguous() or tensor.numel() == 1:
        tensor = tensor.new_empty(tensor.shape).copy_(tensor)
    return tensor.reshape(-1).view(torch.uint8)


@dataclasses.dataclass(frozen=True)
class Case:
    rank: int  # in the group
    world: int  # of the group
    shape: tuple
    dtype: torch.dtype = torch.float32
    reduction: str = SUM
    root: int = 0  # rank in the group
    group: object = None

    def tensor(self, salt=0, rank=None):
        return pattern(self.rank if rank is None else rank, self.shape, self.dtype, salt, self.reduction, self.world)

    def tensors(self, rank=None):
        return [self.tensor(salt, rank) for salt in range(self.world)]

    def joined(self, tensors):
        """Tensors behind each other along the first dimension, as the *_tensor forms hold them."""
        return torch.stack(tensors) if not self.shape else torch.cat(tensors)

    def reduced(self, salt):
        numel = min(math.prod(self.shape), period(self.dtype, self.reduction))
        first = dataclasses.replace(self, shape=(numel,))
        return tiled(reduced([first.tensor(salt, rank) for rank in range(self.world)], self.reduction), self.shape)

    def blank(self):
        return blank(self.shape, self.dtype)

    def global_rank(self, rank):
        return rank if self.group is None else dist.get_global_rank(self.group, rank)


def blank(shape, dtype):
    """An output that holds garbage which no pattern makes."""
    if dtype in OPAQUE:
        return torch.full(shape, 0xA5, dtype=torch.uint8).view(dtype)
    return torch.full(shape, True if dtype is torch.bool else 121, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Operation:
    """inputs and outputs: lists of tensors; an operation in place has no inputs."""

    name: str
    reduces: bool
    rooted: bool
    buffers: Callable  # case -> (inputs, outputs)
    issue: Callable  # (case, inputs, outputs, async_op) -> list of works, empty when done
    expected: Callable  # case -> what the outputs hold afterwards

    def __str__(self):
        return self.name

    def run(self, case, place=None, async_op=False):
        """Calls the operation and checks outputs, inputs and what lies around them. `place` puts a tensor
        into the memory layout under test and returns (view, check of its surroundings)."""
        inputs, outputs = self.buffers(case)
        before = [tensor.clone() for tensor in inputs]
        checks = []
        if place is not None:
            placed = [[place(tensor) for tensor in tensors] for tensors in (inputs, outputs)]
            inputs, outputs = ([view for view, _ in pairs] for pairs in placed)
            checks = [check for pairs in placed for _, check in pairs]
        shapes = [tensor.shape for tensor in inputs + outputs]
        works = self.issue(case, inputs, outputs, async_op)
        for work in works:
            work.wait()
        what = f"{self.name} {str(case.dtype)[6:]} {case.reduction if self.reduces else ''} shape {case.shape}" \
               f" rank {case.rank} of {case.world} root {case.root}"
        assert shapes == [tensor.shape for tensor in inputs + outputs], f"{what}: a shape changed"
        for index, (got, want) in enumerate(zip(outputs, self.expected(case), strict=True)):
            assert same_bits(got, want), f"{what}: output {index}: got {short(got)}, expected {short(want)}"
        for index, (got, want) in enumerate(zip(inputs, before, strict=True)):
            assert same_bits(got, want), f"{what}: input {index} changed: {short(got)}, was {short(want)}"
        for check in checks:
            assert check(), f"{what}: memory between or around the elements changed"


def short(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    flat = flat.view(torch.uint8) if tensor.dtype in OPAQUE else flat
    return f"{flat[:12].tolist()}{'...' if flat.numel() > 12 else ''} shape {tuple(tensor.shape)}"


def _works(work):
    return [work] if work is not None else []


def _broadcast(case, inputs, outputs, async_op):
    return _works(dist.broadcast(outputs[0], group_src=case.root, group=case.group, async_op=async_op))


def _all_reduce(case, inputs, outputs, async_op):
    return _works(dist.all_reduce(outputs[0], reduce_op(case.reduction), group=case.group, async_op=async_op))


def _all_reduce_coalesced(case, inputs, outputs, async_op):
    return _works(dist.all_reduce_coalesced(outputs, reduce_op(case.reduction), group=case.group, async_op=async_op))


def _reduce(case, inputs, outputs, async_op):
    return _works(dist.reduce(outputs[0], group_dst=case.root, op=reduce_op(case.reduction), group=case.group,
                              async_op=async_op))


def _all_gather(case, inputs, outputs, async_op):
    return _works(dist.all_gather(outputs, inputs[0], group=case.group, async_op=async_op))


def _all_gather_into_tensor(case, inputs, outputs, async_op):
    return _works(dist.all_gather_into_tensor(outputs[0], inputs[0], group=case.group, async_op=async_op))


def _all_gather_coalesced(case, inputs, outputs, async_op):
    lists = [[outputs[rank], outputs[case.world + rank]] for rank in range(case.world)]
    return _works(dist.all_gather_coalesced(lists, inputs, group=case.group, async_op=async_op))


def _gather(case, inputs, outputs, async_op):
    lists = outputs if case.rank == case.root else None
    return _works(dist.gather(inputs[0], lists, group_dst=case.root, group=case.group, async_op=async_op))


def _scatter(case, inputs, outputs, async_op):
    lists = inputs if case.rank == case.root else None
    return _works(dist.scatter(outputs[0], lists, group_src=case.root, group=case.group, async_op=async_op))


def _reduce_scatter(case, inputs, outputs, async_op):
    return _works(dist.reduce_scatter(outputs[0], inputs, reduce_op(case.reduction), group=case.group,
                                      async_op=async_op))


def _reduce_scatter_tensor(case, inputs, outputs, async_op):
    return _works(dist.reduce_scatter_tensor(outputs[0], inputs[0], reduce_op(case.reduction), group=case.group,
                                             async_op=async_op))


def _coalesced(call):
    """Two calls inside torch's coalescing manager, where they become one operation."""
    def issue(case, inputs, outputs, async_op):
        with dist._coalescing_manager(group=case.group, async_ops=async_op) as manager:
            for index, output in enumerate(outputs):
                call(case, inputs[index:index + 1], [output])
        return [manager] if async_op else []
    return issue


def _all_to_all_single(case, inputs, outputs, async_op):
    return _works(dist.all_to_all_single(outputs[0], inputs[0], group=case.group, async_op=async_op))


def _all_to_all(case, inputs, outputs, async_op):
    return _works(dist.all_to_all(outputs, inputs, group=case.group, async_op=async_op))


def _send_recv(case, inputs, outputs, async_op):
    """Around the ring: to the next, from the one before."""
    to, source = case.global_rank((case.rank + 1) % case.world), case.global_rank((case.rank - 1) % case.world)
    if case.world == 1:
        outputs[0].copy_(inputs[0])  # torch refuses to send to oneself
        return []
    return [dist.isend(inputs[0], to, group=case.group, tag=3), dist.irecv(outputs[0], source, group=case.group, tag=3)]


def _batch_send_recv(case, inputs, outputs, async_op):
    to, source = case.global_rank((case.rank + 1) % case.world), case.global_rank((case.rank - 1) % case.world)
    if case.world == 1:
        outputs[0].copy_(inputs[0])
        return []
    return dist.batch_isend_irecv([dist.P2POp(dist.isend, inputs[0], to, group=case.group),
                                   dist.P2POp(dist.irecv, outputs[0], source, group=case.group)])


def _from_previous(case):
    return [case.tensor(rank=(case.rank - 1) % case.world)]


def _everyones(case, salt=0):
    return [case.tensor(salt, rank) for rank in range(case.world)]


def _at_root(case, there, elsewhere):
    return there if case.rank == case.root else elsewhere


_ALL = [
    Operation("broadcast", False, True, lambda c: ([], [c.tensor()]), _broadcast,
              lambda c: [c.tensor(rank=c.root)]),
    Operation("all_reduce", True, False, lambda c: ([], [c.tensor()]), _all_reduce, lambda c: [c.reduced(0)]),
    Operation("all_reduce_coalesced", True, False, lambda c: ([], [c.tensor(0), c.tensor(1)]),
              _all_reduce_coalesced, lambda c: [c.reduced(0), c.reduced(1)]),
    Operation("reduce", True, True, lambda c: ([], [c.tensor()]), _reduce,
              lambda c: _at_root(c, [c.reduced(0)], [c.tensor()])),
    Operation("all_gather", False, False, lambda c: ([c.tensor()], [c.blank() for _ in range(c.world)]),
              _all_gather, _everyones),
    Operation("all_gather_into_tensor", False, False,
              lambda c: ([c.tensor()], [c.joined([c.blank()] * c.world)]),
              _all_gather_into_tensor, lambda c: [c.joined(_everyones(c))]),
    Operation("all_gather_coalesced", False, False,
              lambda c: ([c.tensor(0), c.tensor(1)], [c.blank() for _ in range(2 * c.world)]),
              _all_gather_coalesced, lambda c: _everyones(c, 0) + _everyones(c, 1)),
    Operation("all_gather_into_tensor_coalesced", False, False,
              lambda c: ([c.tensor(0), c.tensor(1)], [c.joined([c.blank()] * c.world) for _ in range(2)]),
              _coalesced(lambda c, i, o: dist.all_gather_into_tensor(o[0], i[0], group=c.group)),
              lambda c: [c.joined(_everyones(c, 0)), c.joined(_everyones(c, 1))]),
    Operation("gather", False, True,
              lambda c: ([c.tensor()], _at_root(c, [c.blank() for _ in range(c.world)], [])), _gather,
              lambda c: _at_root(c, _everyones(c), [])),
    Operation("scatter", False, True, lambda c: (_at_root(c, c.tensors(), []), [c.blank()]), _scatter,
              lambda c: [c.tensor(c.rank, c.root)]),
    Operation("reduce_scatter", True, False, lambda c: (c.tensors(), [c.blank()]), _reduce_scatter,
              lambda c: [c.reduced(c.rank)]),
    Operation("reduce_scatter_tensor", True, False, lambda c: ([c.joined(c.tensors())], [c.blank()]),
              _reduce_scatter_tensor, lambda c: [c.reduced(c.rank)]),
    Operation("reduce_scatter_tensor_coalesced", True, False,
              lambda c: ([c.joined(c.tensors()), c.joined(c.tensors())], [c.blank(), c.blank()]),
              _coalesced(lambda c, i, o: dist.reduce_scatter_tensor(o[0], i[0], reduce_op(c.reduction), group=c.group)),
              lambda c: [c.reduced(c.rank)] * 2),
    Operation("all_to_all_single", False, False,
              lambda c: ([c.joined(c.tensors())], [c.joined([c.blank()] * c.world)]), _all_to_all_single,
              lambda c: [c.joined(_everyones(c, c.rank))]),
    Operation("all_to_all", False, False, lambda c: (c.tensors(), [c.blank() for _ in range(c.world)]),
              _all_to_all, lambda c: _everyones(c, c.rank)),
    Operation("send_recv", False, False, lambda c: ([c.tensor()], [c.blank()]), _send_recv, _from_previous),
    Operation("batch_isend_irecv", False, False, lambda c: ([c.tensor()], [c.blank()]), _batch_send_recv,
              _from_previous),
]
OPERATIONS = {operation.name: operation for operation in _ALL}
REDUCING = [operation for operation in _ALL if operation.reduces]


def sweep(operation, rank, world, shape, dtypes=(torch.float32,), all_reductions=False, group=None):
    """The cases of one operation: each dtype, each root where it has one, each reduction where asked."""
    for dtype in dtypes:
        wanted = reductions(dtype, operation.name) if operation.reduces else [SUM]
        for reduction in wanted if all_reductions else wanted[:1]:
            for root in range(world) if operation.rooted else [0]:
                yield Case(rank, world, tuple(shape), dtype, reduction, root, group)
