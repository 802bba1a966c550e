"""The documentation is held to the code: its commands run, its error texts and links exist."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import torch_taco

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "perf" / "README.md",
         *sorted(DOCS.glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_settings_md_is_the_table_in_the_code():
    assert (DOCS / "settings.md").read_text() == torch_taco.settings_markdown(), "run `make docs`"


# --- the quickstart -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the quickstart's commands run: its scripts, under the names in their first lines, and examples/."""
    made = tmp_path_factory.mktemp("quickstart")
    (made / "examples").symlink_to(ROOT / "examples")
    for script in blocks(DOCS / "quickstart.md", "python"):
        (made / re.match(r"# (\w+\.py)\n", script)[1]).write_text(script)
    return made


def run(command, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TACO_", "LIGHT_"))}
    environment["PATH"] = f"{pathlib.Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONUNBUFFERED"] = "1"
    done = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


COMMANDS = blocks(DOCS / "quickstart.md", "sh")


@pytest.mark.parametrize("command", COMMANDS, ids=[command.split("\n")[0].strip() for command in COMMANDS])
def test_quickstart(command, folder):
    out, err = run(command, folder)
    if command.startswith("TACO_LOG=info"):
        assert "2 nodes x 2 ranks" in err and "shared memory, 2 ranks" in err
    elif command.startswith("torchrun --nproc-per-node 2 hello.py"):
        for rank in (0, 1):
            assert f"rank {rank} of 2: [1.0, 3.0, 5.0, 7.0]" in out
    elif "train_ddp" in command:
        assert "replicas identical: yes" in out
    elif "plan.py" in command:
        assert "flat (all ranks are on one node)" in out and "shared_memory_bytes" in out
    elif command.startswith("taco settings"):
        assert out == (DOCS / "settings.md").read_text()
    else:
        assert command.startswith("taco bench") and re.search(r"^ *32768 .* gloo .*", out, re.MULTILINE)


# --- texts and links ------------------------------------------------------------------------------


def string_literals():
    """The string literals of our C++ and Python, neighbours joined as the compiler joins them."""
    texts = []
    for folder in ("csrc", "torch_ext"):
        for path in [*(ROOT / folder).rglob("*.cc"), *(ROOT / folder).rglob("*.h"), *(ROOT / folder).rglob("*.py")]:
            source = re.sub(r"(?m)^\s*(//|#).*$", "", path.read_text())
            for run_of in re.findall(r'(?:f?"(?:[^"\\\n]|\\.)*"\s*)+', source):
                texts.append("".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', run_of)).replace('\\"', '"'))
    return "\n".join(texts)


def error_texts():
    """The first cells of the tables, up to the one with torch's own texts; "..." is what varies."""
    ours = (DOCS / "troubleshooting.md").read_text().split("## From torch itself")[0]
    return re.findall(r"^\| `([^`]+)`", ours, re.MULTILINE)


@pytest.mark.parametrize("text", error_texts())
def test_error_text_exists(text):
    literals = string_literals()
    # What is left of a sentence between its variable parts, without the numbers that stand in f-strings.
    for part in text.split("..."):
        assert part.strip(" '():,") in literals, f"{part!r} is in no string of csrc/ or torch_ext/"


def test_there_are_error_texts():
    assert len(error_texts()) > 20


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        to = (page.parent / name) if name else page
        assert to.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", to.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_files_that_are_named_exist(page):
    for name in re.findall(r"`((?:csrc|cuda|torch_ext|tests|docs|examples|scripts|perf)/[\w/.]*\w)`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_troubleshooting_and_porting_name_only_real_settings():
    known = set(re.findall(r"^\| `(\w+)`", torch_taco.settings_markdown(), re.MULTILINE))
    for page in PAGES:
        for name in re.findall(r"\b((?:LIGHT|TACO)_[A-Z0-9_]+[A-Z0-9])\b", page.read_text()):
            assert name in known or name.startswith(("LIGHT_TOPK", "TACO_WERROR")), f"{page.name} names {name}"
