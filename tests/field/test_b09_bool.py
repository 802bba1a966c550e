"""B09 (pytorch#89197, #103585): sums of bools stored 2, and DDP refused a module with a bool buffer."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import operations
import ranks


def truth_tables(rank, world, name):
    operation = operations.OPERATIONS[name]
    for numel in [1, 5, 64, 70_001]:
        for case in operations.sweep(operation, rank, world, (numel,), [torch.bool], all_reductions=True):
            inputs, outputs = operation.buffers(case)
            for work in operation.issue(case, inputs, outputs, False):
                work.wait()
            for got, want in zip(outputs, operation.expected(case), strict=True):
                assert got.view(torch.uint8).max() <= 1, (case, "a byte other than 0 and 1")
                assert torch.equal(got, want), (case, got, want)


def all_true(rank, world):
    """Every rank holds True: a sum that counted would store W."""
    for reduction in operations.reductions(torch.bool):
        flag = torch.ones(1000, dtype=torch.bool)
        dist.all_reduce(flag, operations.reduce_op(reduction))
        want = 1 if reduction != "BXOR" else world % 2
        assert flag.view(torch.uint8).unique().tolist() == [want], (reduction, flag)


class WithFlags(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("flags", torch.tensor([rank == 0, True, False, rank == 1]))

    def forward(self, x):
        return self.linear(x) * self.flags[0]


def train_with_bool_buffer(rank, world):
    torch.manual_seed(rank)
    model = DistributedDataParallel(WithFlags(rank))
    for _ in range(2):
        model(torch.ones(4, 3)).sum().backward()
    assert model.module.flags.tolist() == [True, True, False, False]
    return model.module.linear.weight.grad.tolist()


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_every_operation(pool, name):
    pool.run(truth_tables, name)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_all_true(pool):
    pool.run(all_true)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_ddp_with_bool_buffer(pool):
    grads = pool.run(train_with_bool_buffer)
    assert all(grad == grads[0] for grad in grads)
