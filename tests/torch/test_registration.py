"""backend="taco" by name alone: no import of ours, in every way that torch makes groups."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import operations
import ranks

needs_taco = pytest.mark.skipif(not ranks.IS_TACO, reason="tests the registration of taco: TEST_BACKEND is set")


def run_python(*arguments, **environment):
    """A fresh interpreter, as a user starts one."""
    env = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    env.update(OMP_NUM_THREADS="1", **environment)
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Each rank into a file of its own: two processes that print into one pipe interleave.
SCRIPT = """
    import os, sys, torch, torch.distributed as dist
    assert "torch_taco" not in sys.modules, "import torch loaded the package"
    dist.init_process_group(backend="taco")
    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor)
    with open(sys.argv[1] + os.environ["RANK"], "w") as file:
        print(tensor.item(), dist.get_backend(), file=file)
    dist.destroy_process_group()
"""


@needs_taco
def test_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run_python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), f"{tmp_path}/rank")
    for rank in range(2):
        assert (tmp_path / f"rank{rank}").read_text() == "3.0 taco\n"


@needs_taco
def test_multiprocessing_spawn(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(f"""
        import os, torch, torch.distributed as dist, torch.multiprocessing as mp

        def work(rank, path):
            dist.init_process_group("taco", init_method="file://" + path, rank=rank, world_size=2)
            tensor = torch.tensor([rank + 1.0])
            dist.all_reduce(tensor)
            assert tensor.item() == 3.0 and dist.get_backend() == "taco"
            dist.destroy_process_group()

        if __name__ == "__main__":
            mp.spawn(work, args=({str(tmp_path / "store")!r},), nprocs=2)
            print("both ended")
    """))
    assert "both ended" in run_python(str(script))


def default_group(rank, world, backend, on_cpu):
    dist.init_process_group(backend=backend)
    if ranks.IS_TACO and backend in ("taco", "TACO"):
        assert dist.get_backend() == "taco"
    assert dist.get_backend_config() == backend.lower() or backend in ("taco", "TACO")
    found = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert on_cpu in type(found).__name__.lower(), found
    operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (5,)))
    group = dist.new_group([0, 1])
    if rank < 2:
        operations.OPERATIONS["all_reduce"].run(operations.Case(rank, 2, (5,), group=group))
    dist.barrier()
    dist.destroy_process_group()


@needs_taco
@pytest.mark.parametrize("backend, on_cpu", [("taco", "taco"), ("TACO", "taco"), ("cpu:taco", "taco"),
                                             ("cpu:gloo,cuda:taco", "gloo"), ("cpu:taco,cuda:taco", "taco"),
                                             ("cpu:taco,cuda:gloo", "taco")])
def test_backend_strings(backend, on_cpu):
    ranks.run(default_group, 3, backend, on_cpu, init=False)


def again(rank, world):
    """Made, destroyed, made again, as tests and notebooks do; each time on keys of its own, which torch's
    agent store does not see to."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    for attempt in range(3):
        dist.init_process_group(ranks.BACKEND, store=dist.PrefixStore(str(attempt), store), rank=rank,
                                world_size=world)
        operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (5,)))
        dist.barrier()
        dist.destroy_process_group()


def test_init_again():
    ranks.run(again, 3, init=False)


def groups(rank, world):
    everyone = dist.new_group(backend=ranks.BACKEND)
    assert dist.get_backend(everyone) == ranks.BACKEND
    beside = dist.new_group(backend="gloo")
    for group in (everyone, beside):
        operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (5,), group=group))
    mine, subgroups = dist.new_subgroups(2) if world % 2 == 0 else dist.new_subgroups(1)
    size = dist.get_world_size(mine)
    operations.OPERATIONS["all_gather"].run(operations.Case(dist.get_rank(mine), size, (5,), group=mine))
    assert len(subgroups) == world // size


def meshes(rank, world):
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("outer", "inner"))
    for name in ("outer", "inner"):
        group = mesh.get_group(name)
        assert dist.get_backend(group) == ranks.BACKEND
        case = operations.Case(dist.get_rank(group), dist.get_world_size(group), (5,), group=group)
        operations.OPERATIONS["all_reduce"].run(case)
    flat = mesh._flatten("both").get_group()
    operations.OPERATIONS["all_reduce"].run(operations.Case(dist.get_rank(flat), world, (5,), group=flat))


@pytest.mark.parametrize("layout", ranks.LAYOUTS, ids=str)
def test_groups(pool):
    pool.run(groups)


@pytest.mark.parametrize("layout", ranks.layouts(2, 4), ids=str)
def test_device_mesh(pool):
    pool.run(meshes)


def test_mesh_makes_the_default_group():
    def body(rank, world):
        init_device_mesh("cpu", (world,), backend_override={0: ranks.BACKEND})
        assert dist.is_initialized()
        dist.barrier()

    ranks.run(body, 2, init=False)


@needs_taco
def test_listed():
    assert dist.is_backend_available("taco")
    assert "taco" in dist.Backend.backend_list


def connections_to_the_store():
    """Sockets of this process that are connected to MASTER_PORT."""
    port = f"{int(os.environ['MASTER_PORT']):04X}"
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).read().splitlines()[1:]:
            fields = line.split()
            if fields[2].endswith(":" + port) and fields[3] == "01":
                inodes.add(fields[9])
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
             if os.path.islink(f"/proc/self/fd/{fd}")]
    return sum(1 for link in links if link.removeprefix("socket:[").removesuffix("]") in inodes)


def many_groups(rank, world):
    """Each connection makes torch ask for the name of the server's address: 5 s where no name server answers."""
    before = connections_to_the_store()
    made = [dist.new_group() for _ in range(6)]
    for group in made:
        operations.OPERATIONS["all_reduce"].run(operations.Case(rank, world, (5,), group=group))
    assert connections_to_the_store() <= before, "groups keep connections to the store"
    for group in made:
        dist.destroy_process_group(group)


@needs_taco
def test_groups_share_connections_to_the_store():
    ranks.run(many_groups, 3)
