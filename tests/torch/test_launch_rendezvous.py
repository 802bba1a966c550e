"""init_method="taco://" and torch_taco.init(): processes meet, or are told at once what keeps them apart."""

import os
import re
import socket
import subprocess
import sys
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import failing
import launching
import ranks
import torch_taco

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set")

HOST = socket.gethostname()


def variables(rank=0, world=2, **more):
    """As a launcher of processes sets them, with a port of its own."""
    return {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world,
            "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "False", **more}


def only(chosen):
    """Makes os.environ what a fresh process with these variables would have."""
    clean = launching.environment(**chosen)
    os.environ.clear()
    os.environ.update(clean)


def meet(rank, world, chosen, timeout=30):
    only(chosen[rank])
    dist.init_process_group("taco", init_method="taco://", timeout=timedelta(seconds=timeout))
    tensor = torch.full((10,), rank + 1.0)
    dist.all_reduce(tensor)
    return dist.get_rank(), dist.get_world_size(), tensor[0].item()


def run(job, chosen, *args, **options):
    return ranks.run(job, len(chosen), chosen, *args, init=False, **options)


# --- they meet ------------------------------------------------------------------------------------


def test_alone_without_any_variable():
    [outcome] = run(meet, [{}])
    assert outcome.value == (0, 1, 1.0) and outcome.stderr == ""


def again(rank, world, chosen):
    """Several groups, one after the other, in one process and at one port."""
    values = []
    for _ in range(3):
        values.append(meet(rank, world, chosen))
        dist.destroy_process_group()
    return values


def test_again_in_the_same_processes():
    port = launching.free_port()
    outcomes = run(again, [variables(rank, MASTER_PORT=port) for rank in (0, 1)])
    assert [outcome.value for outcome in outcomes] == [[(rank, 2, 3.0)] * 3 for rank in (0, 1)]


def meet_elsewhere(rank, world, port):
    """The processes of mpirun on a TI node: RANK and WORLD_SIZE are the node's and must be ignored."""
    only({"RANK": 0, "WORLD_SIZE": 1, "GPU_NUM": 2, "GPU_NUM_PER_NODE": 2, "NODE_LIST": "localhost:2", "INDEX": 0,
          "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": world, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
          "OMPI_COMM_WORLD_LOCAL_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    launch = torch_taco.init(timeout=timedelta(seconds=30))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return launch.row, tensor.item(), dist.get_rank(), [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]


def test_init_ignores_what_the_platform_left_over():
    outcomes = ranks.run(meet_elsewhere, 2, launching.free_port(), init=False)
    assert [outcome.value for outcome in outcomes] == [("openmpi", 2.0, rank, [str(rank), "2", str(rank)])
                                                       for rank in (0, 1)]


def meet_explicitly(rank, world, port):
    """Arguments of init_process_group are better than variables."""
    only({"RANK": 7, "WORLD_SIZE": 9, "LOCAL_RANK": 7})
    dist.init_process_group("taco", init_method=f"taco://127.0.0.1:{port}", rank=rank, world_size=world)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return dist.get_rank(), tensor.item()


def test_arguments_win():
    outcomes = ranks.run(meet_explicitly, 2, launching.free_port(), init=False)
    assert [outcome.value for outcome in outcomes] == [(0, 2.0), (1, 2.0)]


def init_explicitly(rank, world, port):
    """The same of torch_taco.init()."""
    only({"RANK": 7, "WORLD_SIZE": 9, "LOCAL_RANK": 7, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    refusal = failing.failure(lambda: torch_taco.init(init_method="env://"), 1.0, ValueError)
    launch = torch_taco.init(rank=rank, world_size=world)
    return launch.row, dist.get_rank(), dist.get_world_size(), os.environ["RANK"], refusal


def test_arguments_of_init_win():
    for rank, outcome in enumerate(ranks.run(init_explicitly, 2, launching.free_port(), init=False)):
        assert outcome.value[:4] == ("explicit", rank, 2, str(rank))
        assert "init_method='env://'" in outcome.value[4] and "leave it out" in outcome.value[4]


def listens_on(rank, world, port):
    """The addresses at which rank 0's store listens when the master is loopback: the port is free on all others."""
    only(variables(MASTER_PORT=port))
    import torch_taco._rendezvous as rendezvous
    store = rendezvous.open_store(port, 2, timedelta(seconds=30), "MASTER_PORT", "127.0.0.1")
    store.set("key", "value")
    # A store of this very process is shared.
    again = rendezvous.open_store(port, 2, timedelta(seconds=30), "MASTER_PORT", "127.0.0.1")
    with socket.create_server(("127.0.0.2", port)):
        return again.get("key")


def test_store_of_a_loopback_master_listens_on_loopback_only():
    [outcome] = ranks.run(listens_on, 1, launching.free_port(), init=False)
    assert outcome.value == b"value"


def meet_late(rank, world, chosen, folder):
    """Rank 0 comes only when rank 1 has said that it waits for it, which it does after 5 s."""
    if rank == 0:
        deadline = time.monotonic() + 60
        while not (folder / "waits").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    else:
        import torch_taco._rendezvous as rendezvous
        say = rendezvous.say

        def note(launch, line):
            say(launch, line)
            (folder / "waits").touch()

        rendezvous.say = note
    return meet(rank, world, chosen, 90)


def test_master_comes_late(tmp_path):
    port = launching.free_port()
    started = time.monotonic()
    outcomes = run(meet_late, [variables(rank, MASTER_PORT=port) for rank in (0, 1)], tmp_path)
    assert [outcome.value for outcome in outcomes] == [(0, 2, 3.0), (1, 2, 3.0)]
    assert time.monotonic() - started >= 5
    assert re.match(rf"taco: rank 1 of 2 on {HOST}: .*127\.0\.0\.1.*{port}", outcomes[1].stderr), outcomes[1].stderr
    assert all("still waiting for other ranks" in line for line in outcomes[0].stderr.splitlines()), outcomes[0].stderr


# --- they do not ----------------------------------------------------------------------------------


def refused(rank, world, chosen, within=2.0, timeout=30):
    """The text of the error, which comes at once and is a ValueError."""
    only(chosen[rank])
    return failing.failure(lambda: dist.init_process_group("taco", init_method="taco://",
                                                           timeout=timedelta(seconds=timeout)), within, ValueError)


def test_one_rank_twice():
    """Three processes, two of them rank 1: all who have come are told, with both hosts."""
    port = launching.free_port()
    chosen = [variables(rank, 3, MASTER_PORT=port) for rank in (0, 1, 1)]
    outcomes = run(refused, chosen, 20.0)
    pids = set()
    for outcome in outcomes:
        assert re.search(r"rank 1 is there twice", outcome.value), outcome.value
        assert outcome.value.count(HOST) >= 2, outcome.value
        pids.add(tuple(sorted(re.findall(r"process (\d+)", outcome.value))))
    assert len(pids) == 1 and len(pids.pop()) == 2


def test_world_sizes_that_differ():
    port = launching.free_port()
    outcomes = run(refused, [variables(0, 2, MASTER_PORT=port), variables(1, 3, MASTER_PORT=port)], 20.0)
    for outcome in outcomes:
        assert "'2'" in outcome.value and "'3'" in outcome.value and outcome.value.count(HOST) >= 2, outcome.value


def test_rank_that_does_not_come():
    """Named when the time is over, as an error of the network's kind."""
    def job(rank, world, port):
        only(variables(rank, 3, MASTER_PORT=port))
        return failing.failure(lambda: dist.init_process_group("taco", init_method="taco://",
                                                               timeout=timedelta(seconds=3)), 8.0)
    outcomes = ranks.run(job, 2, launching.free_port(), init=False)
    for outcome in outcomes:
        assert re.match(r"taco: of 3 ranks, these did not come: 2;", outcome.value), outcome.value


def test_occupied_port():
    """The error names the port, the variable, and the process that has it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [outcome] = ranks.run(refused, 1, [variables(0, 2, MASTER_PORT=port)], init=False)
    assert str(port) in outcome.value and "MASTER_PORT" in outcome.value and str(os.getpid()) in outcome.value


def joins(rank, world, port, timeout):
    only(variables(1, MASTER_PORT=port))
    import torch_taco._rendezvous as rendezvous
    rendezvous.PROGRESS_SECONDS = 0.3
    return failing.failure(lambda: dist.init_process_group("taco", init_method="taco://",
                                                           timeout=timedelta(seconds=timeout)), timeout + 10.0)


def test_port_of_a_service_that_accepts_and_is_silent():
    """torch's handshake would wait for ever; lines say that it is waited for, and the error names the port."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        [outcome] = ranks.run(joins, 1, port, 2, init=False)
    assert outcome.value.startswith(
        f"taco: 127.0.0.1:{port} (MASTER_ADDR) answers, but not as rank 0's store"), outcome.value
    assert "choose another MASTER_PORT" in outcome.value
    assert f"connected to 127.0.0.1:{port} (MASTER_ADDR), still waiting for rank 0's store" in outcome.stderr


def slow_names(rank, world, port):
    """A name server that answers the second question only after long: the first answer must do."""
    only(variables(rank, MASTER_PORT=port, MASTER_ADDR="localhost"))
    import torch_taco._rendezvous as rendezvous

    def refuse(*_):
        raise ValueError("asked again")

    class Launch:
        def __getattr__(self, name):
            return refuse if name == "resolve" and rank else getattr(original, name)

    original, rendezvous._launch = rendezvous._launch, Launch()
    dist.init_process_group("taco", init_method="taco://", timeout=timedelta(seconds=30))
    return dist.get_rank()


def test_the_masters_name_is_resolved_once():
    outcomes = ranks.run(slow_names, 2, launching.free_port(), init=False)
    assert [outcome.value for outcome in outcomes] == [0, 1]


def warned(rank, world):
    """TEST-NET-1 is nobody's address."""
    only({})
    import torch_taco._rendezvous as rendezvous
    launch = torch_taco.launch.read({}, rank=0, world_size=2)
    for address in ("192.0.2.1", "127.0.0.1", "localhost", HOST):
        rendezvous._warn_of_foreign_master(launch, address, "MASTER_ADDR")


def test_master_that_is_another_host_than_rank_0():
    [outcome] = ranks.run(warned, 1, init=False)
    assert outcome.stderr.count("\n") == 1 and re.match(
        rf"taco: rank 0 of 2 on {HOST}: MASTER_ADDR 192\.0\.2\.1 is no address of this host \({HOST}, .*\), although "
        "this is rank 0; another process may have the same rank", outcome.stderr), outcome.stderr


@pytest.mark.parametrize("chosen, words", [
    (variables(MASTER_PORT=66660), ["MASTER_PORT", "66660", "65535"]),
    (variables(MASTER_ADDR="29500", MASTER_PORT="10.0.0.1"), ["MASTER_ADDR", "29500", "MASTER_PORT", "10.0.0.1"]),
    ({"RANK": 0, "WORLD_SIZE": 2, "GPU_NUM_PER_NODE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 23456},
     ["MASTER_ADDR", "127.0.0.1", "2 nodes"]),
    ({"WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "localhost", "MASTER_PORT": 29500}, ["RANK"]),
    ({"RANK": 1, "WORLD_SIZE": 2, "GPU_NUM_PER_NODE": 8, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": 23456},
     ["node 1 of 2", "taco run"]),
    ({"NODE_LIST": "a:2,b:2", "INDEX": 1, "GPU_NUM": 4, "GPU_NUM_PER_NODE": 2, "MASTER_ADDR": "10.0.0.1",
      "MASTER_PORT": 23456}, ["RANK and WORLD_SIZE are missing"]),
    ({"RANK": 0, "HEAD_ADDR": "head-0", "HEAD_PORT": 6379}, ["Ray"]),
    ({"NODE_IP_SLOT_LIST": "9.0.255.56:1,9.0.255.118:1", "GPU_NUM": 2}, ["taco run"]),
    (variables(2, MASTER_PORT=29500), ["RANK", "2", "WORLD_SIZE"]),
], ids=["port", "swapped", "loopback", "no-rank", "node", "lost", "ray", "mpi", "rank"])
def test_refused_at_once(chosen, words, monkeypatch):
    clean = launching.environment(**chosen)
    for name in set(os.environ) - set(clean):
        monkeypatch.delenv(name)
    for name, value in clean.items():
        monkeypatch.setenv(name, value)
    text = failing.failure(lambda: dist.init_process_group("taco", init_method="taco://",
                                                           timeout=timedelta(seconds=10)), 1.0, ValueError)
    for word in words:
        assert word in text, text
    assert not dist.is_initialized()


# --- what is there without our import -------------------------------------------------------------


def test_scheme_is_known_without_an_import():
    code = ("import sys, torch, torch.distributed as dist\n"
            "assert 'torch_taco' not in sys.modules\n"
            "dist.init_process_group('gloo', init_method='taco://')\n"
            "print(dist.get_rank(), dist.get_world_size(), dist.get_backend())\n")
    done = subprocess.run([sys.executable, "-c", code], env=launching.environment(), capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.stdout == "0 1 gloo\n", done.stderr


def test_describe():
    text = torch_taco.launch.describe({"RANK": "1", "WORLD_SIZE": "2", "GPU_NUM_PER_NODE": "8", "GPU_NUM": "16",
                                       "MASTER_ADDR": "10.35.110.11", "MASTER_PORT": "23456"})
    for word in ("ti-ddp", "node 1 of 2", "GPU_NUM_PER_NODE", "10.35.110.11"):
        assert word in text, text
    wrong = torch_taco.launch.describe({"RANK": "1", "LOCAL_RANK": "0"})
    assert wrong.startswith("the launch environment is wrong (E1)") and "WORLD_SIZE" in wrong
    assert [row[0] for row in torch_taco.launch.table()][-1] == "single"
    launch = torch_taco.launch.read({}, rank=3, world_size=8)
    assert (launch.row, launch.level, launch.rank, launch.world_size) == ("explicit", "process", 3, 8)
