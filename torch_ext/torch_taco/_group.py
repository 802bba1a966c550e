"""Making taco groups, and asking them things."""

import atexit
import contextlib
import functools
import os
import warnings
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from torch_taco import _session

# How long the interpreter's exit waits for operations that nobody waited for.
_PATIENCE_AT_EXIT = timedelta(seconds=30)


class Traffic(NamedTuple):
    """Bytes that this rank has sent in one group, since it was made."""

    shared_memory_bytes: int
    network_bytes: int


class ResidualStats(NamedTuple):
    """What TopK-compressed all-reduces of a group have not sent yet, on this rank."""

    count: int  # buffers
    bytes: int
    norm: float  # Euclidean, over all of them


@functools.cache
def extension():
    """The shared library, loaded at the first call; ImportError says why it cannot be."""
    from torch_taco import _build_info

    running = ".".join(torch.__version__.split(".")[:2])
    if running != _build_info.TORCH_VERSION:
        # Before loading it: another minor's symbols would fail with an unreadable error.
        raise ImportError(
            f"this installation of torch_taco was built for torch {_build_info.TORCH_VERSION}, "
            f"but torch {torch.__version__} is running; install torch-taco again for it: "
            "pip install --no-build-isolation --force-reinstall --no-deps <its source folder>"
        )
    from torch_taco import _C

    # After torch's own exit handlers were registered, so it runs before them: threads that run
    # Python callbacks must end while there still is an interpreter.
    atexit.register(_C.shutdown_all, _PATIENCE_AT_EXIT)
    return _C


def create(dist_options, backend_options):
    """Makes one rank's part of a group; called by torch.distributed."""
    group_class = extension().ProcessGroupTaco
    _refuse_nodes(dist_options)
    options = backend_options
    if options is None:
        options = group_class.Options()
    elif not isinstance(options, group_class.Options):
        raise TypeError(
            "the options of a taco group (pg_options) must be torch_taco.Options, but they are "
            f"{type(options).__module__}.{type(options).__name__}"
        )
    options._timeout = dist_options.timeout
    options.group_name = dist_options.group_id
    options.global_ranks_in_group = list(dist_options.global_ranks_in_group)
    store = dist_options.store
    if _session.is_needed():
        store = _session.agree(
            store, dist_options.group_rank, dist_options.group_size, dist_options.timeout
        )
    return group_class(
        store, dist_options.group_rank, dist_options.group_size, options
    )


def _refuse_nodes(dist_options):
    """ValueError where env:// has taken a node of several processes for a process.

    Some platforms count nodes in RANK and WORLD_SIZE. A script that was started there without a launcher would
    train with one process a node, and nobody would notice. What decides is the group's own rank and size: they are the
    node's, and the store is the one that MASTER_PORT names.
    """
    variables = os.environ
    if "LOCAL_RANK" in variables or not (variables.get("RANK") and variables.get("WORLD_SIZE")):
        return
    rank, size = str(dist_options.group_rank), str(dist_options.group_size)
    if (rank, size) != (variables["RANK"], variables["WORLD_SIZE"]):
        return
    store = dist_options.store
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if not isinstance(store, dist.TCPStore) or str(store.port) != variables.get("MASTER_PORT"):
        return
    from torch_taco import _launch

    try:
        launch = _launch.read(dict(variables))
    except _launch.LaunchError:
        return  # nothing certain is known
    if launch.level == "node":
        launch.as_process()


def _backend_of(group):
    """The taco backend inside a process group (default: the default group)."""
    if group is None:
        group = dist.group.WORLD
        if group is None:
            raise ValueError(
                "there is no default process group; call init_process_group first"
            )
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this rank is not a member of the group that was passed")
    found = set()
    for device in ("cpu", "cuda"):
        try:
            backend = group._get_backend(torch.device(device))
        except RuntimeError:  # the group has no backend for this device
            continue
        # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around every backend.
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, extension().ProcessGroupTaco):
            return backend
        found.add(backend.name())
    raise ValueError(
        f"the group has no taco backend, but {', '.join(sorted(found)) or 'none'}"
    )


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier that names the ranks that do not come.

    As torch.distributed.monitored_barrier, which up to torch 2.14 refuses every backend but gloo.
    All ranks that came raise a RuntimeError when the timeout (default: the group's) has passed and
    some rank has not come; with wait_all_ranks, every missing rank is in the first words of it.
    """
    if group is not None and group == dist.GroupMember.NON_GROUP_MEMBER:
        warnings.warn("monitored_barrier: this rank is not a member of the group", stacklevel=2)
        return
    if isinstance(timeout, (int, float)):
        timeout = timedelta(seconds=timeout)
    _backend_of(group).monitored_barrier(timeout, wait_all_ranks)


def shared_empty(*size, dtype=None, group=None):
    """An uninitialised CPU tensor in memory that all ranks of the group see.

    An all-reduce in which every rank passes such a tensor (or a part of one) copies nothing on the way: 1.4 to 2
    times as fast from some MB on. Collective: every rank of the group calls it, in the same order among the group's
    other operations, with as many bytes. Where the group's ranks do not all share memory it is an ordinary tensor.
    The memory is free again when all ranks have dropped their tensors. It counts against /dev/shm.

    size: as for torch.empty; dtype: torch's default dtype if None. TypeError, ValueError for bad arguments; a
    DistBackendError if another rank asks for another size, or does not come.
    """
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return _backend_of(group).shared_empty(shape.numel(), dtype).view(shape)


def explain(nbytes, dtype=torch.float32, group=None, op=dist.ReduceOp.SUM):
    """The plan of an all-reduce of `nbytes` bytes: algorithm, piece_bytes, why; it prints itself."""
    if nbytes < 0:
        raise ValueError(f"nbytes is {nbytes}; it must be 0 or more")
    return _backend_of(group).explain(nbytes, dtype, dist.ReduceOp(op))


def traffic(group=None):
    """What this rank has sent in the group so far."""
    return Traffic(*_backend_of(group).traffic())


def residual_stats(group=None):
    """What TopK compression holds back on this rank: how many buffers' residuals, their bytes, their norm."""
    return ResidualStats(**_backend_of(group).residual_stats())


@contextlib.contextmanager
def exact():
    """Inside `with torch_taco.exact():` this thread's all-reduces are exact, whatever LIGHT_TOPK_ALLREDUCE says.

    For metrics and other numbers that are not gradients. Every rank must do the same. It counts where the operation
    is called, also if it is waited for later, and works as a decorator, too.
    """
    before = extension().set_exact(True)
    try:
        yield
    finally:
        extension().set_exact(before)


def describe(group=None):
    """The grid of nodes and ranks, the links between them, and why they were chosen."""
    return _backend_of(group).describe()


def settings_markdown():
    """Every environment variable that TACO reads (the text of docs/settings.md)."""
    return extension().settings_markdown()
