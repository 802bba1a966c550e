"""B15 (pytorch PR#43307): a hook that all-reduces a bucket and divides in .then trained something else than DDP."""

import pytest
import torch.distributed as dist

import models
import ranks


def mean_hook(group, bucket):
    """What DDP does without a hook, by hand."""
    group = group or dist.group.WORLD
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0].div_(group.size()))


def hook_against_plain(rank, world, bucket_mb, accumulate, as_view):
    options = dict(bucket_cap_mb=bucket_mb, accumulate=accumulate, gradient_as_bucket_view=as_view)
    losses, parameters = models.train(rank, hook=mean_hook, **options)
    plain_losses, plain_parameters = models.train(rank, **options)
    # DDP divides before it adds, the hook afterwards: the same bits unless the divisor is 3.
    exact = world in (2, 4)
    assert losses == (plain_losses if exact else pytest.approx(plain_losses, rel=1e-6))
    for one, other in zip(parameters, plain_parameters, strict=True):
        assert one.equal(other) if exact else one.allclose(other, rtol=1e-5, atol=1e-7)
    assert models.equal_across_ranks(parameters)


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
@pytest.mark.parametrize("as_view", [False, True], ids=["copied", "view"])
@pytest.mark.parametrize("accumulate", [1, 3], ids=["plain", "no_sync"])
@pytest.mark.parametrize("bucket_mb", [25, 0.001], ids=["one_bucket", "many_buckets"])
def test_hook_equals_plain(pool, bucket_mb, accumulate, as_view):
    pool.run(hook_against_plain, bucket_mb, accumulate, as_view)
