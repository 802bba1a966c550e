"""TACO: a communication backend for torch.distributed.

`dist.init_process_group(backend="taco")` and `init_method="taco://"` work without importing this
package. What it adds are functions that torch.distributed has no place for.
"""

import importlib

import torch_taco_autoload as _autoload
from torch_taco._build_info import VERSION as __version__
from torch_taco._dump import dump, dump_on_signal
from torch_taco._group import (
    ResidualStats,
    Traffic,
    describe,
    exact,
    explain,
    monitored_barrier,
    residual_stats,
    settings_markdown,
    shared_empty,
    traffic,
)
from torch_taco._init import init

_autoload.register()
if _autoload._error is not None:
    raise ImportError(
        f"the backend could not be registered with torch.distributed: {_autoload._error}"
    ) from _autoload._error


def __getattr__(name: str):
    if name in ("launch", "ray"):  # modules that few scripts need; ray needs Ray
        return importlib.import_module(f"torch_taco.{name}")
    if name in ("TopkState", "topk_hook"):
        return getattr(importlib.import_module("torch_taco.topk"), name)
    # Loads the shared library, so only when asked for.
    if name == "Options":
        from torch_taco._group import extension

        return extension().ProcessGroupTaco.Options
    raise AttributeError(f"module 'torch_taco' has no attribute '{name}'")


__all__ = [
    "Options",
    "ResidualStats",
    "TopkState",
    "Traffic",
    "__version__",
    "describe",
    "dump",
    "dump_on_signal",
    "exact",
    "explain",
    "init",
    "launch",
    "monitored_barrier",
    "residual_stats",
    "settings_markdown",
    "shared_empty",
    "topk_hook",
    "traffic",
]
