"""Charts as SVG: two logarithmic axes, a line for each contender."""

import html
import math

from .errors import BenchError
from .figures import by_size

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 196, 34, 48
# To be told apart by those who see fewer colours, too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


def size_name(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count:g} B"


def time_name(microseconds):
    for unit, name in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if microseconds >= unit:
            return f"{microseconds / unit:g} {name}"
    return f"{microseconds * 1000:g} ns"


class Axis:
    """From values to places on the paper."""

    def __init__(self, values, begin, end):
        self.low, self.high = math.log(min(values)), math.log(max(values))
        if self.low == self.high:
            self.low, self.high = self.low - 1, self.high + 1
        self.begin, self.end = begin, end

    def place(self, value):
        return self.begin + (math.log(value) - self.low) / (self.high - self.low) * (self.end - self.begin)

    def powers_of_ten(self):
        first = math.ceil(self.low / math.log(10) - 1e-9)
        last = math.floor(self.high / math.log(10) + 1e-9)
        return [10.0**exponent for exponent in range(first, last + 1)]


def title_of(machine):
    nodes = f"{machine['nodes']} nodes, " if machine["nodes"] > 1 else ""
    rate = f" at {machine['rate']}" if machine.get("rate") else ""
    flag = f", flag {machine['flag_ns']:.0f} ns" if machine.get("flag_ns") else ""
    return f"{machine['collective']}, {nodes}{machine['ranks']} ranks on {machine['cores']} cores{rate}{flag}"


def svg(outcome):
    lines = {}
    for row in by_size(outcome.figures):
        for figure in row:
            lines.setdefault(figure.name, []).append((figure.bytes, figure.time_us))
    sizes = sorted({size for line in lines.values() for size, _ in line})
    ticks = [(size, size_name(size)) for size in sizes[:: math.ceil(len(sizes) / 9)]]
    return chart(title_of(outcome.machine), lines, ticks, time_name, "size")


def chart(title, lines, ticks, name_up, across_title):
    """lines: name -> [(x, y)], all above 0; ticks: [(x, text)]; name_up: the text for a y, a power of ten."""
    points = [point for line in lines.values() for point in line]
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    across = Axis([x for x, _ in points], LEFT, right)
    up = Axis([y for _, y in points], bottom, TOP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             f'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="20" font-size="13" font-weight="bold">{html.escape(title)}</text>']
    for value, name in ticks:
        x = across.place(value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
                     f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{name}</text>')
    for value in up.powers_of_ten():
        y = up.place(value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{name_up(value)}</text>')
    parts.append(f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" fill="none" '
                 'stroke="#666"/>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{across_title}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        dashes = ' stroke-dasharray="5 3"' if number >= len(COLOURS) else ""
        path = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in line)
        y = TOP + 10 + 18 * number
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts += [f'<circle cx="{across.place(x):.1f}" cy="{up.place(value):.1f}" r="2.5" fill="{colour}"/>'
                  for x, value in line]
        parts.append(f'<line x1="{right + 10}" y1="{y}" x2="{right + 30}" y2="{y}" stroke="{colour}" '
                     f'stroke-width="2"{dashes}/>'
                     f'<text x="{right + 36}" y="{y + 4}">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def write(outcome, path):
    try:
        with open(path, "w") as file:
            file.write(svg(outcome))
    except OSError as error:
        raise BenchError(f"--plot {path}: {error.strerror}") from None
