"""Charts as SVG text, for pages that stand alone: no script, no file beside them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from azq.status.curves import CurvePoint

WIDTH, HEIGHT = 460, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 24, 24
COLOURS = ("#2460c8", "#b4530f", "#6b3fb5", "#2f855a")

Text = Callable[[float], str]


def line_chart(title: str, curves: Mapping[str, Sequence[CurvePoint]], x_name: str, text: Text) -> str:
    """Curves over one axis, their intervals as bands; `text` writes a value."""
    points = [point for curve in curves.values() for point in curve]
    xs = [0.0, *(point.x for point in points)]
    ys = [value for point in points for value in (point.y, point.low, point.high) if value is not None]
    low, high = min(ys, default=0.0), max(ys, default=1.0)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> str:
        return f"{LEFT + width * x / (max(xs) or 1.0):.1f},{TOP + height * (high - y) / ((high - low) or 1.0):.1f}"

    parts = [f'<text x="{LEFT}" y="15" class="title">{escape(title)}</text>']
    for y in (low, (low + high) / 2, high):
        (left, level), right = place(0.0, y).split(","), WIDTH - RIGHT
        parts.append(f'<line x1="{left}" x2="{right}" y1="{level}" y2="{level}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{float(level) + 4:.1f}" class="end">{escape(text(y))}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 6}">0</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" class="end">{max(xs):,.4g} {escape(x_name)}</text>')
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        parts += _curve(curve, colour, place)
        if len(curves) > 1:
            parts.append(
                f'<text x="{WIDTH - RIGHT - 70 * list(curves)[::-1].index(name)}" y="15" class="end" fill="{colour}">{escape(name)}</text>'
            )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _curve(curve: Sequence[CurvePoint], colour: str, place: Callable[[float, float], str]) -> list[str]:
    banded = [(point.x, point.low, point.high) for point in curve if point.low is not None and point.high is not None]
    outline = [place(x, high) for x, _, high in banded] + [place(x, low) for x, low, _ in reversed(banded)]
    parts = [f'<polygon points="{" ".join(outline)}" fill="{colour}" opacity="0.15"/>'] if banded else []
    line = " ".join(place(point.x, point.y) for point in curve)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    marked = [point for point in curve if point.weight_version is not None]
    return parts + [
        f'<circle cx="{at[0]}" cy="{at[1]}" r="2.2" fill="{colour}"/>' for at in (place(point.x, point.y).split(",") for point in marked)
    ]


def span_bar(spans: Sequence[tuple[str, float]]) -> str:
    """Consecutive spans of time as one bar; those of no length are left out."""
    total, left, parts = sum(length for _, length in spans) or 1.0, 0.0, []
    for (name, length), colour in zip(spans, COLOURS, strict=False):
        share = 940 * length / total
        if share:
            parts.append(
                f'<rect x="{left:.1f}" width="{share:.1f}" height="26" fill="{colour}" opacity="0.8"><title>{escape(name)}</title></rect>'
            )
        if share > 9 * len(name):
            parts.append(f'<text x="{left + 6:.1f}" y="18" fill="white">{escape(name)}</text>')
        left += share
    return f'<svg viewBox="0 0 940 26" role="img" aria-label="timeline">{"".join(parts)}</svg>'


def bars(shares: Mapping[str, float]) -> str:
    """Shares of 1 as bars, one below the other."""
    parts = []
    for y, (name, share) in zip(range(0, 26 * len(shares), 26), shares.items(), strict=True):
        parts.append(f'<text x="230" y="{y + 16}" class="end">{escape(name)}</text>')
        parts.append(f'<rect x="240" y="{y + 3}" width="{620 * share:.1f}" height="18" fill="{COLOURS[0]}"/>')
        parts.append(f'<text x="{246 + 620 * share:.1f}" y="{y + 16}">{share:.0%}</text>')
    return f'<svg viewBox="0 0 940 {26 * len(shares)}" role="img" aria-label="shares">{"".join(parts)}</svg>'


def parallel(axes: Sequence[str], lines: Sequence[Sequence[Any]], log: Sequence[str] = ()) -> str:
    """Parallel coordinates (Inselberg, 1985): a value an axis and line, numbers or names; the first third of the lines dark.

    On axes of `log`, of numbers above 0, each power of ten takes the same room.
    """
    step, top, bottom = 820 / max(1, len(axes) - 1), 44, 280
    columns = list(zip(*lines, strict=True)) or [()] * len(axes)
    scales = [_scale(column, name in log) for name, column in zip(axes, columns, strict=True)]
    parts = []
    for rank, values in reversed(list(enumerate(lines))):  # the dark ones on top
        heights = [bottom - (bottom - top) * places[value] for (places, _, _), value in zip(scales, values, strict=True)]
        points = " ".join(f"{60 + step * axis:.1f},{height:.1f}" for axis, height in enumerate(heights))
        style = f'stroke="{COLOURS[0]}" opacity="0.9"' if 3 * rank < len(lines) else 'stroke="#9aa4b2" opacity="0.5"'
        parts.append(f'<polyline points="{points}" fill="none" stroke-width="1.6" {style}/>')
    for axis, (name, (_, low, high)) in enumerate(zip(axes, scales, strict=True)):
        x = 60 + step * axis
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="#5a5f66"/>')
        for y, text in ((12 + 12 * (axis % 2), name), (top - 4, high), (bottom + 14, low)):
            parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>')
    return f'<svg viewBox="0 0 940 300" role="img" aria-label="parallel coordinates">{"".join(parts)}</svg>'


def _scale(column: Sequence[Any], log: bool) -> tuple[dict[Any, float], str, str]:
    """Where each value stands on its axis, 0 to 1, and the names of its ends; names stand at equal distances."""
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)
    order = sorted(set(column)) if numeric else sorted(set(column), key=str)
    ranks = [math.log(value) if log else value for value in order] if numeric else list(range(len(order)))
    places = {value: (rank - ranks[0]) / ((ranks[-1] - ranks[0]) or 1) for value, rank in zip(order, ranks, strict=True)}
    first, last = (f"{end:.3g}" if isinstance(end, float) else str(end) for end in (order[0], order[-1])) if order else ("", "")
    return places, first, last
