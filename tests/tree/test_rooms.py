"""Holds the order of the rooms: who may include whom, and that the build lists what there is."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# From the bottom; ARCHITECTURE.md tells why. A room includes itself and those before it.
ROOMS = ["base", "settings", "data", "topology", "transport", "mpi", "link", "p2p", "topk", "collective", "allreduce",
         "engine", "communicator"]
ALL = [f"csrc/{room}" for room in ROOMS]

# Folder -> the folders whose headers it may include, itself left out.
MAY_INCLUDE = {f"csrc/{room}": ALL[:index] for index, room in enumerate(ROOMS)}
MAY_INCLUDE["cuda"] = ALL
MAY_INCLUDE["launch"] = ["csrc/base", "csrc/settings"]
MAY_INCLUDE["torch_ext"] = [*ALL, "cuda", "launch"]

TORCH = re.compile(r"(torch|ATen|c10|pybind11)\b|Python\.h")
CUDA = re.compile(r"cuda|nccl")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def sources():
    for top in ("csrc", "cuda", "launch", "torch_ext"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                yield path.relative_to(ROOT)


def folder_of(path):
    parts = pathlib.PurePath(path).parts
    return "/".join(parts[:2]) if parts[0] == "csrc" else parts[0]


def includes():
    for path in sources():
        for bracket, name in INCLUDE.findall((ROOT / path).read_text()):
            yield path, bracket, name


def test_there_is_something_to_read():
    read = {folder_of(path) for path in sources()}
    assert {"csrc/base", "csrc/communicator", "cuda", "launch", "torch_ext"} <= read
    assert sum(1 for _ in includes()) > 100


def test_csrc_has_no_other_rooms():
    assert {path.name for path in (ROOT / "csrc").iterdir() if path.is_dir()} <= set(ROOMS)


def test_rooms_hold_sources_and_headers_and_nothing_else():
    strangers = [str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / "csrc" / room).glob("*")
                 if path.suffix not in (".h", ".cc")]
    assert strangers == []


def test_includes_only_point_down():
    wrong = []
    for path, bracket, name in includes():
        if bracket == "<":
            continue
        here, there = folder_of(path), folder_of(name)
        if there != here and there not in MAY_INCLUDE[here]:
            wrong.append(f"{path} includes {name}: {here} may include {', '.join(MAY_INCLUDE[here]) or 'nothing else'}")
    assert wrong == []


def test_includes_are_written_from_the_root():
    wrong = [f'{path}: "{name}"' for path, bracket, name in includes() if bracket == '"' and not (ROOT / name).exists()]
    assert wrong == []


def test_only_torch_ext_knows_torch_and_only_cuda_knows_cuda():
    wrong = []
    for path, bracket, name in includes():
        here = folder_of(path)
        # launch/'s module for Python: pybind11, and nothing else of what torch brings.
        if str(path).startswith("launch/bindings") and name.startswith("pybind11/"):
            continue
        if here != "torch_ext" and TORCH.match(name):
            wrong.append(f"{path} includes torch's {name}")
        if here.startswith(("csrc", "launch")) and CUDA.match(name):
            wrong.append(f"{path} includes CUDA's {name}")
        if here == "torch_ext" and bracket == "<" and CUDA.match(name):
            wrong.append(f"{path} includes CUDA's {name}: the seam is cuda/entry.h")
    assert wrong == []


def test_headers_are_guarded():
    # Files ending in -inl.h are included several times on purpose, once per instruction set.
    unguarded = [str(path) for path in sources() if path.suffix == ".h" and not path.name.endswith("-inl.h")
                 and "#pragma once" not in (ROOT / path).read_text()]
    assert unguarded == []


def listed_by_room():
    text = re.sub(r"#.*", "", (ROOT / "csrc/CMakeLists.txt").read_text())
    rooms = re.findall(r"taco_room\((\w+)(.*?)\)", text, re.DOTALL)
    return {room: body.split() for room, body in rooms}


def test_the_build_has_the_rooms_in_this_order_and_with_these_dependencies():
    listed = listed_by_room()
    assert list(listed) == ROOMS
    for index, room in enumerate(ROOMS):
        words = listed[room]
        depends = words[words.index("DEPENDS") + 1:] if "DEPENDS" in words else []
        depends = [word for word in depends[:next((i for i, w in enumerate(depends) if w.isupper()), len(depends))]]
        assert set(depends) <= set(ROOMS[:index]), room


@pytest.mark.parametrize("room", ROOMS)
def test_the_build_lists_every_source_of_a_room(room):
    words = listed_by_room()[room]
    listed = sorted(word for word in words if word.endswith(".cc"))
    assert listed == sorted(path.name for path in (ROOT / "csrc" / room).glob("*.cc"))


@pytest.mark.parametrize("folder", ["tests/csrc", "tests/cuda", "tests/mpi", "tests/launch", "cuda", "launch", "torch_ext"])
def test_the_build_lists_every_file(folder):
    text = re.sub(r"#.*", "", (ROOT / folder / "CMakeLists.txt").read_text())
    files = [path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".cu")]
    unlisted = [str(file) for file in files if str(file) not in text.split() and file.name not in ("catch_main.cc", "precompiled.cc")
                and not re.search(rf"(?<![\w/]){re.escape(str(file))}(?![\w/])", text)]
    assert files and unlisted == []
