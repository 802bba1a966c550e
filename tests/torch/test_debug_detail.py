"""TORCH_DISTRIBUTED_DEBUG=DETAIL puts torch's checking wrapper around the backend."""

import pytest
import torch
import torch.distributed as dist

import failing
import models
import operations
import ranks

# The wrapper of torch 2.11 does not pass these on: they fail with gloo too.
NOT_WRAPPED = {"all_gather_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced",
               "batch_isend_irecv"}


def detail(layout):
    return lambda rank: {**layout.env(rank), "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


def everything(rank, world):
    dist.set_debug_level_from_env()
    ranks.init_group()
    for name, operation in operations.OPERATIONS.items():
        if name in NOT_WRAPPED:
            continue
        for case in operations.sweep(operation, rank, world, (5,), [torch.float32, torch.int64]):
            operation.run(case)
    group = dist.new_group(list(range(world)))
    operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (5,), group=group))
    _, parameters = models.train(rank)
    assert models.equal_across_ranks(parameters)
    if ranks.IS_TACO:
        import torch_taco

        torch_taco.monitored_barrier()
        assert torch_taco.traffic().network_bytes >= 0
    dist.barrier()


def wrapper_finds_mismatch(rank, world):
    """The wrapper's own check of shapes runs on our backend and comes first."""
    dist.set_debug_level_from_env()
    ranks.init_group(timeout=10.0)
    text = failing.failure(lambda: dist.all_reduce(torch.ones(3 + (rank == world - 1))), 12.0)
    assert "mismatch" in text.lower(), text


@pytest.mark.parametrize("layout", ranks.SOME_LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [everything, wrapper_finds_mismatch], ids=lambda job: job.__name__)
def test_detail(layout, job):
    ranks.run(job, layout.world, env=detail(layout), init=False)
