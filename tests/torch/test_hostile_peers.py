"""What the Python side reads from the network and from the store: an error or the right answer, whatever comes."""

import os
import random
import socket
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

import launching

pytest.importorskip("torch_taco", reason="torch_taco is not installed")
from torch_taco import _session  # noqa: E402
from torch_taco.run import waiting  # noqa: E402
from torch_taco.run.plan import CannotStart  # noqa: E402

SEED = int(os.environ.get("FUZZ_SEED", "20261130"))
TIMES = int(os.environ.get("FUZZ_TIMES", "1"))


def noise(generator, text):
    """`text` with a few accidents, or bytes of any kind."""
    if generator.random() < 0.2:
        return generator.randbytes(generator.randrange(600))
    made = bytearray(text)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(made) + 1)
        made[at:at + generator.randrange(3)] = generator.randbytes(generator.randrange(3))
    return bytes(made)


def test_strangers_that_flood_the_first_host(monkeypatch):
    """Silent ones, more than are kept, and talkative ones: those who belong to the job still learn its exit code."""
    monkeypatch.setattr(waiting, "_MOST_STRANGERS", 20)
    generator = random.Random(SEED)
    port = launching.free_port()
    announcer = waiting.Announcer(port, "job", 1)
    strangers = []
    try:
        for case in range(60 * TIMES):
            strangers.append(socket.create_connection(("127.0.0.1", port), timeout=20))
            if case % 2:
                line = noise(generator, b"job\n")
                if line.partition(b"\n")[0].decode(errors="replace").strip().partition(" ")[0] != "job":
                    strangers[-1].sendall(line)
            if len(strangers) > 100:
                strangers.pop(0).close()
        codes = []
        thread = threading.Thread(target=lambda: codes.append(
            waiting.wait_for_end("localhost", port, "job", 60, print)))
        thread.start()
        announcer.end(5, late_seconds=60)
        thread.join(60)
        assert codes == [5]
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_first_host_that_talks_nonsense():
    generator = random.Random(SEED)
    understood = refused = 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        answers = [noise(generator, b"taco\n7\n") for _ in range(60 * TIMES)] + [b"taco\n7\n", "taco\n²\n".encode()]

        def serve():
            for answer in answers:
                while True:  # wait_for_end looks first whether somebody listens
                    peer, _ = server.accept()
                    with peer:
                        peer.settimeout(20)
                        if peer.recv(400):
                            peer.sendall(answer)
                            break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        for answer in answers:
            try:
                code = waiting.wait_for_end("127.0.0.1", server.getsockname()[1], "job", 20, print)
                assert abs(code) < 10 ** 9
                understood += 1
            except CannotStart:
                refused += 1
        thread.join(20)
    assert understood and refused


@pytest.mark.parametrize("value", [b"", b"\xff", b"[", b"7", b"{}", b"null"])
def test_damaged_list_of_an_attempt(value):
    store = dist.HashStore()
    names = dist.PrefixStore("session", store)
    names.set("now", "x")
    names.set("x/list", value)
    with pytest.raises(dist.DistStoreError, match="damaged in the store"):
        _session.agree(store, 1, 2, timedelta(seconds=5))
