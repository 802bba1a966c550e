"""Ray Train with TACO: TorchTrainer(..., torch_config=torch_taco.ray.TacoConfig())."""

import dataclasses

try:
    from ray.train.torch import TorchConfig
    from ray.train.torch.config import _TorchBackend
except ImportError as error:
    raise ImportError(
        f"torch_taco.ray needs Ray Train, which cannot be imported here ({error}); install it: "
        "pip install 'torch-taco[ray]'"
    ) from error


def _register():
    """In a worker, before its process group is made. The entry point has done it already, unless
    TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set there; an installation that is broken says so here."""
    import torch_taco  # noqa: F401


class _TacoBackend(_TorchBackend):
    def on_start(self, worker_group, backend_config):
        worker_group.execute(_register)
        super().on_start(worker_group, backend_config)


@dataclasses.dataclass
class TacoConfig(TorchConfig):
    """A TorchConfig whose workers communicate through TACO; init_method and timeout_s are as there."""

    backend: str | None = "taco"

    @property
    def backend_cls(self):
        return _TacoBackend
