"""Two nodes as the TI platform makes them, each with exactly its variables: `taco run train.py` on both is all that is
typed. The nodes are network namespaces."""

import os
import re
import sys

import pytest

import launching
import ranks
from namespaces import cluster, needs_namespaces

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set")


PORT = 23456


def variables(node, nodes=2, per_node=2):
    """As in the platform's guide."""
    names = ",".join(f"10.77.0.{index + 1}:{per_node}" for index in range(nodes))
    return {"NODE_LIST": names, "INDEX": node, "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": PORT, "WORLD_SIZE": nodes,
            "RANK": node, "GPU_NUM": nodes * per_node, "GPU_NUM_PER_NODE": per_node, "NCCL_SOCKET_IFNAME": "eth0",
            "GLOO_SOCKET_IFNAME": "eth0"}


# No name server is there: torch asks for the name of each peer, and would wait for the answer.
WITHOUT_DNS = "mount --bind /dev/null /etc/resolv.conf"


def on(node, *command, first="true", errors=None, given=None):
    """The command line for one node; the variables are set inside. first: a shell command before it."""
    clean = launching.environment(**(variables(node.index) if given is None else given))
    unset = [f"-u{name}" for name in os.environ if name not in clean]
    words = ["env", *unset, *(f"{name}={value}" for name, value in clean.items()), *map(str, command)]
    redirected = f"2>>{errors}" if errors else ""
    return ["sh", "-c", f'{WITHOUT_DNS}; {first}; exec "$@" {redirected}', "sh", *words]


@needs_namespaces
def test_ddp_with_a_master_that_comes_late(tmp_path):
    """The worker's node waits and says so, which it does after 5 s; only then the master's comes. The worker joins,
    and the loss is the one of 4 ranks."""
    command = [launching.BIN / "taco", "run", launching.TRAIN, "--steps", launching.STEPS]
    said = tmp_path / "stderr"
    said.touch()

    def command_of(node):
        if node.index == 0:
            return on(node, *command, first=f"until grep -q 'taco run on' {said}; do sleep 0.1; done")
        return on(node, *command, errors=said)

    with cluster.Cluster(2) as made:
        outputs = made.run(command_of, timeout=240)
    launching.check_training(outputs[0], 4)
    assert re.search(r"^taco run on taco-node1: .*10\.77\.0\.1.*23456", said.read_text(), re.MULTILINE), said.read_text()


# Ends with an error on the process that counts nodes as ranks, before anything is computed.
BARE = """
import torch.distributed as dist
try:
    dist.init_process_group("taco", {method})
except ValueError as error:
    print("REFUSED", error)
"""


@needs_namespaces
def test_without_a_launcher_a_node_is_told_what_it_is(tmp_path):
    """`python train.py` on both nodes would train with one process a node: env:// and taco:// both refuse."""
    script = tmp_path / "bare.py"
    script.write_text(BARE.format(method="") + BARE.format(method='init_method="taco://"'))
    with cluster.Cluster(2) as made:
        outputs = made.run(lambda node: on(node, sys.executable, script), timeout=120)
    for index, output in enumerate(outputs):
        refused = re.findall(r"^REFUSED (.*)$", output, re.MULTILINE)
        assert len(refused) == 2, output
        for text in refused:
            assert f"node {index} of 2" in text and "taco run" in text


# Stands for mpirun, which would start processes on both hosts by ssh.
MPIRUN = """#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit
echo "MPIRUN $(hostname) $@"
exit 3
"""


@needs_namespaces
def test_mpi_mode_runs_mpirun_on_the_first_host_only(tmp_path):
    """Both instances run the command; both end with mpirun's exit code."""
    (tmp_path / "mpirun").write_text(MPIRUN)
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "train.py").touch()
    given = {"NODE_IP_SLOT_LIST": "10.77.0.1:2,10.77.0.2:2", "GPU_NUM": 4, "GPU_NUM_PER_NODE": 2}
    shell = f'PATH={tmp_path}:$PATH; taco run {tmp_path}/train.py; echo "EXIT $?"'
    with cluster.Cluster(2) as made:
        outputs = made.run(lambda node: on(node, "sh", "-c", shell, given=given), timeout=120)
    assert re.findall(r"^EXIT (.*)$", "\n".join(outputs), re.MULTILINE) == ["3", "3"], outputs
    assert re.search(r"^MPIRUN taco-node0 .*-np 4 -H 10\.77\.0\.1:2,10\.77\.0\.2:2 .*train\.py$", outputs[0], re.MULTILINE)
    assert "MPIRUN" not in outputs[1] and "10.77.0.1 starts the job, this host waits for its end" in outputs[1]
