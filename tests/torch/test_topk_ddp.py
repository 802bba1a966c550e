"""torch_taco.topk_hook in DDP: nothing is lost, replicas stay equal, and everything that DDP offers goes on working."""

import gc

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import compressed
import failing
import models
import ranks
from compressed import TINY_BUCKETS, Training

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's hook: TEST_BACKEND is set")

OPTIONS = [{}, TINY_BUCKETS, {"gradient_as_bucket_view": True}, {**TINY_BUCKETS, "gradient_as_bucket_view": True},
           {"accumulate": 4}, {**TINY_BUCKETS, "accumulate": 4, "gradient_as_bucket_view": True},
           {**TINY_BUCKETS, "find_unused_parameters": True}, {**TINY_BUCKETS, "static_graph": True}]


def hooked(**arguments):
    import torch_taco

    state = torch_taco.TopkState(**arguments)
    return {"hook": torch_taco.topk_hook, "state": state}


def ratio_1_is_dense(rank, world):
    """To the bit: with a power of two as divisor it does not matter whether it divides before or after."""
    for options in OPTIONS:
        losses, parameters = models.train(rank, **hooked(ratio=1), **options)
        plain_losses, plain_parameters = models.train(rank, **options)
        assert losses == plain_losses
        assert all(map(torch.equal, parameters, plain_parameters))


def nothing_is_lost(rank, world):
    """B10: over 6 steps, the rebuilding of buckets among them, sent + residual is the sum of all gradients."""
    import torch_taco

    for options in OPTIONS:
        options = dict(options)
        accumulate = options.pop("accumulate", 1)
        for extra in ({}, {"fp16": True}, {"warmup_steps": 4}):
            training = Training(accumulate=accumulate, options=options, ratio=0.05, **extra)
            training.run(range(6))
            assert training.state.step == 6, "what runs under no_sync does not count"
            assert training.accounts.check() > 0, "nothing was held back"
            assert models.equal_across_ranks(list(training.ddp.parameters()))
            assert torch_taco.residual_stats().count >= 1
            del training
            compressed.nothing_is_held()


def same_each_time(rank, world):
    """B05 with compression: one hash over ranks and runs, also with momentum and clipping."""
    for arguments in ({"ratio": 0.02}, {"ratio": 0.1, "fp16": True, "momentum": 0.9, "clip_norm": 0.05}):
        found = set()
        for _ in range(3):
            losses, parameters = models.train(rank, **hooked(**arguments), **TINY_BUCKETS)
            assert models.equal_across_ranks(parameters)
            found.add(b"".join(parameter.numpy().tobytes() for parameter in parameters))
        assert len(found) == 1


