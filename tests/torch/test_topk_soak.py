"""200 steps of DDP with compressed gradients in which everything happens: accumulation under no_sync, overflows,
frozen parameters, DDP made anew, saving and loading. Replicas stay equal, memory stays flat."""

import contextlib
import dataclasses
import gc
import hashlib
import io
import os
import random

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import compressed
import ranks

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's hook: TEST_BACKEND is set")

STEPS, PHASES = 200, 8
CLIP_NORM = 1.0
WIDTH = 96  # 143,000 parameters, 0.6 MB
LARGEST_GROWTH_BYTES = 24 << 20  # a residual that leaked in each step would be 100 MB
OPTIONS = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True},
           {"find_unused_parameters": True, "gradient_as_bucket_view": True}, {"find_unused_parameters": True}]


@dataclasses.dataclass
class Step:
    accumulate: int
    overflows: int  # rank, or -1
    frozen: int  # layer, or -1
    saves: bool


def plan(world):
    """The same on every rank: for each phase DDP's options and its steps."""
    chance = random.Random(5)
    phases = []
    for phase in range(PHASES):
        options = {**OPTIONS[phase % len(OPTIONS)], "bucket_cap_mb": chance.choice((0.05, 0.2, 25))}
        steps = []
        for number in range(STEPS // PHASES):
            may_freeze = options.get("find_unused_parameters") and number > 8
            steps.append(Step(1 if options.get("static_graph") else chance.choice((1, 1, 2, 3)),
                              chance.randrange(world) if chance.random() < 0.1 else -1,
                              chance.randrange(4) if may_freeze and chance.random() < 0.7 else -1,
                              number == 15 and phase % 3 == 1))
        phases.append((options, steps))
    return phases


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = (WIDTH, 5 * WIDTH + 1, WIDTH, 5 * WIDTH, 7)
        self.layers = torch.nn.ModuleList(map(torch.nn.Linear, sizes[:-1], sizes[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Training:
    def __init__(self):
        import torch_taco

        self.make = lambda: torch_taco.TopkState(ratio=0.01, fp16=True, momentum=0.5, clip_norm=CLIP_NORM,
                                                 warmup_steps=12)
        self.hook = torch_taco.topk_hook
        torch.manual_seed(0)
        self.model = Model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=6)
        self.state, self.ddp = self.make(), None
        self.target = torch.randn(WIDTH, 7, generator=torch.Generator().manual_seed(1)) / 8

    def wrap(self, options):
        """DDP anew, which takes over what has not been sent."""
        saved, self.state, self.ddp = self.state.state_dict(), self.make(), None
        self.state.load_state_dict(saved)
        self.model.requires_grad_()  # what is frozen while DDP is made is none of its business ever after
        self.ddp = DistributedDataParallel(self.model, **options)
        self.ddp.register_comm_hook(self.state, self.hook)

    def save_and_load(self, options):
        """As a new process would: nothing of the old objects is used but the bytes."""
        file = io.BytesIO()
        torch.save([part.state_dict() for part in (self.model, self.optimizer, self.scaler, self.state)], file)
        self.__init__()
        parts = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
        for part, saved in zip((self.model, self.optimizer, self.scaler, self.state), parts, strict=True):
            part.load_state_dict(saved)
        self.wrap(options)

    def step(self, number, step, rank):
        for layer, frozen in enumerate(self.model.layers):
            for parameter in frozen.parameters():
                parameter.requires_grad_(layer != step.frozen)
        self.optimizer.zero_grad()
        for part in range(step.accumulate):
            inputs = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1000 * number + 10 * part + rank))
            with contextlib.nullcontext() if part == step.accumulate - 1 else self.ddp.no_sync():
                loss = (self.ddp(inputs) - inputs @ self.target).square().mean()
                if rank == step.overflows and part == 0:
                    loss = loss * float("inf")
                self.scaler.scale(loss).backward()
        if step.frozen >= 0:
            for parameter in self.model.layers[step.frozen].parameters():
                parameter.grad = None
        old = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.state.rescale(self.scaler.get_scale() / old)
        self.state.clip_norm = CLIP_NORM * self.scaler.get_scale()
        return loss.item()


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def digest(model):
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def soak(rank, world):
    import torch_taco

    training, number, losses, memory, held, digests = Training(), 0, [], [], [], []
    for options, steps in plan(world):
        training.wrap(options)
        for step in steps:
            if step.saves:
                training.save_and_load(options)
            losses.append(training.step(number, step, rank))
            number += 1
        digests.append(digest(training.model))
        gc.collect()
        memory.append(resident_bytes())
        held.append(torch_taco.residual_stats())
    parameters = sum(parameter.numel() for parameter in training.model.parameters())
    everyones = [None] * world
    dist.all_gather_object(everyones, digests)
    return {"losses": losses, "memory": memory, "held": held, "parameters": parameters, "digests": everyones,
            "finite": all(parameter.isfinite().all().item() for parameter in training.model.parameters())}


@pytest.mark.parametrize("layout", [compressed.TWO_D], ids=str)
def test_soak(layout):
    phases = plan(layout.world)
    everything = [step for _, steps in phases for step in steps]
    assert len(everything) == STEPS
    for happens in (lambda step: step.accumulate > 1, lambda step: step.overflows >= 0, lambda step: step.frozen >= 0,
                    lambda step: step.saves):
        assert sum(map(happens, everything)) >= 2
    for outcome in ranks.run(soak, layout.world, env=layout.env, timeout=240):
        found = outcome.value
        assert all(digests == found["digests"][0] for digests in found["digests"]), "the replicas differ"
        assert len(set(found["digests"][0])) == PHASES and found["finite"]
        finite = [loss for loss in found["losses"] if abs(loss) < float("inf")]
        assert sum(finite[-20:]) < 0.5 * sum(finite[:20])
        for count, held_bytes, _ in found["held"]:
            # Residual and momentum, float32, of this rank's half of every bucket: never more, never the old buckets'.
            assert abs(held_bytes - 4 * found["parameters"]) <= 8 * count
        assert sum(norm > 0 for _, _, norm in found["held"]) >= PHASES // 2  # 0 after an overflow
        assert max(found["memory"][2:]) - found["memory"][1] < LARGEST_GROWTH_BYTES, found["memory"]
