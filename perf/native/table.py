"""What perf/native/run makes of the figures of its process sets: one JSON, one table."""

import statistics

SUFFIX = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def number_of(text):
    return int(text[:-1]) * SUFFIX[text[-1]] if text[-1] in SUFFIX else int(text)


def sizes_of(text, step):
    """The sizes of '8-64M', one text each: from the largest down by `step`, and the smallest."""
    first, _, last = text.partition("-")
    first, size = number_of(first), number_of(last or first)
    sizes = []
    while size > first:
        sizes.append(str(size))
        size //= step
    return [str(first), *reversed(sizes)]


def merged(outcomes):
    """`outcomes`: (process set, what its ranks wrote), one for each turn."""
    machine = dict(outcomes[0][1]["machine"])
    machine["flag_ns"] = round(statistics.median(outcome["machine"]["flag_ns"] for _, outcome in outcomes), 1)
    contenders, figures = {}, []
    for process_set, outcome in outcomes:
        contenders.update((text.split(":")[0], text) for text in outcome["machine"]["contenders"])
        figures += [{**figure, "set": process_set.name} for figure in outcome["figures"]]
    machine["contenders"] = list(contenders.values())
    return {"machine": machine, "figures": figures}


def ratio(peer, figures):
    """A peer's time as a multiple of TACO's in the same processes at the same size; None without TACO there."""
    for figure in figures:
        if figure["backend"] == "taco" and (figure["set"], figure["bytes"]) == (peer["set"], peer["bytes"]):
            return peer["time_us"] / figure["time_us"]
    return None


def shown(microseconds):
    return f"{microseconds:.2f}" if microseconds < 100 else f"{microseconds:.0f}"


def rows(whole):
    """A line for each size: TACO (median over the sets it was in), each peer with its ratio, the best peer's ratio."""
    figures = whole["figures"]
    peers = list(dict.fromkeys(figure["backend"] for figure in figures if figure["backend"] != "taco"))
    headings = ["bytes", "count", "taco us", "p99", "GB/s", "cpu us", "wrong"]
    for peer in peers:
        headings += [f"{peer} us", "p99", "GB/s", "cpu us", "wrong", "x"]
    headings += ["best", "x"]
    lines = []
    for size in sorted({figure["bytes"] for figure in figures}):
        here = [figure for figure in figures if figure["bytes"] == size]
        own = [figure for figure in here if figure["backend"] == "taco"]
        line = [str(size), str(here[0]["count"])]
        line += columns(own)
        ratios = {}
        for name in peers:
            of_peer = [figure for figure in here if figure["backend"] == name]
            line += columns(of_peer)
            against = [value for value in (ratio(figure, here) for figure in of_peer) if value is not None]
            if against:
                ratios[name] = statistics.median(against)
            line.append(f"{ratios[name]:.2f}" if name in ratios else "-")
        best = min(ratios, key=ratios.get, default=None)
        line += [best, f"{ratios[best]:.2f}"] if best else ["-", "-"]
        lines.append(line)
    return headings, lines


def columns(figures):
    """One contender at one size; of several sets the median."""
    if not figures:
        return ["-"] * 5
    middle = lambda key: statistics.median(figure[key] for figure in figures)  # noqa: E731
    return [shown(middle("time_us")), shown(middle("p99_us")), f"{middle('algbw_gbs'):.3f}",
            shown(middle("cpu_seconds") * 1e6), str(sum(figure["wrong"] for figure in figures))]


def text(whole, request):
    machine = whole["machine"]
    headings, lines = rows(whole)
    widths = [max(len(line[column]) for line in [headings, *lines]) for column in range(len(headings))]
    sets = list(dict.fromkeys(figure["set"] for figure in whole["figures"]))
    about = [
        f"core to core flag: {machine['flag_ns']:.0f} ns",
        f"{request.op} {request.dtype}, {machine['ranks']} ranks on {machine['usable_cpus']} usable cores "
        f"({machine['cpu']}), {machine['started']}",
        *machine["contenders"],
        "time: slowest rank, median; cpu: all ranks, one operation; x: the peer's time / taco's in the same processes",
    ]
    if len(sets) > 1:
        about.append(f"{len(sets)} process sets took turns at every size, taco in each: " + ", ".join(sets))

    def aligned(line):
        return "  ".join(cell.rjust(width) for cell, width in zip(line, widths))

    return "\n".join([*(f"# {line}" for line in about), aligned(headings), *map(aligned, lines)])
