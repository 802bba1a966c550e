"""What every Python test shares: the pools of ranks, the large-test switch, and a torch that may be forked."""

import contextlib
import gc
import os
import sys

# A forked rank must find no OpenMP threads in its parent, and four ranks on two cores need no more than one
# each. Both must be said before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, os.path.dirname(__file__))

import pytest  # noqa: E402
import torch  # noqa: E402
# What DDP and FSDP import at first use takes seconds: once here instead of in every rank.
import torch._dynamo  # noqa: E402,F401
import torch.distributed.fsdp  # noqa: E402,F401
import torch.distributed.tensor  # noqa: E402,F401

import ranks  # noqa: E402

torch.set_num_threads(1)
if ranks.IS_TACO:
    # Loaded once here, inherited by every forked rank; scripts that must find it themselves start afresh. What is
    # wrong with it, the first group says.
    with contextlib.suppress(ImportError):
        import torch_taco._group

        torch_taco._group.extension()

# What is loaded by now stays: a rank that collects garbage would otherwise walk through all of torch, and copy
# every page of it (0.5 s a rank).
gc.collect()
gc.freeze()


def pytest_addoption(parser):
    parser.addoption("--large", action="store_true", help="also run tests that need much memory and time")


def pytest_configure(config):
    config.addinivalue_line("markers", "large: needs gigabytes of memory; run by `make test-large`")
    config.addinivalue_line("markers", "serial: needs the machine's cores or names to itself")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--large"):
        return
    for item in items:
        if "large" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs several GiB of memory: run `make test-large`"))


@pytest.fixture(scope="session")
def pools():
    """layout -> Pool, made at first use, closed with the session."""
    made = {}

    def get(layout):
        if layout.name not in made:
            made[layout.name] = ranks.Pool(layout)
        return made[layout.name]

    yield get
    for pool in made.values():
        pool.close()


@pytest.fixture
def pool(pools, layout):
    """The pool of the test's `layout` parameter."""
    return pools(layout)
