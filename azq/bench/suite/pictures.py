"""The run's figures as pictures: throughput beside the bare network, and where the time of self-play goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azq.console.profile import plot, profile_of_shares, pyplot_of

BARS = (
    ("bare_evaluations_per_s", "bare network", "#9aa0a8"),
    ("stream_evaluations_per_s", "through the stream", "#2460c8"),
    ("selfplay_200_evaluations_per_s", "self-play, 200 simulations", "#b4530f"),
    ("selfplay_32_evaluations_per_s", "self-play, 32 simulations", "#6b3fb5"),
)


def pictures(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes `bench.png`, and `bench-phases.png` where a run of self-play told its phases. Raises `MissingExtra` without matplotlib."""
    written = [_bars(result, folder / "bench.png")]
    for name, found in result["parts"].items():
        if name.startswith("selfplay/") and found.get("selfplay_phases"):
            shares = {"selfplay": found["selfplay_phases"], "inference": found["inference_phases"]}
            plot(profile_of_shares(shares), folder / "bench-phases.png", f"where the time goes: {name}")
            written.append(folder / "bench-phases.png")
            break
    return written


def _bars(result: Mapping[str, Any], out: Path) -> Path:
    pyplot = pyplot_of("the pictures of `azq bench all`")
    rows = result["summary"]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.9 * len(rows)), dpi=120)
    height = 0.8 / len(BARS)
    for index, (key, label, colour) in enumerate(BARS):
        places = [place + index * height for place in range(len(rows))]
        bars = axes.barh(places, [row[key] or 0.0 for row in rows], height=height, label=label, color=colour)
        axes.bar_label(bars, [f"{row[key]:,.0f}" if row[key] else "open" for row in rows], fontsize=7, padding=2)
    axes.set_yticks(
        [place + 0.4 - height / 2 for place in range(len(rows))], [f"{row['case']}\nbatch {row['batch']:,}" for row in rows], fontsize=8
    )
    axes.invert_yaxis()
    axes.set(xlabel="evaluations/s", title=f"{result['machine']['device_name']}, {result['machine']['cores']} cores")
    axes.margins(x=0.14)
    axes.legend(fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out)
    pyplot.close(figure)
    return out
