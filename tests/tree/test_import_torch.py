"""What our entry points do to `import torch`: cost at most 5 ms, and never break it."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

LIMIT_MS = 5.0

# Runs the entry points as torch/__init__.py does at its end, where torch is complete, and measures the CPU time
# of this thread: neither the rest of the import nor other processes on the machine are in it.
MEASURE = """
import json, sys, time
from importlib.metadata import entry_points
import torch
found = [each for each in entry_points(group="torch.backends") if each.value.startswith("torch_taco_autoload")]
started = time.thread_time()
for each in found:
    each.load()()
spent = time.thread_time() - started
print(json.dumps({"ms": 1000 * spent, "found": len(found), "loaded": "torch_taco" in sys.modules}))
"""

MAKE_GROUP = """
import torch, torch.distributed as dist
print("torch is imported", flush=True)
dist.init_process_group("taco", store=dist.HashStore(), rank=0, world_size=1)
print("group is made", flush=True)
"""


def python(code, path=None, **env):
    environment = dict(os.environ, **env)
    environment.pop("PYTHONPATH", None)
    if path:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], env=environment, cwd="/",
                          capture_output=True, text=True, timeout=120)


@pytest.fixture
def installation(tmp_path):
    """A copy of what is installed, found before it, to break."""
    package = pathlib.Path(importlib.util.find_spec("torch_taco").origin).parent
    shutil.copytree(package, tmp_path / "torch_taco", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package.parent / "torch_taco_autoload.py", tmp_path)
    return tmp_path


def test_the_entry_points_cost_at_most_5_ms():
    runs = []
    for _ in range(3):
        done = python(MEASURE, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    assert all(run["found"] == 1 for run in runs)
    assert not any(run["loaded"] for run in runs), "the package itself is loaded only when a group is made"
    assert min(run["ms"] for run in runs) <= LIMIT_MS, runs


def test_both_groups_of_entry_points_are_installed():
    from importlib.metadata import entry_points
    assert [each.name for each in entry_points(group="torch.distributed.backends")
            if each.value.startswith("torch_taco_autoload")] == ["taco"]
    assert [each.name for each in entry_points(group="torch.backends")
            if each.value.startswith("torch_taco_autoload")] == ["taco"]


def test_a_copy_of_the_installation_works(installation):
    done = python(MAKE_GROUP, path=installation)
    assert done.returncode == 0 and done.stdout.split("\n")[:2] == ["torch is imported", "group is made"], done.stderr


def check_fails_late(installation, *words):
    """import torch goes through without a warning; making a group fails and says `words` in its last line."""
    done = python(MAKE_GROUP, path=installation)
    assert done.stdout == "torch is imported\n", done.stdout + done.stderr
    assert done.returncode == 1, "an exception, not a signal"
    last = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last, done.stderr


def test_a_broken_extension_shows_its_loading_error_at_the_first_group(installation):
    [extension] = (installation / "torch_taco").glob("_C*.so")
    extension.write_bytes(b"this is no library")
    check_fails_late(installation, extension.name)


def test_a_missing_extension_shows_its_loading_error_at_the_first_group(installation):
    [extension] = (installation / "torch_taco").glob("_C*.so")
    extension.unlink()
    check_fails_late(installation, "torch_taco", "_C")


def test_a_package_that_raises_shows_that_error_at_the_first_group(installation):
    (installation / "torch_taco" / "__init__.py").write_text("raise RuntimeError('the package is upside down')\n")
    check_fails_late(installation, "the package is upside down")


def test_another_torch_minor_is_refused_with_one_sentence(installation):
    info = installation / "torch_taco" / "_build_info.py"
    import torch
    minor = ".".join(torch.__version__.split(".")[:2])
    text = info.read_text()
    assert f'TORCH_VERSION = "{minor}"' in text
    info.write_text(text.replace(f'TORCH_VERSION = "{minor}"', 'TORCH_VERSION = "2.3"'))
    # As on another torch, where loading the extension would end in a symbol error.
    [extension] = (installation / "torch_taco").glob("_C*.so")
    extension.write_bytes(b"built for another torch")
    check_fails_late(installation, "2.3", minor)
