"""`taco bench`: its operations, columns and forms, its checks, its errors. Nothing here asserts a time."""

import csv
import dataclasses
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import xml.etree.ElementTree

import pytest
import torch
from namespaces import needs_namespaces
from torch_taco import bench
from torch_taco.bench import ddp, figures, limits, native, operations, options, plot, problem, report, session
from torch_taco.bench import ranks as bench_ranks

# Given: to measure it takes 100 MB and a while.
MEMORY = ["--memory-gbs", "20"]
TINY = [*MEMORY, "--repeats", "2", "--bytes"]


def run(capsys, *arguments, collective="all_reduce"):
    status = bench.main([collective, *TINY, *arguments])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    return printed.out


def read_json(capsys, *arguments, **options_):
    kept = json.loads(run(capsys, *arguments, "--json", **options_))
    return kept["machine"], kept["figures"]


def test_text_has_the_columns_of_nccl_tests(capsys, tmp_path):
    drawn = tmp_path / "out.svg"
    lines = run(capsys, "8,64K", "--peers", "gloo", "--plot", str(drawn)).splitlines()
    about = [line for line in lines if line.startswith("#")]
    assert "all_reduce: 2 ranks, 1 node" in about[0]
    assert re.search(r"core to core flag (\d+ ns|not measured)", about[1])
    assert any(line.startswith("# settings: gloo") for line in about)
    headings, *rows = (re.split(r"\s{2,}", line.strip()) for line in lines[len(about):])
    assert headings == list(report.COLUMNS)
    assert [(row[0], row[1], row[4]) for row in rows] == [
        (str(size), str(size // 4), backend) for size in (8, 65536) for backend in ("taco", "gloo")]
    for row in rows:
        assert row[headings.index("wrong")] == "0"
        assert row[headings.index("time (us)")] == row[headings.index("p50")]
    tree = xml.etree.ElementTree.parse(drawn)
    assert len(tree.findall("{*}polyline")) == 2
    texts = {element.text for element in tree.iter() if element.tag.endswith("text")}
    assert {"taco", "gloo", "64 KiB"} <= texts


def test_json_of_pretended_nodes_with_both_algorithms_and_a_peer(capsys):
    machine, found = read_json(capsys, "4K,300K", "--ranks", "4", "--nodes", "2", "--loopback", "--algorithms",
                               "flat,2d", "--peers", "gloo")
    assert (machine["ranks"], machine["nodes"]) == (4, 2)
    assert machine["network"] == "loopback (--loopback is given)"
    assert "taco 2d: LIGHT_2D_ALLREDUCE=1" in machine["settings"]
    assert [(f["bytes"], f["backend"], f["algorithm"]) for f in found] == [
        (size, *contender) for size in (4096, 307200)
        for contender in (("taco", "flat"), ("taco", "2d"), ("gloo", ""))]
    for figure in found:
        assert figure["wrong"] == 0 and figure["repeats"] == 2
        assert figure["algbw_gbs"] == pytest.approx(figure["bytes"] / figure["time_us"] / 1e3)
        assert figure["busbw_gbs"] == pytest.approx(figure["algbw_gbs"] * 1.5)
        assert figure["fast_us"] <= figure["p50_us"] <= figure["slow_us"] <= figure["p99_us"]
        assert figure["cpu_us"] > 0 and figure["eta_net"] is None


def test_buffers_in_shared_memory(capsys):
    machine, found = read_json(capsys, "1M,64", "--algorithms", "flat,shared")
    assert machine["settings"] == ["taco flat: LIGHT_2D_ALLREDUCE=0", "taco shared: buffers of torch_taco.shared_empty"]
    assert [(f["bytes"], f["algorithm"], f["wrong"]) for f in found] == [
        (size, algorithm, 0) for size in (64, 1 << 20) for algorithm in ("flat", "shared")]


@needs_namespaces
def test_two_nodes_at_a_rate(capsys):
    """The limit of the network holds whatever runs: nobody is faster than the formula, but for what a bucket holds."""
    machine, found = read_json(capsys, "1M", "--nodes", "2", "--rate", "100mbit", "--peers", "gloo")
    assert "tbf 100mbit" in machine["network"] and machine["settings"][1] == "gloo: interface eth0"
    assert [f["backend"] for f in found] == ["taco", "gloo"]
    for figure in found:
        assert figure["wrong"] == 0
        assert 0 < figure["eta_net"] < 1.1
        assert figure["eta_net"] == pytest.approx((1 << 23) / 0.956e8 / figure["time_us"] * 1e6)


def small(collective, *arguments):
    return options.parse([collective, *TINY, "12K", *arguments])


def test_every_operation_is_right():
    """All in one set of ranks, with sizes that fill no part."""
    with bench_ranks.Ranks(small("all_reduce", "--peers", "gloo")) as started:
        for collective in operations.OPERATIONS:
            for answer in started.ask("measure", (collective, "float32", "sum"), 4100, 3, True):
                seconds, cpu, wrong = answer
                assert wrong == [0, 0], collective
                assert [len(of_one) for of_one in seconds] == [len(of_one) for of_one in cpu] == [3, 3]
        assert all(taken > 0 for taken in started.ask("memory_seconds")[0])


def test_every_dtype_and_op_is_right():
    with bench_ranks.Ranks(small("all_reduce", "--ranks", "3")) as started:
        for dtype in options.DTYPES:
            for op in options.OPS:
                for collective in ("all_reduce", "reduce_scatter"):
                    answers = started.ask("measure", (collective, dtype, op), 4002, 1, True)
                    assert [wrong for _, _, wrong in answers] == [[0]] * 3, (collective, dtype, op)


def test_csv_has_a_line_for_each_figure(capsys):
    rows = list(csv.DictReader(io.StringIO(run(capsys, "4002", "--dtype", "bfloat16", "--op", "avg", "--csv"))))
    assert [(row["bytes"], row["type"], row["op"], row["wrong"], row["backend"]) for row in rows] == [
        ("4002", "bfloat16", "avg", "0", "taco")]
    assert set(rows[0]) == {"flag_ns", *(field.name for field in dataclasses.fields(figures.Figure))}


def test_markdown_is_a_table(capsys):
    out = run(capsys, "1K", "--markdown", collective="all_gather")
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert lines[0].startswith("| bytes | taco: us | taco: algbw |")
    assert len({line.count("|") for line in lines}) == 1 and len(lines) == 3
    assert lines[2].startswith("| 1 KiB |")


RANKS = 3
PROBLEM_BYTES = 4 * (RANKS * 1000 + 1)


def results_of(collective, inputs):
    """What every rank must get, worked out from all inputs."""
    total = sum(inputs)
    of_rank = [torch.cat([given.chunk(RANKS)[rank] for given in inputs]) for rank in range(RANKS)]
    return {
        "all_reduce": [total] * RANKS, "all_gather": [torch.cat(inputs)] * RANKS, "reduce_scatter": total.chunk(RANKS),
        "broadcast": [inputs[0]] * RANKS, "all_to_all": of_rank, "barrier": inputs,
        "sendrecv": [inputs[rank - 1] for rank in range(RANKS)],
    }[collective]


@pytest.mark.parametrize("collective", operations.OPERATIONS)
def test_wrong_elements_are_counted(collective):
    problems = [problem.Problem(collective, PROBLEM_BYTES, torch.float32, "sum", rank, RANKS) for rank in range(RANKS)]
    assert len({tuple(posed.input[:50].tolist()) for posed in problems}) == RANKS, "two ranks have the same input"
    assert len(set(problems[0].input.tolist())) == len(problems[0].input), "a value comes twice"
    for posed, result in zip(problems, results_of(collective, [posed.input for posed in problems])):
        posed.prepare()
        posed.result.copy_(result)
        assert posed.wrong() == 0
        posed.result[0] += 1
        posed.result[-1] -= 1
        assert posed.wrong() == 2
        posed.result.copy_(result.roll(256))
        assert posed.wrong() == len(result), "what lands in another place is not seen"


def test_errors_beyond_the_first_part_are_seen():
    posed = problem.Problem("all_reduce", 4 * (problem.PART + 5), torch.float32, "sum", 0, 2)
    posed.result.copy_(posed.expected(0, posed.whole))
    posed.result[problem.PART + 2] -= 1
    assert posed.wrong() == 1


def test_buffers_are_written_anew():
    posed = problem.Problem("all_gather", 4096, torch.int32, "sum", 0, 2)
    posed.result.copy_(posed.expected(0, posed.whole))
    posed.buffer.zero_()
    posed.prepare()
    assert torch.equal(posed.buffer, posed.input) and posed.wrong() == posed.whole


def test_a_wrong_result_of_a_rank_ends_with_1(capsys, monkeypatch):
    right = problem.Problem.run

    def spoilt(self, group):
        right(self, group)
        if self.rank == 1:
            self.result[3] += 1

    monkeypatch.setattr(problem.Problem, "run", spoilt)
    assert bench.main(["all_reduce", *TINY, "1K"]) == 1
    assert "taco: 3 wrong elements at 1024 bytes" in capsys.readouterr().err  # two of the trial and the last one


def test_a_barrier_that_lets_go_too_early_is_seen(monkeypatch):
    monkeypatch.setattr(problem.Problem, "run", lambda self, group: None)
    monkeypatch.setattr(bench_ranks, "LATE_SECONDS", 1.0)
    with bench_ranks.Ranks(small("barrier")) as started:
        answers = started.ask("measure", ("barrier", "float32", "sum"), 0, 2, True)
    assert sum(wrong[0] for _, _, wrong in answers) == 2


def test_the_gradients_are_a_resnet50s():
    sizes = [parameter.numel() for parameter in ddp.resnet50().parameters()]
    assert len(sizes) == 161 and sum(sizes) == 25_557_032


def test_what_backward_did_not_hide():
    """(whole, backward, CPU) of two steps of two ranks, with communication and without: the slowest rank counts."""
    loud = [[(5.0, 3.0, 1.0), (9.0, 4.0, 1.0)], [(6.0, 3.0, 1.5), (8.0, 4.0, 1.5)]]
    silent = [[(4.0, 3.0, 1.0), (6.0, 4.0, 1.0)], [(3.0, 2.0, 1.0), (7.0, 5.0, 1.0)]]
    figure = session.ddp_figure(options.Contender("taco"), [(loud[rank], silent[rank], rank) for rank in range(2)])
    assert (figure.step_ms, figure.silent_step_ms, figure.backward_ms) == (7500.0, 5500.0, 4000.0)
    assert (figure.exposed_ms, figure.cpu_ms, figure.wrong, figure.repeats) == (2000.0, 2500.0, 1, 2)
    assert (figure.tensors, figure.bytes) == (161, 4 * 25_557_032)


def test_ddp(capsys, monkeypatch):
    """A network of the same kind, but small."""
    monkeypatch.setattr(ddp, "BLOCKS", ((4, 1), (8, 1)))
    assert bench.main(["ddp", "--repeats", "2", "--peers", "gloo", "--json"]) == 0
    outcome = figures.outcome_of(json.loads(capsys.readouterr().out))
    assert outcome.machine["settings"][0] == "taco: DDP_DISABLE_COMM_MEM=0"
    assert [figure.name for figure in outcome.figures] == ["taco", "gloo"]
    for figure in outcome.figures:
        assert figure.wrong == 0 and figure.repeats == 2
        assert 0 < figure.backward_ms < figure.silent_step_ms
    assert "without comm." in report.text(outcome) and len(report.table(outcome)) == 3


@pytest.mark.parametrize("collective, two, four", [
    ("all_reduce", 1.0, 1.5), ("all_gather", 0.5, 0.75), ("reduce_scatter", 0.5, 0.75), ("broadcast", 1, 1),
    ("all_to_all", 0.5, 0.75), ("sendrecv", 1, 1), ("barrier", 0, 0)])
def test_bus_bandwidth_is_nccl_tests(collective, two, four):
    factor = operations.OPERATIONS[collective].bus_factor
    assert (factor(2), factor(4)) == (two, four)


@pytest.mark.parametrize("collective, counted", [("all_reduce", (301, 301)), ("broadcast", (301, 301)),
                                                 ("sendrecv", (301, 301)), ("all_gather", (300, 100)),
                                                 ("reduce_scatter", (300, 100)), ("all_to_all", (300, 100))])
def test_counts_are_nccl_tests(collective, counted):
    """Whole elements, equal parts, and at least one element a rank."""
    operation = operations.OPERATIONS[collective]
    assert operations.counts(operation, 1207, 4, 3) == counted
    assert operations.counts(operation, 1, 4, 3) == ((3, 1) if operation.of_all_ranks else (1, 1))


def test_limits():
    operation = operations.OPERATIONS["all_reduce"]
    cache = 32 << 20
    # 4 ranks read and write 64 MB each: 512 MB at 40 GB/s are 12.8 ms.
    assert limits.eta_mem(operation, 64_000_000, 4, 40e9, 12.8e-3, cache) == pytest.approx(1.0)
    assert limits.eta_mem(operation, 64_000_000, 4, 40e9, 25.6e-3, cache) == pytest.approx(0.5)
    assert limits.eta_mem(operation, 1_000_000, 4, 40e9, 1e-3, cache) is None  # in cache
    # 2 nodes: S; 4 nodes: 1.5 S through an interface.
    assert limits.eta_net(operation, 956_000, 4, 2, 1e9, 8e-3) == pytest.approx(1.0)
    assert limits.eta_net(operation, 956_000, 8, 4, 1e9, 24e-3) == pytest.approx(0.5)
    assert limits.eta_net(operation, 956_000, 2, 1, 1e9, 1e-3) is None
    assert limits.eta_net(operations.OPERATIONS["all_to_all"], 956_000, 4, 2, 1e9, 8e-3) == pytest.approx(1.0)
    assert limits.eta_net(operations.OPERATIONS["all_gather"], 956_000, 4, 2, 1e9, 4e-3) == pytest.approx(1.0)
    assert limits.last_cache_bytes("/nonexistent", otherwise=7) == 7


NATIVE_FIGURE = {"bytes": 4096, "count": 1024, "type": "float32", "op": "all_reduce", "algorithm": "",
                 "p50_us": 2.0, "p99_us": 3.0, "min_us": 1.0, "algbw_gbs": 2.0, "busbw_gbs": 2.0, "wrong": 0,
                 "cpu_seconds": 4e-6, "repeats": 5, "settings": "", "set": "openmpi"}
FAKE_NATIVE = """#!/usr/bin/env python3
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
size = int(given["--bytes"].split("-")[0])
times = {{"taco": 2.0, "openmpi": 5.0}}
figures = [dict({figure!r}, bytes=size, backend=backend, time_us=time) for backend, time in times.items()]
machine = {{"ranks": 2, "usable_cpus": 2, "cpu": "x", "flag_ns": 50.0, "started": "now",
           "contenders": ["openmpi: tuned [a=1]"]}}
json.dump({{"machine": machine, "figures": figures}}, open(given["--json"], "w"))
print("# mpich: not measured: there is no mpiexec", file=sys.stderr)
"""


@pytest.fixture
def fake_native(monkeypatch, tmp_path):
    """A checkout whose perf/native/run measures nothing."""
    program = tmp_path / native.PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(FAKE_NATIVE.format(figure=NATIVE_FIGURE))
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)


def test_native_peers_stand_in_the_same_table(capsys, fake_native):
    out = run(capsys, "4K", "--peers", "openmpi", "--markdown")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    assert rows[0][1:4] == ["taco: us", "taco (C++, openmpi): us", "openmpi (C++): us"]
    assert rows[0][-1] == "openmpi (C++) / taco (C++, openmpi)"
    assert rows[2][2:4] == ["2.00", "5.00"] and rows[2][-1] == "2.50"
    assert "settings: openmpi: tuned [a=1]" in out


def test_a_peer_that_is_not_installed(capsys, fake_native, monkeypatch):
    assert bench.main(["all_reduce", *TINY, "4K", "--peers", "mpich"]) == 1
    said = capsys.readouterr().err
    assert "--peers mpich: it is not installed (there is no mpiexec)" in said and "make peers" in said


def test_a_peer_that_crashes_is_left_out_from_there_on(capsys, fake_native):
    native.PROGRAM.write_text(native.PROGRAM.read_text().replace("figures =", """
if size == 8192:
    print("# openmpi: given up at 8192-8192: it ended with 7", file=sys.stderr)
    sys.exit(1)
figures =""", 1))
    out = run(capsys, "4K,8K,16K", "--peers", "openmpi", "--markdown")
    assert "settings: openmpi: given up at 8192-8192 bytes: it ended with 7" in out
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    assert [row[3] for row in rows[2:]] == ["5.00", "-", "-"]
    assert [row[-1] for row in rows[2:]] == ["2.50", "-", "-"]


def test_a_native_run_that_fails_says_why(capsys, fake_native):
    native.PROGRAM.write_text("#!/bin/sh\necho 'the build failed' >&2; exit 3\n")
    assert bench.main(["all_reduce", *TINY, "4K", "--peers", "openmpi"]) == 1
    assert "could not measure it (exit code 3): the build failed" in capsys.readouterr().err


@needs_namespaces
def test_native_peers_run_inside_the_nodes(capsys, fake_native):
    """With the hosts, and an agent by which one node reaches the other."""
    program_ = native.PROGRAM.read_text()
    native.PROGRAM.write_text(program_ + """
import subprocess
assert given["--hosts"] == "10.77.0.1:1,10.77.0.2:1"
command = [given["--agent"], "-x", "10.77.0.2", "hostname"]
said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
assert said.strip() == "taco-node1", said
""")
    _, found = read_json(capsys, "4K", "--nodes", "2", "--rate", "1gbit", "--peers", "openmpi")
    assert [figure["backend"] for figure in found] == ["taco", "taco", "openmpi"]
    assert found[2]["eta_net"] == pytest.approx(4096 * 8 / 0.956e9 / 5e-6)


def test_data_files_of_perf_native_are_read():
    figure = dict(NATIVE_FIGURE, backend="openmpi", time_us=2.0)
    machine = {"ranks": 2, "usable_cpus": 2, "cpu": "x", "flag_ns": 50.0, "started": "now", "contenders": ["a: 4.1"]}
    sizes = [dict(figure, bytes=size) for size in (4096, 64, 4096)]
    outcome = figures.outcome_of({"machine": machine, "figures": sizes})
    assert [found.bytes for found in outcome.figures] == [64, 4096, 4096]
    assert outcome.figures[0].cpu_us == pytest.approx(4.0)
    assert "core to core flag 50 ns" in report.markdown(outcome)
    assert plot.svg(outcome).count("<polyline") == 1


@pytest.mark.parametrize("text, step, sizes", [
    ("8-64", 2, (8, 16, 32, 64)),
    ("1K-20K", 4, (1024, 4096, 16384)),
    ("2M", 2, (2 << 20,)),
    ("4K,8,4K", 2, (8, 4096)),
])
def test_sizes(text, step, sizes):
    assert options.sizes_of(text, step) == sizes


def test_ranks_are_bound_where_that_hinders_nobody(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4, 7})
    for arguments, bound in ((["--ranks", "2"], True), (["--ranks", "3"], False), (["--peers", "gloo"], False),
                             (["--peers", "gloo", "--bind", "core"], True), (["--bind", "none"], False)):
        assert options.parse(["all_reduce", "--bytes", "8", *arguments]).bind is bound, arguments


@pytest.mark.parametrize("arguments, says", [
    (["--ranks", "1"], "--ranks is 1"),
    (["--nodes", "3"], "--nodes is 3"),
    (["--bytes", "64-8"], "'64-8' is empty"),
    (["--bytes", "many"], "'many' is no size"),
    (["--algorithms", "ring"], "ring is not one of flat, 2d, shared"),
    (["--backend", "gloo", "--algorithms", "2d"], "--algorithms are taco's"),
    (["--bytes", "900000G"], "choose a smaller largest size"),
    (["--rate", "1gbit"], "--nodes is 1"),
    (["--ranks", "1000", "--bytes", "8", "--bind", "core"], "a core for each of 1000 ranks"),
    (["--rate", "fast", "--nodes", "2"], "'fast' is no rate"),
    (["--rate", "1gbit", "--nodes", "2", "--loopback"], "leave --loopback out"),
    (["--peers", "gloo,nccl"], "nccl is not one of gloo, openmpi"),
    (["--peers", "openmpi", "--dtype", "int8"], "perf/native, which has no --dtype int8"),
    (["--peers", "mpich", "--nodes", "2"], "over several nodes only gloo, openmpi, openmpi-han"),
    (["--peers", "openmpi", "--nodes", "2", "--loopback"], "so no --loopback"),
])
def test_what_cannot_be_measured_is_refused(capsys, arguments, says):
    with pytest.raises(SystemExit) as ended:
        bench.main(["all_reduce", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_what_a_collective_lacks_is_refused(capsys):
    for arguments, says in ((["broadcast", "--algorithms", "2d"], "but broadcast is measured"),
                            (["ddp", "--algorithms", "shared"], "ddp has its buckets in shared memory"),
                            (["barrier", "--plot", "x.svg"], "of which barrier has none"),
                            (["sendrecv", "--peers", "openmpi"], "which has no collective sendrecv")):
        with pytest.raises(SystemExit):
            options.parse(arguments)
        assert says in capsys.readouterr().err


def test_a_failing_rank_ends_the_run_with_its_reason(capsys):
    assert bench.main(["all_reduce", *TINY, "8", "--backend", "no_such_backend"]) == 1
    assert "no_such_backend" in capsys.readouterr().err.lower()


def test_a_setting_that_is_wrong_is_told_once(capsys, monkeypatch):
    monkeypatch.setenv("LIGHT_INTRA_SIZE", "many")
    assert bench.main(["all_reduce", *TINY, "8"]) == 1
    assert "LIGHT_INTRA_SIZE has the value 'many'" in capsys.readouterr().err


PUBLISH = pathlib.Path(__file__).resolve().parents[2] / "perf" / "publish"


def test_the_published_page_is_what_the_data_files_say(monkeypatch, tmp_path):
    """Also that every table has its plot."""
    loader = importlib.machinery.SourceFileLoader("publish", str(PUBLISH))
    publish = importlib.util.module_from_spec(importlib.util.spec_from_loader("publish", loader))
    loader.exec_module(publish)
    published = publish.PAGE.read_text()
    page, plots = tmp_path / "performance.md", tmp_path / "plots"
    page.write_text(published)
    monkeypatch.setattr(publish, "PAGE", page)
    monkeypatch.setattr(publish, "PLOTS", plots)
    publish.redraw(json.loads(publish.CONTENTS.read_text()))
    assert page.read_text() == published, "run perf/publish"
    shown = re.findall(r"\]\(plots/(.*)\)", published)
    assert shown and sorted(shown) == sorted(file.name for file in plots.iterdir())
    for name in shown:
        assert (publish.ROOT / "docs" / "plots" / name).read_text() == (plots / name).read_text(), "run perf/publish"
