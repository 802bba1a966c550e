"""DDP with TopK-compressed gradients: torch_taco.TopkState and torch_taco.topk_hook.

    state = torch_taco.TopkState(ratio=0.01)
    model.register_comm_hook(state, torch_taco.topk_hook)

Only this model's gradients are compressed, whatever the environment says, and nothing else is. Each rank sends the
elements of largest magnitude and keeps the rest, the residual, for the next step. docs/topk.md is the guide. DGC: Lin
et al., Deep Gradient Compression, ICLR 2018 (arXiv 1712.01887).
"""

import math
import numbers
import warnings
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.utils.weak import TensorWeakRef

from torch_taco._group import _backend_of, exact, extension

COMPRESSED = (torch.float32, torch.float16, torch.bfloat16)
_VERSION = 1  # of a state_dict
# DDP makes its buckets anew after the first step, with static_graph after the second. What belongs to the old ones dies
# with them, so until then nothing is held back.
_DENSE_STEPS = 2


class _Saved(NamedTuple):
    """What a rank has not sent of one bucket."""

    kind: str  # "flat" or "2d": what the numbers are of
    residual: torch.Tensor
    momentum: torch.Tensor | None


class TopkState:
    """What topk_hook needs to know, and keeps from step to step. One for each DDP model.

    ratio         the part of the elements that is sent, above 0, up to 1 (dense)
    fp16          values travel as float16; what the rounding loses is sent later
    warmup_steps  steps until `ratio` is reached: the first quarter is dense, then the ratio falls exponentially
    momentum      DGC's momentum correction, in place of the optimizer's own momentum (give that one 0); 0: none
    clip_norm     DGC's local clipping: an upper bound for the norm of each parameter's averaged gradient; None: none
    group         the model's process group (None: the default group), which must be a taco group
    min_bytes     smaller buckets are dense and exact

    The first two steps are dense whatever `warmup_steps` says, since DDP makes its buckets anew after them.
    """

    def __init__(self, ratio=0.01, fp16=False, warmup_steps=0, momentum=0.0, clip_norm=None, group=None, min_bytes=0):
        self.ratio = _number("ratio", ratio, "above 0, up to 1", lambda value: 0 < value <= 1)
        self.fp16 = bool(fp16)
        self.warmup_steps = _count("warmup_steps", warmup_steps)
        self.momentum = _number("momentum", momentum, "from 0 to below 1", lambda value: 0 <= value < 1)
        self.clip_norm = clip_norm if clip_norm is None else _number(
            "clip_norm", clip_norm, "above 0, or None", lambda value: 0 < value < math.inf)
        self.min_bytes = _count("min_bytes", min_bytes)
        self.group = group
        self.step = 0  # synchronised backward passes, those before a checkpoint included
        self._steps_here = 0  # since this object was made
        self._buckets = {}  # DDP's number of it -> (the shapes in it, weak reference to its buffer)
        self._loaded = {}  # what load_state_dict brought and no bucket has taken up: (number, shapes) -> _Saved
        self._found = None
        if group is not None or dist.is_initialized():
            self._backend()

    def __getstate__(self):
        raise TypeError("a TopkState cannot be pickled or copied: it is bound to buffers of this process; save "
                        "state_dict() of every rank, and load it into a new one")

    def _backend(self):
        if self._found is None:
            try:
                self._found = _backend_of(self.group)
            except ValueError as error:
                raise ValueError(f"TopkState: {error}; make the group with backend='taco', or pass one as "
                                 "group=") from None
        return self._found

    def ratio_now(self):
        """The ratio of the step that comes next; 1 is dense.

        DGC (section 3.3) lets it fall exponentially over the first epochs: of E epochs, epoch e has
        ratio^((e + 1) / (E + 1)) in its authors' program. Here a step takes the place of an epoch, and the first
        quarter is dense (csrc/topk/warmup.h; the same as TACO_TOPK_WARMUP_STEPS).
        """
        if self._steps_here < _DENSE_STEPS:
            return 1.0
        return extension().topk_warmup_ratio(self.step, self.warmup_steps, self.ratio)

    def _advance(self):
        self.step += 1
        self._steps_here += 1
        if self._steps_here > _DENSE_STEPS and self._loaded:  # in the last step the buckets were final
            warnings.warn(f"TopkState: what {len(self._loaded)} bucket(s) had not sent at the checkpoint is dropped, "
                          "since this model has no bucket of the same parameters", stacklevel=2)
            self._loaded.clear()

    def _meet(self, bucket, buffer):
        """Remembers a bucket, and gives it what was loaded for it."""
        shapes = tuple(tuple(gradient.shape) for gradient in bucket.gradients())
        self._buckets[bucket.index()] = shapes, TensorWeakRef(buffer)
        # Not before the buckets are final: the first ones may have the same shapes in another order.
        saved = self._loaded.pop((bucket.index(), shapes), None) if self._steps_here >= _DENSE_STEPS else None
        if saved is not None:
            try:
                self._backend().set_residual(buffer, *saved)
            except ValueError as error:  # whether there is a residual changes nothing for other ranks
                warnings.warn(f"TopkState: what bucket {bucket.index()} had not sent at the checkpoint is dropped: "
                              f"{error}", stacklevel=2)

    def _alive(self):
        """(number, shapes, buffer) of every bucket that still exists."""
        found = ((index, shapes, buffer()) for index, (shapes, buffer) in sorted(self._buckets.items()))
        return [(index, shapes, buffer) for index, shapes, buffer in found if buffer is not None]

    def reset(self):
        """Forgets what has not been sent, and the momentum. The count of steps goes on."""
        self._loaded.clear()
        for _, _, buffer in self._alive():
            self._backend().reset_residuals(buffer)

    def rescale(self, factor):
        """Multiplies what has not been sent by `factor`, when gradients come in other units from now on.

        For a GradScaler whose scale went from `old` to `new` that is new / old; for a loss that every rank divides by
        something else now, likewise. Call it between two steps, on every rank.
        """
        factor = _number("factor", factor, "a finite number", math.isfinite)
        self._loaded = {key: _Saved(saved.kind, saved.residual * factor,
                                    None if saved.momentum is None else saved.momentum * factor)
                        for key, saved in self._loaded.items()}
        for _, _, buffer in self._alive():
            self._backend().scale_residuals(factor, buffer)

    def state_dict(self):
        """For a checkpoint: the count of steps, and what this rank has not sent. Every rank saves its own.

        It has one float32 for each element of the model's gradients (2D: for each of this rank's slice), twice that
        with momentum.
        """
        buckets = [{"index": index, "shapes": shapes, **saved._asdict()}
                   for (index, shapes), saved in self._loaded.items()]
        for index, shapes, buffer in self._alive():
            found = None if (index, shapes) in self._loaded else self._backend().residual_of(buffer)
            if found is not None:
                buckets.append({"index": index, "shapes": shapes, **_Saved(*found)._asdict()})
        return {"version": _VERSION, "step": self.step, "rank": dist.get_rank(self.group),
                "world_size": dist.get_world_size(self.group), "buckets": buckets}

    def load_state_dict(self, state):
        """Goes on where state_dict() was taken: the count of steps, and what was not sent.

        Call it before the first step. In a group of another size only the count of steps is taken over (from any
        rank's), and what was not sent is dropped, with a warning. ValueError where it is not this rank's, or no such
        state.
        """
        if not isinstance(state, dict) or state.get("version") != _VERSION:
            raise ValueError(f"TopkState.load_state_dict: this is no state of version {_VERSION} that "
                             "TopkState.state_dict() has made")
        rank, world = dist.get_rank(self.group), dist.get_world_size(self.group)
        if state["world_size"] == world and state["rank"] != rank:
            raise ValueError(f"TopkState.load_state_dict: this state is rank {state['rank']}'s, but this is rank "
                             f"{rank}; every rank must load its own")
        self.reset()
        self.step = state["step"]
        if state["world_size"] != world:
            warnings.warn(f"TopkState: what rank {state['rank']} of {state['world_size']} had not sent is dropped, "
                          f"since the group has {world} ranks now", stacklevel=2)
            return
        for bucket in state["buckets"]:
            shapes = tuple(map(tuple, bucket["shapes"]))
            self._loaded[bucket["index"], shapes] = _Saved(bucket["kind"], bucket["residual"], bucket["momentum"])


