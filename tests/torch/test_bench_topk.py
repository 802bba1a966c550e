"""`taco bench topk` and `taco bench all_reduce --topk`: forms, checks, errors. Nothing here asserts a time."""

import json
import re

import pytest
import torch
from torch_taco import bench
from torch_taco.bench import compressed, options, topk
from torch_taco.bench import ranks as bench_ranks

MEMORY = ["--memory-gbs", "20"]


def test_the_selection_beside_others(capsys):
    assert bench.main(["topk", "--bytes", "64K,4", "--repeats", "2"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    headings, *rows = (re.split(r"\s{2,}", line.strip()) for line in lines)
    names = ["r += g", "taco", "torch.topk", "torch.kthvalue", "numpy.argpartition"]
    assert headings[:5] == ["elements", "k", "type", "selection", "ms"]
    assert [row[3] for row in rows] == 2 * names
    assert [(row[0], row[1]) for row in rows[::5]] == [("1", "1"), ("16384", "163")]
    for row in rows:
        assert float(row[5]) <= float(row[4]) <= float(row[6]) and row[7] == "0"
    assert rows[7][-1].endswith(" x") and not rows[6][-1].endswith(" x")


@pytest.mark.parametrize("dtype", topk.DTYPES)
def test_json(capsys, dtype):
    assert bench.main(["topk", "--bytes", "40000", "--ratio", "0.1", "--dtype", dtype, "--fp16", "--repeats", "3",
                       "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ratio"] == 0.1 and found["fp16"] is True
    for figure in found["figures"]:
        assert (figure["elements"], figure["k"], figure["dtype"], figure["wrong"]) == (10_000, 1000, dtype, 0)
        assert 0 < figure["fast_ms"] <= figure["ms"] <= figure["slow_ms"] and figure["repeats"] >= 2


def spoilt(change):
    """taco's selection with a fault in what it sends, or keeps."""
    right = topk.own(False)

    def unpack(payload, k):
        indices, values = right.unpack(payload, k)
        return change(indices.clone(), values.clone())

    return topk.Contender("spoilt", right.step, unpack)


@pytest.mark.parametrize("change", [
    lambda indices, values: (indices, values * 1.5), lambda indices, values: (indices[1:], values[1:]),
    lambda indices, values: (indices.roll(1), values)], ids=["values", "one_less", "places"])
def test_faults_of_a_selection_are_counted(change):
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert topk.wrong_elements(topk.own(False), gradient, torch.zeros(1000), 10, False) == 0
    assert topk.wrong_elements(spoilt(change), gradient, torch.zeros(1000), 10, False) > 0
    small = topk.Contender("the smallest", lambda gradient, residual, k: smallest(gradient, residual, k))
    assert topk.wrong_elements(small, gradient, torch.zeros(1000), 10, False) == 10


def smallest(gradient, residual, k):
    residual.add_(gradient)
    indices = torch.topk(residual.abs(), k, largest=False).indices
    values = residual[indices]
    residual[indices] = 0
    return indices, values


def test_a_wrong_selection_ends_with_1(capsys, monkeypatch):
    monkeypatch.setattr(topk, "torch_topk", smallest)
    assert bench.main(["topk", "--bytes", "4K", "--repeats", "2"]) == 1
    assert "torch.topk: 10 wrong elements of 1024" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, says", [
    (["--bytes", "many"], "'many' is no size"), (["--ratio", "0"], "--ratio is 0"),
    (["--ratio", "nan"], "--ratio is nan"),
    (["--repeats", "-1"], "--repeats must not be negative"), (["--bytes", "900000G"], "choose a smaller largest size"),
    (["--dtype", "float64"], "invalid choice")])
def test_what_cannot_be_measured_is_refused(capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        bench.main(["topk", *arguments])
    assert ended.value.code == 2 and says in capsys.readouterr().err


def small(*arguments):
    return options.parse(["all_reduce", *MEMORY, "--repeats", "2", "--loopback", "--bytes", "12K", *arguments])


@pytest.mark.parametrize("grid", [["--ranks", "4", "--nodes", "2"], ["--nodes", "2"]], ids=["2d", "flat"])
def test_a_compressed_all_reduce_is_right(grid):
    """All types in one set of ranks, with sizes that fill no slice."""
    with bench_ranks.Ranks(small(*grid, "--topk", "0.03")) as started:
        for dtype in options.TOPK_DTYPES:
            for size in (4, 4002, 40_004):
                for _, _, wrong in started.ask("measure", ("all_reduce", dtype, "sum"), size, 2, True):
                    assert wrong == [0, 0], (dtype, size)


def test_a_wrong_compressed_result_is_seen(monkeypatch):
    """On one rank; and what is kept of a sum, which replicas that are equal do not show."""
    right = compressed.run

    def differs(problem, group, ratio):
        right(problem, group, ratio)
        if problem.rank == 1:
            problem.buffer[3] += 1

    monkeypatch.setattr(compressed, "run", differs)
    with bench_ranks.Ranks(small("--nodes", "2", "--topk", "0.01")) as started:
        answers = started.ask("measure", ("all_reduce", "float32", "sum"), 4096, 1, False)
    assert [wrong for _, _, wrong in answers] == [[0, 0], [0, 1]]

    def loses(problem, group, ratio):
        right(problem, group, ratio)
        problem.buffer[problem.buffer.argmax()] += 1

    monkeypatch.setattr(compressed, "run", loses)
    with bench_ranks.Ranks(small("--nodes", "2", "--topk", "0.01")) as started:
        answers = started.ask("measure", ("all_reduce", "float32", "sum"), 4096, 1, False)
    assert [wrong for _, _, wrong in answers] == [[0, 1], [0, 1]]


def test_its_column(capsys):
    assert bench.main(["all_reduce", *MEMORY, "--repeats", "2", "--bytes", "64K", "--nodes", "2", "--loopback",
                       "--topk", "0.01", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(figure["backend"], figure["algorithm"], figure["wrong"]) for figure in found["figures"]] == [
        ("taco", "", 0), ("taco", "topk 0.01", 0)]
    assert "taco topk 0.01: topk_all_reduce, ratio 0.01, float32 values" in found["machine"]["settings"]


@pytest.mark.parametrize("arguments, says", [
    (["--topk", "0"], "--topk is 0"), (["--topk", "1"], "--topk is 1"), (["--topk", "nan"], "--topk is nan"),
    (["--topk", "0.01"], "but --nodes is 1"),
    (["--topk", "0.01", "--nodes", "2", "--dtype", "float64"], "not --dtype float64"),
    (["--topk", "0.01", "--nodes", "2", "--op", "max"], "--op max"),
    (["--topk", "0.01", "--nodes", "2", "--backend", "gloo"], "but gloo's all_reduce is measured")])
def test_what_cannot_be_compressed_is_refused(capsys, arguments, says):
    with pytest.raises(SystemExit):
        options.parse(["all_reduce", *arguments])
    assert says in capsys.readouterr().err
    with pytest.raises(SystemExit):
        options.parse(["broadcast", "--topk", "0.01", "--nodes", "2"])
    assert "taco's broadcast is measured" in capsys.readouterr().err
