"""mpirun over two hosts that are network namespaces with a /dev/shm of their own: rank 0 finds the address that leads
to the others, and MPI carries what leaves a host."""

import os
import shlex
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))

import launching  # noqa: E402
import pytest  # noqa: E402
import ranks  # noqa: E402
from mpi_launchers import LAUNCHERS, VARIABLES  # noqa: E402
from namespaces import cluster, needs_namespaces  # noqa: E402

pytestmark = [
    needs_namespaces,
    pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's use of MPI: TEST_BACKEND is set"),
]

SCRIPT = """
import os, pathlib, socket, sys
import torch, torch.distributed as dist, torch_taco
dist.init_process_group("taco", init_method="taco://")
data = torch.arange(300_000.0) + dist.get_rank()
dist.all_reduce(data)
assert torch.equal(data, 2 * torch.arange(300_000.0) + 1)
report = pathlib.Path(sys.argv[1], f"rank{dist.get_rank()}")
report.write_text("\\n".join([socket.gethostname(), os.environ["MASTER_ADDR"], torch_taco.describe()]))
dist.destroy_process_group()
"""

# launcher -> its options for an `ssh` of ours, and for the two hosts.
OPTIONS = {
    "openmpi": ("--bind-to none --mca plm_rsh_agent {agent} -H 10.77.0.1:1,10.77.0.2:1", "mpi"),
    "mpich": ("-launcher ssh -launcher-exec {agent} -hosts 10.77.0.1,10.77.0.2 -ppn 1", "tcp"),
}


def make_agent(made, path):
    """Instead of ssh: `agent [options] host command` runs the command in the host's namespaces."""
    cases = "\n".join(f'{node.address}) exec {shlex.join(node.from_other_node("sh", "-c"))} "$*" ;;'
                      for node in made.nodes)
    path.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                    f'case "$host" in\n{cases}\nesac\necho "there is no host $host" >&2; exit 1\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("launcher", [one for one in LAUNCHERS if one.name in OPTIONS], ids=str)
def test_two_hosts(launcher, tmp_path):
    if not launcher.program:
        pytest.skip(f"there is no {launcher.name}: {launcher.missing}")
    options, transport = OPTIONS[launcher.name]
    script, agent, reports = tmp_path / "script.py", tmp_path / "agent", tmp_path / "reports"
    script.write_text(SCRIPT)
    reports.mkdir()
    # OpenMPI hands on to the other host what begins with OMPI_ and what it is told to; MPICH hands on everything.
    variables = {**VARIABLES, "OMPI_MCA_mca_base_env_list": "TACO_TRANSPORT;PYTHONPATH;OMP_NUM_THREADS",
                 "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TACO_TRANSPORT": transport}
    with cluster.Cluster(2) as made:
        make_agent(made, agent)
        command = [launcher.program, *shlex.split(options.format(agent=agent)), "-np", "2", sys.executable, str(script),
                   str(reports)]
        done = subprocess.run(made[0].inside(*command), env=launching.environment(**variables),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        host, master, links = (reports / f"rank{rank}").read_text().split("\n", 2)
        assert host == f"taco-node{rank}"
        assert master == "10.77.0.1"
        assert f"all ranks: {transport}, 2 ranks" in links
