"""The outcome of a benchmark as text (nccl-tests' columns), markdown, CSV or JSON."""

import csv
import dataclasses
import json
import sys

from . import plot
from .figures import DdpFigure, Figure, baseline, by_size

COLUMNS = ("bytes", "count", "type", "op", "backend", "time (us)", "algbw", "busbw", "wrong", "p50", "p99", "CPU (us)",
           "eta_mem", "eta_net", "times")
DDP_COLUMNS = ("backend", "step (ms)", "without comm.", "of it backward", "not hidden", "CPU (ms)", "wrong", "times")
LEGEND = ("time: the slowest rank, median of the repeats = p50; p99: of the repeats; us; algbw and busbw in GB/s; "
          "wrong: elements; CPU: of all ranks, an operation; eta: limit / time; times: time / the first one's")
DDP_LEGEND = ("step: forward, backward, averaging; the slowest rank, median; not hidden: step - the one without "
              "communication beside it; wrong: elements; CPU: of all ranks; times: not hidden / the first one's")


def microseconds(value):
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def gigabytes(value):
    return f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def fraction(value):
    return "-" if value is None else f"{value:.2f}"


def ratio(value, to):
    return "-" if to <= 0 else f"{value / to:.2f}" if value < 10 * to else f"{value / to:.1f}"


def cells(figure, row):
    return [str(figure.bytes), str(figure.count), figure.type, figure.op, figure.name, microseconds(figure.time_us),
            gigabytes(figure.algbw_gbs), gigabytes(figure.busbw_gbs), str(figure.wrong), microseconds(figure.p50_us),
            microseconds(figure.p99_us), microseconds(figure.cpu_us), fraction(figure.eta_mem),
            fraction(figure.eta_net), ratio(figure.time_us, baseline(figure, row).time_us)]


def ddp_cells(figure, row):
    return [figure.name, *(f"{value:.1f}" for value in (figure.step_ms, figure.silent_step_ms, figure.backward_ms,
                                                        figure.exposed_ms, figure.cpu_ms)),
            str(figure.wrong), ratio(figure.exposed_ms, row[0].exposed_ms)]


def is_ddp(outcome):
    return isinstance(outcome.figures[0], DdpFigure)


def machine_lines(outcome):
    """What it ran on; data files of other programs and earlier versions leave some of it out."""
    m = outcome.machine
    flag = f"{m['flag_ns']:.0f} ns" if m["flag_ns"] else "not measured"
    memory = f"; memory {m['memory_gbs']} GB/s" if m.get("memory_gbs") else ""
    load = f", load {m['load_before']:.2f} at the start" if m["load_before"] is not None else ""
    versions = (("torch-taco", m["torch_taco"]), ("commit", m.get("commit")), ("torch", m["torch"]),
                ("Linux", m["kernel"]))
    lines = [
        f"{m['collective']}: {m['ranks']} ranks, {m['nodes']} node{'s' if m['nodes'] > 1 else ''}"
        f"{' (' + m['network'] + ')' if m.get('network') else ''}, {m['cores']} cores ({m['cpu']}), {places(m)}{load}",
        f"core to core flag {flag}{memory}",
        ", ".join([*(f"{name} {value}" for name, value in versions if value), m["started"]]),
    ]
    if is_ddp(outcome):
        first = outcome.figures[0]
        lines.append(f"gradients of a ResNet-50: {first.tensors} tensors, {first.bytes / 1e6:.1f} MB")
    return lines + [f"settings: {setting}" for setting in m.get("settings", [])]


def places(machine):
    if machine["ranks"] > machine["cores"]:
        return "more ranks than cores"
    return "each rank bound to a core" if machine.get("bound") else "ranks not bound to cores"


def text(outcome):
    if is_ddp(outcome):
        headings, legend = DDP_COLUMNS, DDP_LEGEND
        lines = [ddp_cells(figure, outcome.figures) for figure in outcome.figures]
    else:
        headings, legend = COLUMNS, LEGEND
        lines = [cells(figure, row) for row in by_size(outcome.figures) for figure in row]
    widths = [max(len(line[column]) for line in [headings, *lines]) for column in range(len(headings))]
    aligned = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in [headings, *lines]]
    return "\n".join([*("# " + line for line in [*machine_lines(outcome), legend]), *aligned])


def size(count):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def table(outcome):
    """Rows of cells: a line for each size; the ratios are others' times to the first one's in the same processes."""
    if is_ddp(outcome):
        return [list(DDP_COLUMNS), *(ddp_cells(figure, outcome.figures) for figure in outcome.figures)]
    rows = [{figure.name: figure for figure in row} for row in by_size(outcome.figures)]
    # One that gave up midway has no figures from there on.
    everyone = {name: figure for row in reversed(rows) for name, figure in row.items()}
    names = [name for name in dict.fromkeys(name for row in rows for name in row)]
    against = {name: baseline(figure, everyone.values()).name for name, figure in everyone.items()}
    columns = [(f"{name}: us", name, lambda f: microseconds(f.time_us)) for name in names]
    columns += [(f"{name}: algbw", name, lambda f: gigabytes(f.algbw_gbs)) for name in names]
    columns += [(f"{name}: CPU us", name, lambda f: microseconds(f.cpu_us)) for name in names
                if everyone[name].cpu_us is not None]
    for eta in ("eta_mem", "eta_net"):
        if any(getattr(figure, eta) is not None for figure in outcome.figures):
            columns += [(f"{name}: {eta}", name, lambda f, eta=eta: fraction(getattr(f, eta))) for name in names]
    lines = [["bytes", *(heading for heading, _, _ in columns),
              *(f"{name} / {against[name]}" for name in names if against[name] != name)]]
    for row in rows:
        lines.append([size(next(iter(row.values())).bytes),
                      *(form(row[name]) if name in row else "-" for _, name, form in columns),
                      *(ratio(row[name].time_us, row[against[name]].time_us) if name in row else "-"
                        for name in names if against[name] != name)])
    return lines


def markdown(outcome):
    headings, *lines = table(outcome)
    rows = [headings, ["---:"] * len(headings), *lines]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*(line + "  " for line in machine_lines(outcome)), "", *lines])


def as_json(outcome):
    figures = [dataclasses.asdict(figure) for figure in outcome.figures]
    return json.dumps({"machine": outcome.machine, "figures": figures}, indent=1)


def write_csv(outcome, file):
    fields = [field.name for field in dataclasses.fields(DdpFigure if is_ddp(outcome) else Figure)]
    writer = csv.DictWriter(file, ["flag_ns", *fields])
    writer.writeheader()
    for figure in outcome.figures:
        writer.writerow({"flag_ns": outcome.machine["flag_ns"], **dataclasses.asdict(figure)})


def show(outcome, request):
    """Prints it; the exit code is 1 if any element was wrong."""
    if request.form == "json":
        print(as_json(outcome))
    elif request.form == "csv":
        write_csv(outcome, sys.stdout)
    else:
        print({"text": text, "markdown": markdown}[request.form](outcome))
    if request.plot:
        plot.write(outcome, request.plot)
    bad = [figure for figure in outcome.figures if figure.wrong]
    for figure in bad:
        print(f"taco bench: {figure.name}: {figure.wrong} wrong elements at {figure.bytes} bytes", file=sys.stderr)
    return 1 if bad else 0
