"""torch_taco._launch, the C++ helper as Python sees it. What it decides is tested in C++, beside this file."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from torch_taco import _launch

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
            "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "[fd00::1]", "MASTER_PORT": "29500"}


def test_a_launch_has_the_fields_of_the_struct():
    launch = _launch.read(dict(TORCHRUN, GPU_NUM="8"))
    assert (launch.row, launch.level) == ("torchrun", "process")
    assert (launch.rank, launch.world_size, launch.local_rank, launch.local_world_size) == (5, 8, 1, 4)
    assert (launch.node_rank, launch.nodes, launch.processes_per_node) == (1, 2, None)
    assert (launch.master_address, launch.master_port) == ("fd00::1", 29500)
    assert (launch.role, launch.role_index, launch.head_address, launch.head_port) == ("", None, None, None)
    assert (launch.hosts, launch.warnings, launch.notes) == ([], [], [])
    assert ("rank", "5", "RANK") in launch.values
    assert [one[:2] for one in launch.ignored] == [("GPU_NUM", "8")]
    assert launch.has_several_nodes and not launch.wants_master_from_mpi
    assert launch.require_master() == ("fd00::1", 29500, "MASTER_ADDR")
    assert launch.torch_environment("m", 7) == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1",
                                                "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "m", "MASTER_PORT": "7"}
    assert launch.describe() == str(launch) and "row 2, torchrun" in str(launch)
    assert repr(launch) == "<Launch torchrun, process>"


def test_processes_per_node_is_a_number_a_word_or_none():
    node = {"PET_NNODES": "2", "PET_NODE_RANK": "0"}
    assert _launch.read(dict(node, PET_NPROC_PER_NODE="8")).processes_per_node == 8
    assert _launch.read(dict(node, PET_NPROC_PER_NODE="auto")).processes_per_node == "auto"
    assert _launch.read({}).processes_per_node is None


def test_hosts_are_pairs_and_arguments_may_be_numbers_or_none():
    launch = _launch.read({"NODE_IP_SLOT_LIST": "a:8,[fd00::1]:4"}, arguments={"np": 3, "launcher": None})
    assert launch.hosts == [("a", 8), ("fd00::1", 4)]
    assert launch.world_size == 3
    launch.require_slots(12)
    with pytest.raises(_launch.LaunchError, match="a:8, fd00::1:4"):
        launch.require_slots(13)


def test_an_error_is_a_value_error_with_the_rule_as_its_code():
    with pytest.raises(ValueError, match="WORLD_SIZE is missing, though RANK='0' is set") as caught:
        _launch.read({"RANK": "0"})
    assert type(caught.value) is _launch.LaunchError
    assert caught.value.code == "E1"
    with pytest.raises(_launch.LaunchError) as caught:
        _launch.read({"RANK": "0", "WORLD_SIZE": "2", "GPU_NUM_PER_NODE": "2"}).as_process()
    assert caught.value.code == "level"


def test_variables_that_are_no_utf_8_pass_in_both_directions():
    odd = os.fsdecode(b"\xff\xfe")
    launch = _launch.read({"NODE_LIST": odd, odd: "x"})
    assert launch.ignored[0][:2] == ("NODE_LIST", odd)
    assert odd in launch.describe()
    with pytest.raises(_launch.LaunchError, match=r"'\\xff\\xfe'"):
        _launch.read({"RANK": odd, "WORLD_SIZE": "2"})


def test_the_whole_environment_of_this_process_is_read():
    assert _launch.read(dict(os.environ), arguments={"launcher": "single"}).rank == 0


def test_the_table_has_its_rows_in_order():
    rows = _launch.table()
    assert [row[0] for row in rows][:4] == ["explicit", "torchrun", "horovod", "openmpi"]
    assert {row[2] for row in rows} == {"process", "node", "role", "launcher"}
    assert all(len(row) == 4 and all(row) for row in rows)
    assert _launch.table_markdown().count("\n") == len(rows) + 2


def test_addresses_and_ports():
    assert _launch.parse_address("[::1]:80") == ("::1", 80)
    assert _launch.parse_address("node") == ("node", None)
    assert _launch.host_and_port("fd00::1", 80) == "[fd00::1]:80"
    assert _launch.is_loopback("127.0.1.1") and not _launch.is_loopback("10.0.0.1")
    assert _launch.parse_port("80") == 80
    with pytest.raises(_launch.LaunchError, match="--port is '66660'"):
        _launch.parse_port("66660", "--port")
    assert _launch.resolve("::1") == ["::1"]
    assert _launch.reachable_address("10.1.2.3") == "10.1.2.3"


def test_an_occupied_port_names_this_process():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(_launch.LaunchError, match=rf"the port {port} \(MASTER_PORT\) is taken by process "
                           rf"{os.getpid()} "):
            _launch.check_port(port)
        _launch.wait_for_listener("localhost", port, 60)
    with pytest.raises(_launch.LaunchError, match="ports go from 1 to 65535"):
        _launch.check_port(0)


def test_waiting_lets_other_threads_run_and_says_so():
    lines = []
    with socket.socket() as master:
        master.bind(("127.0.0.1", 0))  # taken, but nobody listens yet
        port = master.getsockname()[1]
        waiting = threading.Thread(target=_launch.wait_for_listener, args=("127.0.0.1", port, 600, lines.append))
        waiting.start()
        while not lines:  # the thread waits without the interpreter's lock
            time.sleep(0.05)
        master.listen()
        waiting.join()
    assert lines[0].startswith(f"waiting for the master at 127.0.0.1:{port} (MASTER_ADDR): Connection refused")


def test_ctrl_c_ends_a_wait():
    # A shell without job control starts what runs in its background with SIGINT ignored, tests too.
    source = ("import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
              "from torch_taco import _launch; print('waiting', flush=True); _launch.resolve('nowhere.invalid', 60)")
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=120)[1]


def test_an_exception_of_the_progress_callback_comes_out():
    class Enough(Exception):
        pass

    def stop(_):
        raise Enough

    with pytest.raises(Enough):
        _launch.resolve("nowhere.invalid", 60, stop)


class MemoryStore:
    """What the roll call needs of c10d's store, without waiting: a key that is not there never comes."""

    def __init__(self):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value.encode()

    def get(self, key):
        if key not in self.values:
            raise RuntimeError(f"timeout for {key}")
        return self.values[key]

    def add(self, key, amount):
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]


def test_the_roll_call_names_both_hosts_of_a_duplicate_and_who_is_missing():
    store = MemoryStore()
    with pytest.raises(RuntimeError, match="of 3 ranks, these did not come: 1 and 2") as caught:
        _launch.roll_call(store, rank=0, world_size=3, host="host-a", pid=1)
    assert not isinstance(caught.value, ValueError)
    with pytest.raises(_launch.LaunchError, match="rank 0 is there twice: process 1 on host 'host-a' and process 2 on "
                       "host 'host-b'") as caught:
        _launch.roll_call(store, rank=0, world_size=3, host="host-b", pid=2)
    assert caught.value.code == "E3"
    _launch.roll_call(MemoryStore(), rank=0, world_size=1, host="h", pid=1, row="single")


def test_an_interrupt_in_the_store_is_not_taken_for_a_timeout():
    store = MemoryStore()

    def interrupted(_):
        raise KeyboardInterrupt

    store.get = interrupted
    with pytest.raises(KeyboardInterrupt):
        _launch.roll_call(store, rank=0, world_size=2, host="h", pid=1)
