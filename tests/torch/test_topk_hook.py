"""torch_taco.TopkState: what it takes and refuses, clipping, the ratio of each step. No ranks but this process."""

import math
import pickle

import pytest
import torch
import torch.distributed as dist

import ranks

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's hook: TEST_BACKEND is set")


def state(**arguments):
    from torch_taco import TopkState

    return TopkState(**arguments)


@pytest.mark.parametrize("name, values", [
    ("ratio", [0, -0.1, 1.5, math.nan, math.inf, "0.1", None, True]),
    ("warmup_steps", [-1, 1.5, "3", None, True]),
    ("momentum", [-0.1, 1, 2.0, math.nan, None]),
    ("clip_norm", [0, -1.0, math.inf, math.nan, "1"]),
    ("min_bytes", [-1, 0.5, None]),
])
def test_bad_arguments(name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"TopkState: {name} is .*must be"):
            state(**{name: value})


def test_good_arguments():
    made = state(ratio=1, warmup_steps=0, momentum=0, clip_norm=None, min_bytes=0)
    assert (made.ratio, made.fp16, made.momentum, made.clip_norm) == (1.0, False, 0.0, None)
    assert state(ratio=1e-9, fp16=True, momentum=0.999, clip_norm=1e-6).fp16 is True


def test_defaults_are_the_environments():
    import torch_taco

    cells = [[cell.strip(" `") for cell in line.split("|")] for line in torch_taco.settings_markdown().splitlines()]
    rows = {row[1]: row for row in cells if len(row) > 3}
    made = state()
    for name, value in (("LIGHT_TOPK_RATIO", made.ratio), ("LIGHT_TOPK_FP16", int(made.fp16)),
                        ("TACO_TOPK_WARMUP_STEPS", made.warmup_steps)):
        assert f"{value:g}" in rows[name][2:4], rows[name]
    assert (made.momentum, made.clip_norm, made.min_bytes) == (0.0, None, 0)


def test_it_cannot_be_pickled():
    with pytest.raises(TypeError, match="save state_dict"):
        pickle.dumps(state())


def test_other_states_are_refused():
    from torch_taco import topk_hook

    with pytest.raises(TypeError, match="must be a torch_taco.TopkState, but it is builtins.NoneType"):
        topk_hook(None, None)


def ratios(made, steps):
    found = []
    for _ in range(steps):
        found.append(made.ratio_now())
        made._advance()
    return found


def test_the_first_two_steps_are_dense():
    assert ratios(state(ratio=0.25), 4) == [1.0, 1.0, 0.25, 0.25]


def test_warm_up():
    """A quarter dense, then ratio^(1/7) ... ratio^(6/7), then the ratio."""
    found = ratios(state(ratio=1e-3, warmup_steps=8), 10)
    assert found[:2] == [1.0, 1.0] and found[8:] == [1e-3, 1e-3]
    assert found[2:8] == pytest.approx([1e-3 ** (n / 7) for n in range(1, 7)])
    assert all(later < earlier for earlier, later in zip(found[1:8], found[2:9]))


def clipped(tensors, norm, ranks_):
    from torch_taco.topk import clip

    clip(tensors, norm, ranks_)
    return tensors


def test_clipping_bounds_the_average():
    """4 ranks, bound 1: a rank's quarter may have the norm 1 / sqrt(4), so its gradient the norm 2."""
    [long, short] = clipped([torch.tensor([6.0, 8.0]), torch.tensor([[1.2], [1.6]])], 1.0, 4)
    assert long.tolist() == pytest.approx([1.2, 1.6])
    assert torch.equal(short, torch.tensor([[1.2], [1.6]])), "a norm of 2 is not above the bound"
    # 4 independent gradients of that norm: their average has a norm of about 1.
    generator = torch.Generator().manual_seed(0)
    parts = clipped([5 * torch.randn(100_000, generator=generator) for _ in range(4)], 1.0, 4)
    assert (sum(parts) / 4).norm().item() == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_clipping_of_what_is_not_finite(dtype):
    for bad in (math.nan, math.inf, -math.inf):
        [found] = clipped([torch.tensor([1.0, bad, 2.0], dtype=dtype)], 1.0, 1)
        assert not found.isfinite().all()
    # The sum of squares of a float16 is beyond its range.
    [found] = clipped([torch.full((1000,), 1000.0, dtype=dtype)], 1.0, 1)
    assert found.float().norm().item() == pytest.approx(1.0, rel=1e-2)
    [zeros] = clipped([torch.zeros(3, dtype=dtype)], 1.0, 1)
    assert torch.equal(zeros, torch.zeros(3, dtype=dtype))


def test_clipping_is_in_place_in_the_bucket():
    bucket = torch.arange(10.0)
    clipped([bucket[:4].view(2, 2), bucket[4:]], 1e-3, 1)
    assert bucket[:4].norm().item() == pytest.approx(1e-3) and bucket[4:].norm().item() == pytest.approx(1e-3)


def group_of_gloo(rank, world):
    from torch_taco import TopkState, residual_stats

    texts = []
    for ask in (lambda: TopkState(), lambda: TopkState(group=dist.new_group([0], backend="gloo")), residual_stats):
        try:
            ask()
        except ValueError as error:
            texts.append(str(error))
    return texts


def test_a_group_that_is_not_tacos():
    [outcome] = ranks.run(group_of_gloo, 1, backend="gloo")
    assert len(outcome.value) == 3
    for text in outcome.value:
        assert "the group has no taco backend, but gloo" in text
    assert "backend='taco'" in outcome.value[0]


def test_exact_gives_back_what_was():
    import torch_taco
    from torch_taco._group import extension

    def inside():
        before = extension().set_exact(True)
        extension().set_exact(before)
        return before

    assert not inside()
    with torch_taco.exact():
        assert inside()
        with torch_taco.exact():
            assert inside()
        assert inside()
    assert not inside()
    with pytest.raises(KeyError), torch_taco.exact():
        raise KeyError
    assert not inside()
    assert torch_taco.exact()(inside)() and not inside()
