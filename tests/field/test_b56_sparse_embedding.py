"""B56 (pytorch#87497): the gradients of a sparse embedding went wrong when one rank's batch was all padding."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks

PADDING = 0


class Lookup(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table = torch.nn.Embedding(10, 4, padding_idx=PADDING, sparse=True)
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, indices):
        return self.linear(self.table(indices)).square().sum()


def indices(rank, world):
    """Rank 0 sees only padding, the last rank repeats one word, those between see different ones."""
    if rank == 0:
        return torch.full((3, 2), PADDING)
    return torch.tensor([[rank, 5], [rank, rank], [5, 9]])


def embedding_gradient(rank, world):
    ddp = DistributedDataParallel(Lookup())
    expected = torch.zeros(10, 4)
    expected_weight = torch.zeros(2, 4)
    for r in range(world):
        alone = Lookup()
        alone(indices(r, world)).backward()
        expected += alone.table.weight.grad.to_dense() / world
        expected_weight += alone.linear.weight.grad / world
    for _ in range(3):
        ddp.zero_grad()
        ddp(indices(rank, world)).backward()
        got = ddp.module.table.weight.grad
        assert got.is_sparse
        torch.testing.assert_close(got.to_dense(), expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(ddp.module.linear.weight.grad, expected_weight, rtol=1e-6, atol=1e-5)
    assert not expected[PADDING].any()


def sparse_sums(rank, world):
    """all_reduce of sparse tensors itself: overlapping, disjoint, repeated and no entries."""
    for dtype in (torch.float32, torch.float64, torch.int64):
        for entries in (lambda r: [r, r + 1], lambda r: [3 * r], lambda r: [2, 2, r], lambda r: [] if r == 0 else [r],
                        lambda r: []):
            def tensor(r):
                places = entries(r)
                values = torch.arange(len(places) * 2).reshape(-1, 2).to(dtype) + r
                return torch.sparse_coo_tensor(torch.tensor([places], dtype=torch.int64), values, (13, 2))

            mine = tensor(rank)
            dist.all_reduce(mine)
            want = sum(tensor(r).to_dense() for r in range(world))
            assert mine.is_sparse and mine.shape == (13, 2)
            assert torch.equal(mine.to_dense(), want), (dtype, mine.to_dense(), want)
            later = tensor(rank)
            dist.all_reduce(later, async_op=True).wait()
            assert torch.equal(later.to_dense(), want)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [embedding_gradient, sparse_sums], ids=lambda job: job.__name__)
def test_sparse(pool, job):
    pool.run(job)