def momentum_is_the_optimizers(rank, world):
    """Dense, momentum in the hook is momentum in SGD, if no rebuilding of buckets makes it forget the first step's."""
    def train(hook_options, momentum):
        torch.manual_seed(7)
        ddp = DistributedDataParallel(models.ThreeLayers(), find_unused_parameters=True)
        if hook_options:
            ddp.register_comm_hook(hook_options["state"], hook_options["hook"])
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=momentum)
        for step in range(6):
            optimizer.zero_grad()
            ddp(models.batch(rank, step)).square().mean().backward()
            optimizer.step()
        return list(ddp.parameters())

    for one, other in zip(train(hooked(ratio=1, momentum=0.9), 0.0), train(None, 0.9), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def small_buckets_are_exact(rank, world):
    """min_bytes to the byte; and float64, which is never compressed."""
    import torch_taco

    size = 4 * sum(parameter.numel() for parameter in models.ThreeLayers().parameters())
    for min_bytes, held in ((size - 1, 1), (size, 1), (size + 1, 0)):
        compressed.nothing_is_held()
        kept = hooked(ratio=0.01, min_bytes=min_bytes)
        torch.manual_seed(7)
        ddp = DistributedDataParallel(models.ThreeLayers())
        ddp.register_comm_hook(kept["state"], kept["hook"])
        for step in range(3):
            ddp(models.batch(rank, step)).square().mean().backward()
        assert torch_taco.residual_stats().count == held, min_bytes
        del ddp
    for dtype, arguments in ((torch.float32, {"min_bytes": size + 1}), (torch.float64, {})):
        losses, parameters = models.train(rank, model=of_type(dtype), **hooked(ratio=0.01, **arguments))
        plain_losses, plain_parameters = models.train(rank, model=of_type(dtype))
        assert losses == plain_losses and all(map(torch.equal, parameters, plain_parameters)), dtype


class Typed(models.ThreeLayers):
    def forward(self, x):
        return super().forward(x.to(next(self.parameters()).dtype))


def of_type(dtype):
    torch.manual_seed(3)
    return Typed().to(dtype)


def half_precision(rank, world):
    for dtype in (torch.bfloat16, torch.float16):
        losses, parameters = models.train(rank, steps=12, model=of_type(dtype), **hooked(ratio=0.1), **TINY_BUCKETS)
        assert models.equal_across_ranks(parameters) and all(each.isfinite().all() for each in parameters)


class Branches(torch.nn.Module):
    """Of two branches each rank takes one, or all take the same."""

    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second = (torch.nn.Linear(7, 7) for _ in range(3))

    def forward(self, x, which):
        return (self.first if which == 0 else self.second)(torch.relu(self.stem(x)))


def unused_and_frozen(rank, world):
    import torch_taco

    torch.manual_seed(7)
    ddp = DistributedDataParallel(Branches(), find_unused_parameters=True, **TINY_BUCKETS)
    ddp.register_comm_hook(torch_taco.TopkState(ratio=0.1), torch_taco.topk_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for step in range(18):
        if step == 10:
            ddp.module.stem.weight.requires_grad_(False)  # frozen from now on
            frozen = ddp.module.stem.weight.detach().clone()
        which = (rank + step) % 2 if step % 3 else 0
        optimizer.zero_grad()
        ddp(models.batch(rank, step), which).square().mean().backward()
        if step >= 10:
            ddp.module.stem.weight.grad = None
        optimizer.step()
        assert models.equal_across_ranks(list(ddp.parameters())), step
    assert torch.equal(ddp.module.stem.weight, frozen)


def clips(rank, world):
    """clip_grad_norm_ of the averaged gradients: the same everywhere, since these are."""
    import torch_taco

    torch.manual_seed(7)
    ddp = DistributedDataParallel(models.ThreeLayers())
    ddp.register_comm_hook(torch_taco.TopkState(ratio=0.05, clip_norm=1.0), torch_taco.topk_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    norms = []
    for step in range(8):
        optimizer.zero_grad()
        (100 * ddp(models.batch(rank, step)).square().mean()).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.1))
        optimizer.step()
    assert models.equal_across_ranks(norms) and models.equal_across_ranks(list(ddp.parameters()))
    assert all(norm > 0 for norm in norms)


def scaler_overflows(rank, world):
    """The last rank's gradients overflow in steps 3 and 7: all ranks skip these, nobody keeps what was left over, and
    the new scale finds residuals in its units. Steps 0 and 1 are dense, and all of the last training."""
    import torch_taco

    for ratio, momentum in ((0.05, 0.0), (0.05, 0.9), (1.0, 0.9)):
        compressed.nothing_is_held()
        torch.manual_seed(7)
        state = torch_taco.TopkState(ratio=ratio, momentum=momentum)
        ddp = DistributedDataParallel(models.ThreeLayers())
        ddp.register_comm_hook(state, torch_taco.topk_hook)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        scales, held = [], []
        for step in range(10):
            optimizer.zero_grad()
            loss = ddp(models.batch(rank, step)).square().mean()
            if rank == world - 1 and step in (3, 7):
                loss = loss * float("inf")
            before = [parameter.detach().clone() for parameter in ddp.parameters()]
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            old = scaler.get_scale()
            scaler.update()
            state.rescale(scaler.get_scale() / old)
            moved = any(not torch.equal(one, other) for one, other in zip(before, ddp.parameters(), strict=True))
            assert moved is (step not in (3, 7)), (ratio, momentum, step)
            assert all(parameter.isfinite().all() for parameter in ddp.parameters()), (ratio, momentum, step)
            scales.append(old)
            held.append(torch_taco.residual_stats().norm)
        assert models.equal_across_ranks(list(ddp.parameters()))
        assert scales == [1024.0, 1024.0, 1024.0, 2048.0, 1024.0, 1024.0, 1024.0, 2048.0, 1024.0, 1024.0]
        if ratio < 1:
            assert held[3] == held[7] == 0.0 and held[2] > 0 and held[4] > 0
        del ddp


def rescales_and_resets(rank, world):
    import torch_taco

    kept = hooked(ratio=0.05, momentum=0.5)
    torch.manual_seed(7)
    ddp = DistributedDataParallel(models.ThreeLayers(), **TINY_BUCKETS)
    ddp.register_comm_hook(kept["state"], kept["hook"])
    mine = kept["state"]
    bystander = torch.ones(1000)  # of the same group, but not of this model
    compressed.backend().topk_all_reduce(bystander, 0.01).wait()
    for step in range(4):
        ddp(models.batch(rank, step)).square().mean().backward()
    before = mine.state_dict()["buckets"]
    others = compressed.backend().residual_of(bystander)[1]
    mine.rescale(0.25)
    after = mine.state_dict()["buckets"]
    assert len(before) == len(after) > 1
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one["residual"] * 0.25, other["residual"])
        assert torch.equal(one["momentum"] * 0.25, other["momentum"])
    mine.reset()
    assert all(not bucket["residual"].any() and not bucket["momentum"].any() for bucket in mine.state_dict()["buckets"])
    assert mine.step == 4
    assert torch.equal(compressed.backend().residual_of(bystander)[1], others)
    for bad in (float("nan"), float("inf"), "2", None):
        with pytest.raises(ValueError, match="factor is"):
            mine.rescale(bad)


