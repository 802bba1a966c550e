"""The outcome of a benchmark as text (nccl-tests' columns), markdown, CSV or JSON."""

import csv
import dataclasses
import itertools
import json
import sys

from .session import Figure

SHARED = ("bytes", "count", "type", "op")
OWN = ("time (us)", "algbw", "busbw", "wrong")


def name_of(figure):
    return f"{figure.backend} {figure.algorithm}".rstrip()


def by_size(figures):
    """The figures of one size after the other."""
    return [list(group) for _, group in itertools.groupby(figures, key=lambda figure: figure.bytes)]


def ratio_names(row):
    """Everyone against the first."""
    return [f"{name_of(other)} / {name_of(row[0])}" for other in row[1:]]


def cells(row):
    """The text of one size's line."""
    first = row[0]
    texts = [str(first.bytes), str(first.count), first.type, first.op]
    for figure in row:
        digits = 2 if figure.time_us < 100 else 1
        texts += [f"{figure.time_us:.{digits}f}", f"{figure.algbw_gbs:.3f}", f"{figure.busbw_gbs:.3f}",
                  str(figure.wrong)]
    return texts + [f"{other.time_us / first.time_us:.1f}" for other in row[1:]]


def about(outcome):
    m = outcome.machine
    return [
        f"all_reduce: {m['ranks']} ranks, {m['nodes']} node{'s' if m['nodes'] > 1 else ''}, {m['cores']} cores "
        f"({m['cpu']}), load {m['load_before']:.2f} at the start",
        f"torch-taco {m['torch_taco']}, torch {m['torch']}, Linux {m['kernel']}, {m['started']}",
        "time: the slowest rank, median of the repeats; algbw and busbw in GB/s; wrong: elements",
    ]


def text(outcome):
    rows = by_size(outcome.figures)
    headings = [*SHARED, *OWN * len(rows[0]), *ratio_names(rows[0])]
    lines = [cells(row) for row in rows]
    widths = [max(len(line[column]) for line in [headings, *lines]) for column in range(len(headings))]

    def aligned(line):
        return "  ".join(cell.rjust(width) for cell, width in zip(line, widths))

    # Above the columns of each contender its name.
    above = "  ".join(" " * width for width in widths[: len(SHARED)])
    for number, figure in enumerate(rows[0]):
        begin = len(SHARED) + number * len(OWN)
        span = sum(widths[begin : begin + len(OWN)]) + 2 * (len(OWN) - 1)
        above += "  " + f" {name_of(figure)} ".center(span, "-")
    return "\n".join([*("# " + line for line in about(outcome)), above, aligned(headings), *map(aligned, lines)])


def markdown(outcome):
    rows = by_size(outcome.figures)
    own = [f"{name_of(figure)} {column}" for figure in rows[0] for column in OWN]
    headings = [*SHARED, *own, *ratio_names(rows[0])]
    lines = [headings, ["---:"] * len(headings), *map(cells, rows)]
    return "\n".join([*(line + "  " for line in about(outcome)), "", *("| " + " | ".join(line) + " |" for line in lines)])


def show(outcome, request):
    """Prints it; the exit code is 1 if any element was wrong."""
    if request.form == "json":
        print(json.dumps({"machine": outcome.machine, "figures": [dataclasses.asdict(f) for f in outcome.figures]},
                         indent=1))
    elif request.form == "csv":
        writer = csv.DictWriter(sys.stdout, [field.name for field in dataclasses.fields(Figure)])
        writer.writeheader()
        writer.writerows(dataclasses.asdict(figure) for figure in outcome.figures)
    else:
        print({"text": text, "markdown": markdown}[request.form](outcome))
    bad = [figure for figure in outcome.figures if figure.wrong]
    for figure in bad:
        print(f"taco bench: {name_of(figure)}: {figure.wrong} wrong elements at {figure.bytes} bytes", file=sys.stderr)
    return 1 if bad else 0
