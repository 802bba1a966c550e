"""torch_taco.init(): one line that works under every launcher."""

import os

import torch
import torch.distributed as dist


def init(backend="taco", **options):
    """Makes the default process group, whichever launcher started this process, and returns its Launch.

    Reads rank, world size and master from the environment (torch_taco.launch.describe() shows how), sets the
    variables that torch and other libraries read (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
    MASTER_PORT), calls init_process_group, and makes the GPU of this process the current one where there are any.
    options: further arguments of torch.distributed.init_process_group, such as timeout; rank and world_size win over
    the environment.
    """
    from torch_taco import _launch

    for name in ("init_method", "store"):
        if options.get(name) is not None:
            raise ValueError(f"taco: torch_taco.init() meets by init_method='taco://', so {name}={options[name]!r} has "
                             "no place in it; leave it out, or call torch.distributed.init_process_group yourself")
        options.pop(name, None)
    given = {name: str(options[name]) for name in ("rank", "world_size") if options.get(name, -1) not in (None, -1)}
    launch = _launch.read(dict(os.environ), arguments=given).as_process()
    dist.init_process_group(backend, init_method="taco://", **options)
    export(launch)
    gpus = torch.cuda.device_count()
    if gpus > 0 and launch.local_rank is not None:
        torch.cuda.set_device(launch.local_rank % gpus)  # ranks may share a GPU
    return launch


def export(launch):
    """Puts what is known of `launch` where torch and other libraries look for it."""
    known = {"RANK": launch.rank, "WORLD_SIZE": launch.world_size, "LOCAL_RANK": launch.local_rank,
             "LOCAL_WORLD_SIZE": launch.local_world_size}
    os.environ.update({name: str(value) for name, value in known.items() if value is not None})
