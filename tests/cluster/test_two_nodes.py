"""Two nodes that are network namespaces: DDP over TCP between them, shared memory only inside each, and as many
bytes on the wire as docs/algorithms.md says."""

import json
import pathlib
import sys
import tempfile

import pytest

import ranks
from namespaces import cluster, needs_namespaces

SCRIPT = pathlib.Path(__file__).resolve().parent / "train_and_count.py"


pytestmark = needs_namespaces


def train(choices=("unset",), per_node=2, steps=4, hostnames=None):
    """choice of LIGHT_2D_ALLREDUCE -> the reports of all ranks, in order. One start serves all choices."""
    def torchrun(node):
        return [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--nproc-per-node={per_node}",
                f"--node-rank={node.index}", "--master-addr=10.77.0.1", "--master-port=29500",
                str(SCRIPT), ranks.BACKEND, str(steps), folder, *choices]

    # Inside a namespace there is no interface but its own: none of this test's names apply.
    clean = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder, cluster.Cluster(2, hostnames=hostnames) as made:
        made.run(torchrun, timeout=240, env=clean)
        of_rank = [json.loads((pathlib.Path(folder) / str(rank)).read_text()) for rank in range(2 * per_node)]
    return {choice: [reports[choice] for reports in of_rank] for choice in choices}


def check_training(reports):
    assert len({report["digest"] for report in reports}) == 1, "the replicas differ"
    assert all(report["sum"] == len(reports) * (len(reports) + 1) / 2 for report in reports)


def payload_of_each_node(reports, per_node=2):
    """Bytes that left a node during the counted steps, TCP/IP headers taken off (see perf/cluster)."""
    found = []
    for report in reports[::per_node]:
        count = cluster.Count(*report["after"]) - cluster.Count(*report["before"])
        found.append(count.payload)
    return found


needs_taco = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's links: TEST_BACKEND is set")


@pytest.fixture(scope="module")
def trained():
    return train(["unset", "1", "0"])


@needs_taco
@pytest.mark.parametrize("choice, factor", [("unset", 1.0), ("1", 1.0), ("0", 2.0)], ids=["unset", "2d", "flat"])
def test_bytes_between_the_nodes(trained, choice, factor):
    """N = 2 nodes of g = 2 ranks, S bytes of gradients: 2D sends 2 (N-1)/N S = S from each node, the flat
    exchange 2 g (N-1)/N S = 2 S."""
    reports = trained[choice]
    check_training(reports)
    size = reports[0]["gradient_bytes"] * reports[0]["steps"]
    for payload in payload_of_each_node(reports):
        assert payload == pytest.approx(factor * size, rel=0.03), (payload / size, reports[0]["describe"])
    for report in reports:
        shared, network = report["traffic"]
        assert (shared > 0) == (choice != "0"), report["traffic"]
        assert network > 0
        assert report["plan"].lower().startswith("2d" if choice != "0" else "flat"), report["plan"]


@needs_taco
def test_one_rank_a_node():
    """Nothing to gain from 2D: flat, S from each node."""
    reports = train(per_node=1)["unset"]
    check_training(reports)
    size = reports[0]["gradient_bytes"] * reports[0]["steps"]
    for payload in payload_of_each_node(reports, per_node=1):
        assert payload == pytest.approx(size, rel=0.03)


@needs_taco
def test_one_host_name_twice():
    """Topology is proven, not read from names: two nodes with one host name and private /dev/shm are two."""
    reports = train(hostnames={0: "same", 1: "same"}, steps=1)["unset"]
    check_training(reports)
    assert {report["host"] for report in reports} == {"same"}
    assert len({report["plan"] for report in reports}) == 1
    assert reports[0]["plan"].lower().startswith("2d"), reports[0]["describe"]


def test_the_cluster_itself():
    """The harness: nodes reach each other, see only their own /dev/shm, and are gone afterwards."""
    with cluster.Cluster(3) as made:
        assert made[0].call("hostname").strip() == "taco-node0"
        made[0].call("sh", "-c", "echo x > /dev/shm/mine")
        assert made[1].call("ls", "/dev/shm") == ""
        before = made[0].sent()
        made.run(lambda node: [sys.executable, "-c", PING, str(node.index), made[0].address], timeout=60)
        assert (made[0].sent() - before).payload == pytest.approx(2 * 1_000_000, rel=0.03)
        holders = [node._holder for node in made.nodes]
    assert all(holder.returncode is not None for holder in holders)


PING = """
import socket, sys, time
if sys.argv[1] == "0":
    server = socket.create_server((sys.argv[2], 5000))
    for _ in range(2):
        peer = server.accept()[0]
        peer.sendall(bytes(1000000))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)
else:
    deadline = time.monotonic() + 30
    while True:
        try:
            peer = socket.create_connection((sys.argv[2], 5000))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
    total = 0
    while data := peer.recv(1 << 16): total += len(data)
    assert total == 1000000
"""
