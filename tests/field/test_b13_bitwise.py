"""B13 (pytorch#41362): BAND of 12 and 10 gave 22: an unsupported reduction was taken for SUM.

Bitwise reductions compute bits; a reduction that has no meaning for a dtype is an error that names both,
raised before anything is sent, so that the group is as good as before.
"""

import pytest
import torch
import torch.distributed as dist

import operations
import ranks

MEANINGLESS = [(dtype, reduction) for dtype in [*operations.FLOATS, *operations.OPAQUE]
               for reduction in ("BAND", "BOR", "BXOR")] + \
              [(dtype, reduction) for dtype in operations.OPAQUE
               for reduction in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM")] + \
              [(dtype, "PREMUL_SUM") for dtype in [*operations.INTEGERS, torch.bool]] + [(torch.bool, "AVG")]
# torch's Python functions refuse these themselves; a caller that goes to the group directly reaches us.
MEANINGLESS_COMPLEX = [(dtype, reduction) for dtype in operations.COMPLEX
                       for reduction in ("BAND", "BOR", "BXOR", "MIN", "MAX")]


def twelve_and_ten(rank, world, dtype):
    for reduction, want in {"BAND": 8, "BOR": 14, "BXOR": 6}.items():
        value = torch.tensor([12, 10][rank], dtype=dtype)
        dist.all_reduce(value, operations.reduce_op(reduction))
        assert value.item() == want, (reduction, value)


def bits(rank, world, name):
    operation = operations.OPERATIONS[name]
    for reduction in ("BAND", "BOR", "BXOR"):
        for dtype in [*operations.INTEGERS, torch.bool]:
            for numel in [1, 3, 1025]:
                operation.run(operations.Case(rank, world, (numel,), dtype, reduction))


def refusals(rank, world, name):
    """Only rank 0 calls: an error that needed the others to be seen would hang here."""
    operation = operations.OPERATIONS[name]
    for dtype, reduction in MEANINGLESS if rank == 0 else []:
        case = operations.Case(rank, world, (5,), dtype, "SUM")
        inputs, outputs = operation.buffers(case)
        before = [tensor.clone() for tensor in outputs]
        wrong = operations.Case(rank, world, (5,), dtype, reduction)
        with pytest.raises((RuntimeError, ValueError, TypeError)) as raised:
            for work in operation.issue(wrong, inputs, outputs, False):
                work.wait()
        text = str(raised.value).lower()
        assert reduction.lower() in text, (dtype, reduction, text)
        assert str(dtype)[6:].lower() in text, (dtype, reduction, text)
        assert all(map(operations.same_bits, outputs, before)), "the failed call wrote to its output"
    operation.run(operations.Case(rank, world, (5,)))


def complex_refusals(rank, world):
    group = dist.group.WORLD
    for dtype, reduction in MEANINGLESS_COMPLEX if rank == 0 else []:
        options = dist.AllreduceOptions()
        options.reduceOp = operations.reduce_op(reduction)
        with pytest.raises((RuntimeError, ValueError)) as raised:
            group.allreduce([torch.ones(3, dtype=dtype)], options).wait()
        text = str(raised.value).lower()
        assert reduction.lower() in text and "complex" in text, text
    operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (5,), torch.complex64))


@pytest.mark.parametrize("layout", ranks.layouts(2), ids=str)
@pytest.mark.parametrize("dtype", operations.INTEGERS, ids=str)
def test_as_reported(pool, dtype):
    pool.run(twelve_and_ten, dtype)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", [operation.name for operation in operations.REDUCING])
def test_bits(pool, name):
    pool.run(bits, name)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", [operation.name for operation in operations.REDUCING])
def test_meaningless_is_refused(pool, name):
    pool.run(refusals, name)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_meaningless_for_complex(pool):
    pool.run(complex_refusals)
