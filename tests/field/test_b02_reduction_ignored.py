"""B02 (pytorch#162338): reduce_scatter_tensor took AVG, MAX and PRODUCT for SUM.

Every form of every reducing operation must apply the reduction it was given, for every dtype.
"""

import pytest
import torch
import torch.distributed as dist

import operations
import ranks

AS_REPORTED = {  # of [1, 2, 3, 4] * (r + 1) on two ranks: what rank 0 and rank 1 get
    "SUM": ([3.0, 6.0], [9.0, 12.0]), "AVG": ([1.5, 3.0], [4.5, 6.0]),
    "MAX": ([2.0, 4.0], [6.0, 8.0]), "PRODUCT": ([2.0, 8.0], [18.0, 32.0]),
}


def reduce_scatter_forms(rank, world):
    for name, want in AS_REPORTED.items():
        op = operations.reduce_op(name)
        whole = torch.tensor([1.0, 2, 3, 4]) * (rank + 1)
        single, listed, first, second = (torch.empty(2) for _ in range(4))
        dist.reduce_scatter_tensor(single, whole, op)
        dist.reduce_scatter(listed, list(whole.chunk(2)), op)
        with dist._coalescing_manager():
            dist.reduce_scatter_tensor(first, whole, op)
            dist.reduce_scatter_tensor(second, whole, op)
        for form, got in {"tensor": single, "list": listed, "coalesced": first, "coalesced 2": second}.items():
            assert got.tolist() == want[rank], (name, form, got)


def every_reduction(rank, world, name):
    operation = operations.OPERATIONS[name]
    for shape in [(6,), (1000, 3)]:
        for case in operations.sweep(operation, rank, world, shape, operations.ARITHMETIC, all_reductions=True):
            operation.run(case)


@pytest.mark.parametrize("layout", ranks.layouts(2), ids=str)
def test_as_reported(pool):
    pool.run(reduce_scatter_forms)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("name", [operation.name for operation in operations.REDUCING])
def test_every_reduction(pool, name):
    pool.run(every_reduction, name)
