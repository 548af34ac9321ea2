"""A stacked bar a role: the shares of its wall time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from azq.console.profile.table import RoleProfile
from azq.errors import MissingExtra

SHOWN = 0.04  # a smaller share carries no label


def plot(profiles: Sequence[RoleProfile], out: Path, title: str) -> None:
    """Writes the picture; raises `MissingExtra` without matplotlib."""
    pyplot = pyplot_of("--plot")
    figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.8 * len(profiles)), dpi=120)
    colours = pyplot.get_cmap("tab20")
    names = list(dict.fromkeys(row.phase for profile in profiles for row in profile.rows))
    for place, profile in enumerate(reversed(profiles)):
        left = 0.0
        for row in profile.rows:
            axes.barh(place, row.wall_share, left=left, color=colours(names.index(row.phase) % colours.N), edgecolor="white", height=0.62)
            if row.wall_share >= SHOWN:
                axes.text(left + row.wall_share / 2, place, f"{row.phase}\n{row.wall_share:.0%}", ha="center", va="center", fontsize=7)
            left += row.wall_share
    axes.set_yticks(range(len(profiles)), [f"{each.role}\n{each.cpu_cores:.2f} cores" for each in reversed(profiles)])
    axes.set(xlim=(0, 1), xlabel="share of wall time", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out)
    pyplot.close(figure)


def pyplot_of(what: str) -> Any:
    """matplotlib without a screen; `MissingExtra` says what wants it."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra(f"{what} needs matplotlib; install the extra: pip install 'azq[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