def other_tensors_are_exact(rank, world):
    """Only this model's gradients: a large metric in the same group is not touched."""
    models.train(rank, **hooked(ratio=0.01))
    metric = torch.full((1 << 19,), 1.0 + rank)
    dist.all_reduce(metric)
    assert torch.equal(metric, torch.full((1 << 19,), world * (world + 1) / 2))


def in_one_set_of_ranks(rank, world):
    for job in (ratio_1_is_dense, same_each_time, momentum_is_the_optimizers, half_precision, unused_and_frozen, clips,
                scaler_overflows, rescales_and_resets, small_buckets_are_exact, other_tensors_are_exact):
        job(rank, world)
        gc.collect()


@pytest.mark.parametrize("layout", compressed.LAYOUTS, ids=str)
@pytest.mark.parametrize("job", [nothing_is_lost, in_one_set_of_ranks], ids=lambda job: job.__name__)
def test_ddp(layout, job):
    ranks.run(job, layout.world, env=layout.env, timeout=120)


def with_detail(rank, world):
    """torch's checking wrapper around the backend."""
    dist.set_debug_level_from_env()
    ranks.init_group()
    training = Training(ratio=0.05)
    training.run(range(4))
    assert training.accounts.check() > 0


def test_under_other_conditions():
    """Buckets in memory that the ranks of a node share, and torch's own checks."""
    layout = compressed.TWO_D
    ranks.run(nothing_is_lost, 4, env=lambda rank: {**layout.env(rank), "DDP_DISABLE_COMM_MEM": "0"}, timeout=120)
    ranks.run(with_detail, 4, init=False, env=lambda rank: {**layout.env(rank), "TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def test_on_one_node_it_is_ddp():
    ranks.run(one_node, 2)


def one_node(rank, world):
    losses, parameters = models.train(rank, **hooked(ratio=0.01))
    plain_losses, plain_parameters = models.train(rank)
    assert losses == plain_losses and all(map(torch.equal, parameters, plain_parameters))


# --- groups ---------------------------------------------------------------------------------------


def two_models_in_groups(rank, world):
    """Two models, each in a group of its own, step by step in turn: each trains as if it were alone."""
    def train(turns, trainings):
        for step in range(4):
            for which in turns:
                trainings[which].run([10 * which + step])

    groups = [dist.new_group(), dist.new_group()]
    together = [Training(group, ratio=0.05) for group in groups]
    train((0, 1), together)
    for which in (0, 1):
        alone = Training(groups[which], ratio=0.05)
        train((which,), {which: alone})
        assert all(map(torch.equal, alone.ddp.parameters(), together[which].ddp.parameters()))


def ratios_differ(rank, world):
    """An error on every rank that says what each wanted, not a hang."""
    training = Training(failing.group_of_all(10), ratio=0.1 if rank == 0 else 0.2)
    training.run([0, 1])  # dense
    return failing.failure(lambda: training.run([2]), 20.0)


def test_groups():
    ranks.run(two_models_in_groups, 2, env=compressed.FLAT.env)
    for outcome in ranks.run(ratios_differ, 2, env=compressed.FLAT.env):
        assert "topk_all_reduce" in outcome.value and "largest" in outcome.value, outcome.value
