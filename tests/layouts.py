"""Memory layouts a tensor may come in. A placement takes a tensor and returns (an equal tensor in that layout,
a check that the memory between and around its elements is as it was)."""

import torch

from operations import OPAQUE

_FILL = 0x5A


def _base(numel, dtype):
    raw = torch.full((numel * max(dtype.itemsize, 1),), 1 if dtype is torch.bool else _FILL, dtype=torch.uint8)
    return raw, raw.view(dtype)


def _placed(tensor, raw, view):
    if tensor.dtype in OPAQUE:
        view.view(torch.uint8).copy_(tensor.view(torch.uint8))
    else:
        view.copy_(tensor)
    mine = torch.zeros(raw.numel() // tensor.dtype.itemsize, dtype=torch.bool)
    mine.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    others = ~mine.repeat_interleave(tensor.dtype.itemsize)
    before = raw[others].clone()
    return view, lambda: torch.equal(raw[others], before)


def contiguous(tensor):
    return tensor, lambda: True


def strided(tensor):
    """Every second element of a larger buffer."""
    raw, base = _base(2 * tensor.numel() + 1, tensor.dtype)
    stride = [2 * step for step in torch.empty(tensor.shape).stride()]
    return _placed(tensor, raw, base.as_strided(tensor.shape, stride, 1))


def column(tensor):
    """The outer dimensions far apart, the inner one dense: rows of a wider matrix."""
    if tensor.dim() == 0:
        return strided(tensor)
    width = tensor.shape[-1] + 3
    rows = tensor.numel() // tensor.shape[-1] if tensor.shape[-1] else 0
    raw, base = _base(rows * width + 1, tensor.dtype)
    stride = [step // max(tensor.shape[-1], 1) * width for step in torch.empty(tensor.shape).stride()[:-1]] + [1]
    return _placed(tensor, raw, base.as_strided(tensor.shape, stride, 1))


def transposed(tensor):
    """Dense, with the dimensions in reverse order in memory."""
    raw, base = _base(tensor.numel(), tensor.dtype)
    view = base.reshape(tuple(reversed(tensor.shape)))
    return _placed(tensor, raw, view.permute(*reversed(range(tensor.dim()))) if tensor.dim() else view)


def channels_last(tensor):
    """Dense, 4-dimensional, the second dimension fastest."""
    n, c, h, w = tensor.shape
    raw, base = _base(tensor.numel(), tensor.dtype)
    return _placed(tensor, raw, base.reshape(n, h, w, c).permute(0, 3, 1, 2))


def shifted(tensor):
    """Contiguous, but neither the start nor the length is aligned to anything."""
    raw, base = _base(tensor.numel() + 4, tensor.dtype)
    return _placed(tensor, raw, base[3:3 + tensor.numel()].reshape(tensor.shape))


PLACEMENTS = {placement.__name__: placement for placement in (contiguous, strided, column, transposed, shifted)}
