"""What has not been sent, in checkpoints: resumed by the same ranks, by fewer, on other nodes, by another model."""

import gc
import warnings

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import compressed
import failing
import models
import ranks
from compressed import Training

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's hook: TEST_BACKEND is set")


def residuals_of(saved):
    return {(bucket["index"], tuple(bucket["shapes"])): bucket["residual"] for bucket in saved["buckets"]}


def resumes(rank, world, path):
    """What was not sent at the checkpoint is sent later: the books are right over both parts together."""
    first = Training(ratio=0.03, warmup_steps=4)
    first.run(range(5))
    saved = first.state.state_dict()
    torch.save(saved, f"{path}/{rank}")
    names = [name for name, _ in first.ddp.module.named_parameters()]
    given, out = ([accounts[parameter] for parameter in first.ddp.parameters()]
                  for accounts in (first.accounts.given, first.accounts.out))
    model = first.ddp.module.state_dict()
    del first
    gc.collect()

    loaded = torch.load(f"{path}/{rank}", weights_only=True)
    second = Training(ratio=0.03, warmup_steps=4)
    second.ddp.module.load_state_dict(model)
    second.state.load_state_dict(loaded)
    assert second.state.step == 5
    # Saved again before a step was made, it is the same.
    again = second.state.state_dict()
    assert again["step"] == 5 and residuals_of(again).keys() == residuals_of(saved).keys()
    assert all(torch.equal(one, residuals_of(saved)[key]) for key, one in residuals_of(again).items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second.run(range(5, 9))
    assert second.state.step == 9 and not second.state._loaded
    for name, parameter, one, other in zip(names, second.ddp.parameters(), given, out, strict=True):
        second.accounts.given[parameter] += one
        second.accounts.out[parameter] += other
    assert second.accounts.check() > 0
    assert models.equal_across_ranks(list(second.ddp.parameters()))
    return saved


@pytest.mark.parametrize("layout", compressed.LAYOUTS, ids=str)
def test_resume_in_the_same_world(layout, tmp_path):
    ranks.run(resumes, layout.world, str(tmp_path), env=layout.env)


def resumes_elsewhere(rank, world, path):
    saved = torch.load(f"{path}/0", weights_only=True)
    training = Training(ratio=0.03, warmup_steps=4)
    with pytest.warns(UserWarning, match="of 4 had not sent is dropped, since the group has 2 ranks"):
        training.state.load_state_dict(saved)
    assert training.state.step == 5 and not training.state.state_dict()["buckets"]
    training.run(range(5, 8))
    assert training.accounts.check() > 0 and models.equal_across_ranks(list(training.ddp.parameters()))


def other_grid(rank, world, path):
    """As many ranks, but other nodes, so that nothing of the saved fits: said, and trained on."""
    training = Training(ratio=0.03)
    training.state.load_state_dict(torch.load(f"{path}/{rank}", weights_only=True))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        training.run(range(5, 8))
    assert any("had not sent at the checkpoint is dropped" in str(one.message) for one in said), said
    assert training.accounts.check() > 0 and models.equal_across_ranks(list(training.ddp.parameters()))


def other_model(rank, world, path):
    import torch_taco

    state = torch_taco.TopkState(ratio=0.1)
    state.load_state_dict(torch.load(f"{path}/{rank}", weights_only=True))
    ddp = DistributedDataParallel(torch.nn.Linear(7, 7))
    ddp.register_comm_hook(state, torch_taco.topk_hook)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(4):
            ddp(models.batch(rank, step)).square().mean().backward()
    assert sum("this model has no bucket of the same parameters" in str(one.message) for one in said) == 1


def not_mine(rank, world, path):
    import torch_taco

    state = torch_taco.TopkState()
    saved = torch.load(f"{path}/{1 - rank if rank < 2 else 0}", weights_only=True)
    texts = [failing.failure(lambda: state.load_state_dict(bad), 5.0, ValueError)
             for bad in (saved, {}, None, {**saved, "version": 99})]
    assert "every rank must load its own" in texts[0] and all("no state of version 1" in text for text in texts[1:])


def test_resume_elsewhere(tmp_path):
    layout = compressed.TWO_D
    ranks.run(resumes, 4, str(tmp_path), env=layout.env)
    ranks.run(resumes_elsewhere, 2, str(tmp_path), env=compressed.FLAT.env)
    ranks.run(other_grid, 4, str(tmp_path), env=compressed.FLAT4.env)
    ranks.run(other_model, 4, str(tmp_path), env=layout.env)
    ranks.run(not_mine, 4, str(tmp_path), env=layout.env)
