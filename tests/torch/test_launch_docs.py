"""docs/launching.md is held to the code: its commands run, its table is the code's, and each error text is produced."""

import re
import shlex
import socket
import threading

import pytest

import launching
import ranks
from torch_taco import _launch
from torch_taco.run import decide, options, waiting
from torch_taco.run.plan import CannotStart

pytestmark = pytest.mark.skipif(not ranks.IS_TACO, reason="tests taco's launching: TEST_BACKEND is set")

PAGE = (launching.ROOT / "docs" / "launching.md").read_text()
TI = {"NODE_LIST": "10.35.110.11:8,10.35.110.12:8", "INDEX": 1, "MASTER_ADDR": "10.35.110.11", "MASTER_PORT": 23456,
      "WORLD_SIZE": 2, "RANK": 1, "GPU_NUM": 16, "GPU_NUM_PER_NODE": 8}
TF = ('{"cluster": {"ps": ["ps0:2222"], "worker": ["w0:2222"]}, "task": {"type": "%s", "index": %d}}')
PROCESS = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": 29500}

# Stands for the user's script: no torch in it, so that a process of it costs nothing.
SCRIPT = """
import os, sys
open(f"rank{os.environ.get('RANK', '')}", "w").write(" ".join(sys.argv[1:]))
"""


def commands():
    """(section, command) of each line in an `sh` block."""
    found = []
    for section in re.split(r"(?m)^## ", PAGE):
        for block in re.findall(r"(?ms)^```sh\n(.*?)^```$", section):
            found += [(section.split("\n")[0], line) for line in block.splitlines()]
    return found


# Where the platform's variables make `taco run` do what cannot be done on one machine: the start of what is printed.
PRINTED = {
    "TI platform: DDP": (TI, "torchrun --nnodes=2 --node-rank=1 --master-addr=10.35.110.11 --master-port=23456 "
                             "--nproc-per-node=8 train.py"),
    "TI platform: MPI": ({"NODE_IP_SLOT_LIST": "9.0.255.56:1,127.0.0.1:1", "GPU_NUM": 2, "GPU_NUM_PER_NODE": 1},
                         "# nothing is started here: 9.0.255.56 starts the job"),
    "TI platform: PS-Worker": ({"TF_CONFIG": TF % ("ps", 0)}, "TACO_ROLE=ps torchrun --nnodes=2 --node-rank=1"),
    "TI platform: Ray, and Ray Train elsewhere": ({"HEAD_ADDR": "head-0", "HEAD_PORT": 6379, "RANK": 0},
                                                  "RAY_ADDRESS=head-0:6379 "),
    "Kubeflow": ({"PET_NNODES": 2, "PET_NODE_RANK": 0, "PET_NPROC_PER_NODE": 4, "PET_MASTER_ADDR": "m",
                  "PET_MASTER_PORT": 23456}, "torchrun --nnodes=2 --node-rank=0 --master-addr=m --master-port=23456 "
                                             "--nproc-per-node=4 train.py"),
}


@pytest.mark.parametrize("section, command", commands(), ids=[command[:50] for _, command in commands()])
def test_command(section, command, tmp_path):
    words = shlex.split(command)
    if section in PRINTED and words[:2] == ["taco", "run"]:
        variables, expected = PRINTED[section]
        chosen = options.parse(words[2:])
        assert str(decide.decide(chosen, {name: str(value) for name, value in
                                          {"CUDA_VISIBLE_DEVICES": "", **variables}.items()})).startswith(expected)
        return
    (tmp_path / "train.py").write_text(SCRIPT)
    variables = {}
    if "$GPU_NUM_PER_NODE" in command:
        variables = {**TI, "NODE_LIST": "localhost:4", "INDEX": 0, "RANK": 0, "WORLD_SIZE": 1, "GPU_NUM": 4,
                     "GPU_NUM_PER_NODE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": launching.free_port()}
    elif command.startswith("torchrun --nproc-per-node 4"):
        command = command.replace("torchrun", f"torchrun --master-port {launching.free_port()}", 1)
    out, _ = launching.run(command, cwd=tmp_path, **variables)
    if "--print-env" in command:
        assert "row 14, single" in out
        return
    count = int((re.search(r"--nproc(?:-per-node)? (\d+)", command) or [0, 4 if "$" in command else 1])[1])
    assert {path.name for path in tmp_path.glob("rank*")} == {f"rank{rank}" for rank in range(count)}


def test_there_are_commands_of_each_section():
    assert {section for section, _ in commands()} >= {"torchrun", "A laptop or one machine", *PRINTED}


def test_the_table_is_the_codes():
    assert _launch.table_markdown().strip() in PAGE


# --- What went wrong --------------------------------------------------------------------------------


