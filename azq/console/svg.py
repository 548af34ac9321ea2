"""Charts as SVG text, for pages and files that stand alone: no script, no file beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import cycle
from pathlib import Path

from azq.errors import ConfigError
from azq.files import write_output
from azq.status.curves import CurvePoint

WIDTH, HEIGHT = 460, 190
COLUMNS = 2  # of charts in a file
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 24, 24
LETTER = 6.3  # width of one, about
LOOK = (files("azq") / "web" / "look.css").read_text("utf-8")  # of all pages
COLOURS = dict(re.findall(r"--(c\d): light-dark\((#\w+)", LOOK))  # by the class that pages colour by
STYLE = """svg{fill:#5a5f66}text{font:11px system-ui,sans-serif;stroke:none}.title{font-weight:600;fill:#1c1e21}.end{text-anchor:end}
.grid{stroke:#e3e3e0}"""

Text = Callable[[float], str]


def line_chart(title: str, curves: Mapping[str, Sequence[CurvePoint]], x_name: str, text: Text) -> str:
    """Curves over one axis that shows 0, their intervals as bands; `text` writes a value."""
    points = [point for curve in curves.values() for point in curve]
    xs = [0.0, *(point.x for point in points)]
    ys = [value for point in points for value in (point.y, point.low, point.high) if value is not None]
    levels = _ticks(min(ys, default=0.0), max(ys, default=1.0))
    low, high = levels[0], levels[-1]
    first, last = min(xs), max(xs)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> str:
        return f"{LEFT + width * (x - first) / ((last - first) or 1.0):.1f},{TOP + height * (high - y) / (high - low):.1f}"

    parts = [f'<text x="{LEFT}" y="15" class="title">{escape(title)}</text>']
    for y in levels:
        (left, level), right = place(first, y).split(","), WIDTH - RIGHT
        parts.append(f'<line x1="{left}" x2="{right}" y1="{level}" y2="{level}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{float(level) + 4:.1f}" class="end">{escape(text(y))}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">{first:,.4g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" class="end">{last:,.4g} {escape(x_name)}</text>')
    legend = float(WIDTH - RIGHT)
    for (name, curve), (number, colour) in reversed(list(zip(curves.items(), cycle(COLOURS.items()), strict=False))):
        drawn = _curve(curve, place)
        if len(curves) > 1:
            drawn.append(f'<text x="{legend:.0f}" y="15" class="end">{escape(name)}</text>')
            legend -= LETTER * len(name) + 10
        parts.append(f'<g class="{number}" fill="{colour}" stroke="{colour}">{"".join(drawn)}</g>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _ticks(low: float, high: float) -> list[float]:
    """Some four round values around a range, as `niceTicks` of the pages has them."""
    if high - low < 1e-9:
        high = low + (abs(low) or 1.0)
    size = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= 0.999 * (high - low) / 3)
    return [step * at for at in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def _curve(curve: Sequence[CurvePoint], place: Callable[[float, float], str]) -> list[str]:
    banded = [(point.x, point.low, point.high) for point in curve if point.low is not None and point.high is not None]
    outline = [place(x, high) for x, _, high in banded] + [place(x, low) for x, low, _ in reversed(banded)]
    parts = [f'<polygon points="{" ".join(outline)}" opacity="0.15"/>'] if banded else []
    line = " ".join(place(point.x, point.y) for point in curve)
    parts.append(f'<polyline points="{line}" fill="none" stroke-width="1.6"/>')
    marked = [point for point in curve if point.weight_version is not None]
    return parts + [f'<circle cx="{at[0]}" cy="{at[1]}" r="1.7"/>' for at in (place(point.x, point.y).split(",") for point in marked)]


def write_charts(charts: Sequence[str], out: Path) -> None:
    """Line charts in rows, as one SVG file. Raises `ConfigError` for a file called otherwise, `StoreError`."""
    if out.suffix != ".svg":
        raise ConfigError(f"{out} does not end in .svg; charts are SVG, so name it so")
    places = ((WIDTH * (at % COLUMNS), HEIGHT * (at // COLUMNS)) for at in range(len(charts)))
    placed = (
        chart.replace("<svg", f'<svg x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"', 1)
        for chart, (x, y) in zip(charts, places, strict=True)
    )
    box = f'viewBox="-8 -8 {WIDTH * COLUMNS + 16} {HEIGHT * -(-len(charts) // COLUMNS) + 16}" style="background:white"'
    page = f'<svg xmlns="http://www.w3.org/2000/svg" {box}><style>{STYLE}</style>{"".join(placed)}</svg>\n'
    write_output(out, page.encode())
