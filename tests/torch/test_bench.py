"""`taco bench`: its columns and forms, its checks, its errors. Nothing here asserts a time."""

import csv
import io
import json
import re

import pytest
import torch

from torch_taco import bench
from torch_taco.bench import options, problem

TINY = ["all_reduce", "--repeats", "2", "--bytes"]


def run(capsys, *arguments):
    status = bench.main([*TINY, *arguments])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return printed.out


def test_text_has_the_columns_of_nccl_tests(capsys):
    lines = run(capsys, "8,64K", "--peers", "gloo").splitlines()
    assert [line.startswith("#") for line in lines] == [True, True, True, False, False, False, False]
    assert "2 ranks, 1 node" in lines[0]
    assert re.findall(r"- (\S+) -", lines[3]) == ["taco", "gloo"]
    own = ["time (us)", "algbw", "busbw", "wrong"]
    assert re.split(r"\s{2,}", lines[4].strip()) == ["bytes", "count", "type", "op", *own, *own, "gloo / taco"]
    for line, size in zip(lines[5:], (8, 65536)):
        cells = line.split()
        assert cells[:4] == [str(size), str(size // 4), "float32", "sum"]
        assert cells[7] == cells[11] == "0"
        assert float(cells[12]) == pytest.approx(float(cells[8]) / float(cells[4]), rel=0.1, abs=0.1)


def test_json_of_two_nodes_with_both_algorithms_and_a_peer(capsys):
    printed = run(capsys, "4K,300K", "--ranks", "4", "--nodes", "2", "--algorithms", "flat,2d", "--peers", "gloo", "--json")
    outcome = json.loads(printed)
    assert (outcome["machine"]["ranks"], outcome["machine"]["nodes"]) == (4, 2)
    figures = outcome["figures"]
    assert [(f["bytes"], f["backend"], f["algorithm"]) for f in figures] == [
        (size, *contender) for size in (4096, 307200)
        for contender in (("taco", "flat"), ("taco", "2d"), ("gloo", ""))]
    for figure in figures:
        assert figure["wrong"] == 0 and figure["repeats"] == 2
        assert figure["algbw_gbs"] == pytest.approx(figure["bytes"] / figure["time_us"] / 1e3)
        assert figure["busbw_gbs"] == pytest.approx(figure["algbw_gbs"] * 1.5)
        assert figure["fast_us"] <= figure["time_us"] <= figure["slow_us"]


@pytest.mark.parametrize("dtype", options.DTYPES)
def test_every_dtype_and_op_is_right(capsys, dtype):
    for op in options.OPS:
        rows = list(csv.DictReader(io.StringIO(run(capsys, "4002", "--ranks", "3", "--dtype", dtype, "--op", op, "--csv"))))
        assert [(row["type"], row["op"], row["wrong"]) for row in rows] == [(dtype, op, "0")]


def test_markdown_is_a_table(capsys):
    lines = [line for line in run(capsys, "1K", "--markdown").splitlines() if line.startswith("|")]
    assert lines[0].startswith("| bytes | count | type | op | taco time (us) |")
    assert len({line.count("|") for line in lines}) == 1 and len(lines) == 3


def test_a_wrong_element_is_counted():
    posed = problem.Problem(problem.PART + 5, torch.float32, "sum", rank=1, ranks=3)
    result = posed.input + sum(problem.Problem(problem.PART + 5, torch.float32, "sum", rank, 3).input for rank in (0, 2))
    assert posed.wrong(result) == 0
    result[7] += 1
    result[problem.PART + 2] -= 1
    assert posed.wrong(result) == 2


@pytest.mark.parametrize("text, step, sizes", [
    ("8-64", 2, (8, 16, 32, 64)),
    ("1K-20K", 4, (1024, 4096, 16384)),
    ("2M", 2, (2 << 20,)),
    ("4K,8,4K", 2, (8, 4096)),
])
def test_sizes(text, step, sizes):
    assert options.sizes_of(text, step) == sizes


@pytest.mark.parametrize("arguments, says", [
    (["--ranks", "1"], "--ranks is 1"),
    (["--nodes", "3"], "--nodes is 3"),
    (["--bytes", "64-8"], "'64-8' is empty"),
    (["--bytes", "many"], "'many' is no size"),
    (["--algorithms", "ring"], "ring is not one of flat, 2d"),
    (["--backend", "gloo", "--algorithms", "2d"], "--algorithms are taco's"),
    (["--bytes", "900000G"], "choose a smaller largest size"),
])
def test_what_cannot_be_measured_is_refused(capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        bench.main(["all_reduce", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_a_failing_rank_ends_the_run_with_its_reason(capsys):
    assert bench.main([*TINY, "8", "--backend", "no_such_backend"]) == 1
    assert "no_such_backend" in capsys.readouterr().err.lower()


def test_a_setting_that_is_wrong_is_told_once(capsys, monkeypatch):
    monkeypatch.setenv("LIGHT_INTRA_SIZE", "many")
    assert bench.main([*TINY, "8"]) == 1
    assert "LIGHT_INTRA_SIZE has the value 'many'" in capsys.readouterr().err
