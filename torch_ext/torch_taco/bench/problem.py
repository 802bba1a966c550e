"""Inputs whose results are known exactly, for every collective: whole numbers that depend on index and rank."""

import torch
import torch.distributed as dist

from .operations import OPERATIONS, counts

# Elements are made and compared in parts of this many, so that checking needs little memory.
PART = 1 << 20
# Up to here a type has every whole number.
LARGEST = {torch.float32: 1 << 24, torch.float64: 1 << 53, torch.float16: 1 << 11, torch.bfloat16: 1 << 8,
           torch.int8: 127, torch.uint8: 255, torch.int32: (1 << 31) - 1, torch.int64: (1 << 62)}
MOST_VALUES = 65521
# By this many the numbers of one rank are ahead of the one before.
RANK_STRIDE = 7919
COMBINE = {"sum": torch.add, "avg": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum}


def prime_at_most(limit):
    """The pattern repeats after a prime: what lands a power of two too far is wrong everywhere."""
    for number in range(min(limit, MOST_VALUES), 2, -1):
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            return number
    return 2


class Problem:
    """One size: what a rank puts in, how the collective is called, and what must come out. The numbers are so small
    that every sum is exact, in every order of additions, so one wrong bit is a wrong element."""

    def __init__(self, collective, size, dtype, op, rank, ranks):
        self.collective = collective
        self.op = op if OPERATIONS[collective].reduces else "none"
        self.rank = rank
        self.ranks = ranks
        self.dtype = dtype
        self.whole, self.part = counts(OPERATIONS[collective], size, dtype.itemsize, ranks)
        self.modulus = prime_at_most(self._largest_input())
        self.input = torch.empty(self._input_count(), dtype=dtype)
        for begin, part in self.parts(self.input):
            part.copy_(self.pattern(rank, begin, len(part)))
        # Operations in place have one buffer.
        self.buffer = torch.empty_like(self.input)
        in_place = collective in ("all_reduce", "broadcast", "barrier")
        self.result = self.buffer if in_place else torch.empty(self._result_count(), dtype=dtype)
        self.poison = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max

    def _largest_input(self):
        exact = LARGEST[self.dtype]
        if self.op == "sum":
            return exact // self.ranks
        if self.op == "avg":  # floats: multiples of the number of ranks
            return exact // (self.ranks * self.ranks if self.dtype.is_floating_point else self.ranks)
        return exact

    def _input_count(self):
        return self.part if self.collective == "all_gather" else self.whole

    def _result_count(self):
        return self.part if self.collective == "reduce_scatter" else self.whole

    @staticmethod
    def parts(tensor):
        return ((begin, tensor[begin : begin + PART]) for begin in range(0, len(tensor), PART))

    def pattern(self, rank, begin, count):
        index = torch.arange(begin, begin + count) + RANK_STRIDE * rank
        if self.op == "product":
            return index % 2 + 1 if rank < 4 else torch.ones_like(index)
        # An average of multiples of the number of ranks is whole.
        return index % self.modulus * (self.ranks if self.op == "avg" and self.dtype.is_floating_point else 1)

    def use(self, buffer):
        """From now on the operation, one in place, runs in this buffer."""
        self.buffer = self.result = buffer

    def prepare(self):
        """Before every operation: a buffer that is never touched flatters what keeps data in caches."""
        if self.collective == "broadcast" and self.rank != 0:
            self.buffer.fill_(self.poison)
            return
        self.buffer.copy_(self.input)
        if self.result is not self.buffer:
            self.result.fill_(self.poison)

    def run(self, group):
        op = getattr(dist.ReduceOp, self.op.upper(), None)
        match self.collective:
            case "all_reduce":
                dist.all_reduce(self.buffer, op=op, group=group)
            case "all_gather":
                dist.all_gather_into_tensor(self.result, self.buffer, group=group)
            case "reduce_scatter":
                dist.reduce_scatter_tensor(self.result, self.buffer, op=op, group=group)
            case "broadcast":
                dist.broadcast(self.buffer, 0, group=group)
            case "all_to_all":
                dist.all_to_all_single(self.result, self.buffer, group=group)
            case "sendrecv":
                sent = dist.isend(self.buffer, (self.rank + 1) % self.ranks, group=group)
                dist.recv(self.result, (self.rank - 1) % self.ranks, group=group)
                sent.wait()
            case "barrier":
                dist.barrier(group=group)

    def expected(self, begin, count):
        """Elements of the result of this rank, from `begin` on."""
        match self.collective:
            case "all_reduce":
                return self.reduced(begin, count)
            case "reduce_scatter":
                return self.reduced(self.rank * self.part + begin, count)
            case "broadcast":
                return self.pattern(0, begin, count).to(self.dtype)
            case "sendrecv":
                return self.pattern((self.rank - 1) % self.ranks, begin, count).to(self.dtype)
            case "barrier":
                return self.pattern(self.rank, begin, count).to(self.dtype)
        # all_gather and all_to_all: every rank's part in rank order.
        pieces = []
        while count > 0:
            sender, offset = divmod(begin, self.part)
            length = min(count, self.part - offset)
            of_sender = offset + (self.rank * self.part if self.collective == "all_to_all" else 0)
            pieces.append(self.pattern(sender, of_sender, length))
            begin, count = begin + length, count - length
        return torch.cat(pieces).to(self.dtype)

    def reduced(self, begin, count):
        total = self.pattern(0, begin, count)
        for rank in range(1, self.ranks):
            total = COMBINE[self.op](total, self.pattern(rank, begin, count))
        if self.op == "avg":
            total = torch.div(total, self.ranks, rounding_mode="trunc")
        return total.to(self.dtype)

    def wrong(self):
        """How many elements of the result are not what they must be."""
        wrong = 0
        for begin, part in self.parts(self.result):
            expected = self.expected(begin, len(part))
            if self.op == "avg" and self.dtype.is_floating_point:  # times 1 / ranks: the last bit may differ
                right = torch.isclose(part, expected, rtol=torch.finfo(self.dtype).eps, atol=0)
            else:
                right = part == expected
            wrong += len(part) - int(right.sum())
        return wrong
