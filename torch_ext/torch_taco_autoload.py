"""The entry point that makes backend="taco" and init_method="taco://" known to torch.distributed.

Called at the end of every `import torch`, so it does next to nothing: it registers two functions. The
package torch_taco and its shared library are loaded when the first "taco" group is made, and what
fails then is raised there, never in `import torch`. It is a module of its own because importing
torch_taco from within `import torch` would find torch half loaded.
"""


def register() -> None:
    """Registers the backend; any number of times is fine."""
    try:
        import torch.distributed as dist

        if not dist.is_available() or "TACO" in dist.Backend._plugins:
            return
        # One instance serves both devices, so that backend="taco" alone is enough.
        dist.Backend.register_backend(
            "taco", _create, extended_api=True, devices=["cpu", "cuda"]
        )
        dist.register_rendezvous_handler("taco", _rendezvous)
    except Exception as error:  # a future torch that changed: `import torch` must still work
        global _error
        _error = error


_error: Exception | None = None  # why register() failed; `import torch_taco` raises it


def _create(dist_options, backend_options):
    from torch_taco._group import create

    return create(dist_options, backend_options)


def _rendezvous(url, **options):
    from torch_taco._rendezvous import rendezvous

    yield from rendezvous(url, **options)