class Store(dict):
    """A store for the roll call, which waits for nothing."""

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        if key not in self:
            raise RuntimeError("timed out")
        return self[key]

    def add(self, key, amount):
        self[key] = self.get(key) if key in self else b"0"
        self[key] = str(int(self[key]) + amount).encode()
        return int(self[key])


def text_of(call):
    """The text of the error, and of the warnings where there is none."""
    try:
        found = call()
    except (ValueError, RuntimeError, CannotStart) as error:
        return str(error).split("\n")[0]
    return "\n".join(getattr(found, "warnings", []))


def read(process=True, **variables):
    launch = _launch.read({name: str(value) for name, value in variables.items() if value is not None})
    if process:
        launch.as_process().require_master()
    return launch


def run(line, **variables):
    return decide.decide(options.parse(shlex.split(line)), {name: str(value) for name, value in variables.items()})


def roll_call(*members):
    store = Store()
    texts = [text_of(lambda: _launch.roll_call(store, rank=rank, world_size=world, host=f"host-{rank}", pid=4242))
             for rank, world in members]
    return "\n".join(texts)


def occupied_port():
    with socket.create_server(("", 0)) as server:
        return text_of(lambda: _launch.check_port(server.getsockname()[1]))


def first_host_that_dies():
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(2)])
        accepting.start()
        try:
            return text_of(lambda: waiting.wait_for_end("127.0.0.1", server.getsockname()[1], "job", 5, print))
        finally:
            accepting.join(10)


MPI = {"NODE_IP_SLOT_LIST": "192.0.2.77:1,192.0.2.78:1", "GPU_NUM": 2}
OMPI = {"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}
PRODUCERS = [
    lambda: text_of(lambda: read(**{**PROCESS, "RANK": None})),
    lambda: text_of(lambda: read(**{**PROCESS, "RANK": "$RANK"})),
    lambda: text_of(lambda: read(**{**PROCESS, "RANK": 2})),
    lambda: roll_call((0, 3), (1, 3), (1, 3)),
    lambda: roll_call((0, 2), (1, 3)),
    lambda: roll_call((0, 2)),
    lambda: text_of(lambda: read(**{**TI, "GPU_NUM": 8})),
    lambda: text_of(lambda: read(**{**TI, "INDEX": 7})),
    lambda: text_of(lambda: read(False, **{**MPI, "GPU_NUM": 3})),
    lambda: text_of(lambda: read(**{**PROCESS, **OMPI, "TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": 2,
                                    "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1})),
    lambda: text_of(lambda: read(**{**TI, "MASTER_PORT": 66660})),
    lambda: text_of(lambda: read(**{**TI, "MASTER_PORT": "10.0.0.1", "MASTER_ADDR": "23456"})),
    lambda: text_of(lambda: read(**{**TI, "MASTER_ADDR": "localhost"})),
    lambda: text_of(lambda: read(**{**TI, "MASTER_ADDR": "a b"})),
    lambda: text_of(lambda: read(SLURM_PROCID=0, SLURM_NTASKS=4, SLURM_JOB_ID=1)),
    lambda: text_of(lambda: read(**{**PROCESS, "GLOO_SOCKET_IFNAME": "^lo"})),
    lambda: text_of(lambda: read(RANK=0, WORLD_SIZE=2)),
    lambda: text_of(lambda: read(**TI)),
    lambda: text_of(lambda: read(HEAD_ADDR="h", RANK=0)),
    lambda: text_of(lambda: read(**MPI)),
    occupied_port,
    first_host_that_dies,
    lambda: text_of(lambda: _launch.resolve("no-such-host.invalid", 0.1)),
    lambda: text_of(lambda: _launch.wait_for_listener("127.0.0.1", launching.free_port(), 0.1)),
    lambda: text_of(lambda: run("--max-restarts 2 train.py", **MPI)),
    lambda: text_of(lambda: run("train.py", **MPI)),
    lambda: text_of(lambda: run("--nproc 2 train.py", TF_CONFIG=TF % ("ps", 0))),
    lambda: text_of(lambda: run("--nproc 2 train.py", **OMPI)),
    lambda: text_of(lambda: run("--nnodes 2 train.py")),
    lambda: text_of(lambda: run("--nnodes 2 --master-addr 127.0.0.1 train.py")),
]


def error_texts():
    return re.findall(r"(?m)^\| `(.+?)` \| ", PAGE.split("## What went wrong")[1])


@pytest.fixture(scope="module")
def produced():
    return [producer() for producer in PRODUCERS]


@pytest.mark.parametrize("text", error_texts())
def test_error_text_is_produced(text, produced):
    pattern = ".*".join(re.escape(part.strip()) for part in text.split("..."))
    assert any(re.search(pattern, one) for one in produced), "\n".join(produced)


def test_each_rule_has_a_text():
    remedies = PAGE.split("## What went wrong")[1]
    assert all(f"| E{number}" in remedies for number in range(1, 9))
    assert len(error_texts()) >= 25
