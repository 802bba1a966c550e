"""Inputs whose reduction is known exactly: small whole numbers that depend on index and rank."""

import torch

# Elements are made and compared in parts of this many, so that checking needs little memory.
PART = 1 << 20


class Problem:
    """One size: what a rank puts in, and what must come out. The numbers are exact in every dtype and under every order
    of additions for up to 32 ranks, so that one wrong bit is a wrong element."""

    def __init__(self, count, dtype, op, rank, ranks):
        self.op = op
        self.ranks = ranks
        self.dtype = dtype
        self.input = torch.empty(count, dtype=dtype)
        for begin, part in self.parts(self.input):
            part.copy_(self.pattern(rank, begin, len(part)))

    @staticmethod
    def parts(tensor):
        return ((begin, tensor[begin : begin + PART]) for begin in range(0, len(tensor), PART))

    def pattern(self, rank, begin, count):
        index = torch.arange(begin, begin + count) + 3 * rank
        if self.op == "product":
            return index % 2 + 1 if rank < 4 else torch.ones_like(index)
        # An average of multiples of the number of ranks is whole.
        return index % 4 * (self.ranks if self.op == "avg" and self.dtype.is_floating_point else 1)

    def expected(self, begin, count):
        combine = {"sum": torch.add, "avg": torch.add, "product": torch.mul, "min": torch.minimum,
                   "max": torch.maximum}[self.op]
        total = self.pattern(0, begin, count)
        for rank in range(1, self.ranks):
            total = combine(total, self.pattern(rank, begin, count))
        if self.op == "avg":
            total = torch.div(total, self.ranks, rounding_mode="trunc")
        return total.to(self.dtype)

    def wrong(self, result):
        """How many elements of `result` are not what they must be."""
        wrong = 0
        for begin, part in self.parts(result):
            expected = self.expected(begin, len(part))
            if self.op == "avg" and self.dtype.is_floating_point:  # times 1 / ranks: the last bit may differ
                right = torch.isclose(part, expected, rtol=torch.finfo(self.dtype).eps, atol=0)
            else:
                right = part == expected
            wrong += len(part) - int(right.sum())
        return wrong
