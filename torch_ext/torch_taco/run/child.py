"""python -m torch_taco.run.child [-m] script args: the script, in this process, with what torch reads set.

For processes that something else than torchrun has started (mpirun, srun), and for the tasks of a TensorFlow
cluster, whose parameter servers must end when the workers have.
"""

import os
import runpy
import socket
import sys

from torch_taco import _launch
from torch_taco._init import export
from torch_taco.run import roles


def main():
    is_module = sys.argv[1] == "-m"
    script = sys.argv[2 if is_module else 1:]
    try:
        _prepare()
    except (ValueError, RuntimeError) as error:  # LaunchError, or MPI's
        print(f"taco run: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    with roles.part_of(os.environ.get("TACO_ROLE", "")):
        _run(script, is_module)


def _prepare():
    launch = _launch.read(dict(os.environ)).as_process()
    export(launch)
    if launch.world_size == 1 and launch.master_address is None:
        # env:// asks for a master even where there is nobody to meet.
        address, port = "127.0.0.1", None
    elif launch.wants_master_from_mpi:
        from torch_taco import _mpi

        address, port = _mpi.broadcast_master((launch.master_port or _free_port()) if launch.rank == 0 else None)
    else:
        address, port, _ = launch.require_master()
    os.environ.setdefault("MASTER_ADDR", address)
    os.environ.setdefault("MASTER_PORT", str(_free_port() if port is None else port))


def _free_port():
    """For the store that the script's rank 0 opens itself (env://), so only the number is agreed on."""
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


def _run(script, is_module):
    """As `python script.py` and `python -m module` do."""
    sys.argv = script
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(script[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
        runpy.run_path(script[0], run_name="__main__")


if __name__ == "__main__":
    main()