def clip(gradients, norm, ranks):
    """Local gradient clipping of DGC (section 3.2), in place, before anything is added to the residual.

    `norm` bounds the norm of a parameter's averaged gradient. A rank's part of the average is gradient / ranks, and
    ranks parts with independent noise add up to a norm sqrt(ranks) times one part's. So each part is scaled down to
    norm * ranks^-1/2 at most, that is, the gradient to norm * ranks^1/2. DGC's text speaks of the whole gradient; its
    norm is not known before the last bucket, so, as in the authors' program, each parameter is clipped by itself.
    """
    most = norm * math.sqrt(ranks)
    for gradient in gradients:
        # In float32, where no square of a float16 overflows; NaN and Inf stay what they are, or become NaN.
        length = torch.linalg.vector_norm(gradient, dtype=torch.float32)
        if not length <= most:
            gradient.mul_(most / length)


def topk_hook(state: TopkState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: averages a bucket over the group, as DDP does, but sends only the largest elements."""
    if not isinstance(state, TopkState):
        raise TypeError("topk_hook: the state must be a torch_taco.TopkState, but it is "
                        f"{type(state).__module__}.{type(state).__name__}")
    buffer = bucket.buffer()
    backend = state._backend()
    ranks = dist.get_world_size(state.group)
    if buffer.dtype in COMPRESSED and buffer.nbytes >= state.min_bytes:
        state._meet(bucket, buffer)
        if state.clip_norm is not None:
            clip(bucket.gradients(), state.clip_norm, ranks)
        work = backend.topk_all_reduce(buffer, state.ratio_now(), half_values=state.fp16, average=True,
                                       momentum=state.momentum)
    else:
        buffer.div_(ranks)
        with exact():
            work = dist.all_reduce(buffer, group=state.group, async_op=True)
    if bucket.is_last():
        state._advance()
    return work.get_future().then(lambda future: future.value()[0])


def _number(name, value, allowed, fits):
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not fits(value):
        raise ValueError(f"TopkState: {name} is {value!r}; it must be {allowed}")
    return float(value)


def _count(name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 0:
        raise ValueError(f"TopkState: {name} is {value!r}; it must be a whole number from 0")
    return int(value)
