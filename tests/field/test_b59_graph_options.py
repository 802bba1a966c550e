"""B59 (pytorch#97030): static_graph and find_unused_parameters ended otherwise than with gloo."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks

OPTIONS = {
    "plain": {}, "static_graph": {"static_graph": True}, "find_unused": {"find_unused_parameters": True},
    "both": {"static_graph": True, "find_unused_parameters": True},
    "view": {"static_graph": True, "gradient_as_bucket_view": True},
}
USES = ["all", "same_unused", "unused_by_rank", "unused_by_step", "twice"]


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Linear(5, 8)
        self.left = torch.nn.Linear(8, 3)
        self.right = torch.nn.Linear(8, 3)

    def forward(self, x, branches):
        stem = torch.tanh(self.stem(x))
        return sum(branch(stem) for branch in [getattr(self, name) for name in branches])


def branches(use, rank, step):
    return {
        "all": ["left", "right"], "same_unused": ["left"],
        "unused_by_rank": ["left"] if rank % 2 else ["right"],
        "unused_by_step": ["left"] if step % 2 else ["left", "right"], "twice": ["left", "left", "right"],
    }[use]


def outcome(rank, world, options, use, group):
    """Losses and parameters, or the kind of error and at which step."""
    torch.manual_seed(5)
    ddp = DistributedDataParallel(Branches(), process_group=group, bucket_cap_mb=0.0001, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(10 * step + rank))
        try:
            optimizer.zero_grad()
            loss = ddp(x, branches(use, rank, step)).square().mean()
            loss.backward()
            optimizer.step()
        except RuntimeError as error:
            return step, str(error).split("\n")[0].split(".")[0], []
        losses.append(loss.item())
    return 4, losses, [parameter.detach().tolist() for parameter in ddp.parameters()]


def beside_gloo(rank, world, name, uses):
    """Both backends in one set of ranks, each on a group of its own."""
    pairs = []
    for use in uses:
        gloo, mine = dist.new_group(backend="gloo"), dist.new_group()
        pairs.append((use, outcome(rank, world, OPTIONS[name], use, gloo),
                      outcome(rank, world, OPTIONS[name], use, mine)))
        dist.destroy_process_group(gloo)
        dist.destroy_process_group(mine)
    return pairs


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_same_outcome_as_gloo(layout, name):
    outcomes = ranks.run(beside_gloo, layout.world, name, USES, env=layout.env)
    for rank_outcome in outcomes:
        for use, (gloo_steps, gloo, gloo_parameters), (steps, mine, parameters) in rank_outcome.value:
            assert steps == gloo_steps, (use, gloo, mine)
            if steps < 4:
                assert mine == gloo, use
            else:
                assert mine == pytest.approx(gloo, rel=1e-6), use
                for one, other in zip(parameters, gloo_parameters, strict=True):
                    torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-5, atol=1e-6)
