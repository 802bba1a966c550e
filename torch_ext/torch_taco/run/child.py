"""python -m torch_taco.run.child [-m] script args: the script, in this process, with what torch reads set.

For processes that something else than torchrun has started (mpirun, srun), and for the tasks of a TensorFlow
cluster, whose parameter servers must end when the workers have.
"""

import os
import runpy
import sys

from torch_taco import _launch
from torch_taco._init import export
from torch_taco.run import roles


def main():
    is_module = sys.argv[1] == "-m"
    script = sys.argv[2 if is_module else 1:]
    launch = _launch.read(dict(os.environ)).as_process()
    export(launch)
    if not launch.wants_master_from_mpi and launch.world_size > 1:
        address, port, _ = launch.require_master()
        os.environ.setdefault("MASTER_ADDR", address)
        os.environ.setdefault("MASTER_PORT", str(port))
    with roles.part_of(os.environ.get("TACO_ROLE", "")):
        _run(script, is_module)


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
