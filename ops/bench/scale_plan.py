"""The plan for a fleet beyond these machines, computed step by step from measured figures.

    ops/bench/scale_plan.py [FIGURES.toml] [--write-docs docs/scale.md] [--price cpu_core=P --price inference_gpu=P ...] [--hours H]

Prices are per unit and hour, in whatever currency they are given; without them the cost stays a formula.
"""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).with_name("scale_plan.toml")
BEGIN, END = "<!-- scale plan: begin -->", "<!-- scale plan: end -->"
KEPT_VERSIONS = 64  # azq.learner.publish.KEPT_IN_BROKER
WAITING_GAMES = 20_000  # selfplay.max_waiting_games
KIB = 1024


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the plan."""

    what: str
    how: str
    value: float
    unit: str


def read_figures(path: Path = FIGURES) -> tuple[dict[str, float], dict[str, str]]:
    """Every figure by its name, and the source of each measured one."""
    found = tomllib.loads(path.read_text("utf-8"))
    measured = found["measured"]
    sources = {name: found["sources"][entry["source"]] for name, entry in measured.items()}
    return {**found["fleet"], **{name: float(entry["value"]) for name, entry in measured.items()}}, sources


def microseconds(figures: Mapping[str, float], party: str, request_bytes: float) -> float:
    """CPU of a party for one request of so many bytes, on the line through its two measured sizes."""
    small, large = figures[f"{party}_us_16kib"], figures[f"{party}_us_64kib"]
    return small + (large - small) * (request_bytes / KIB - 16) / 48


def plan(figures: Mapping[str, float]) -> list[Step]:
    """The lines of the plan; each uses figures and the lines above it."""
    f = figures
    gpus, leaves = f["inference_gpus"], f["leaves_per_request"]
    request = leaves * f["request_bytes_per_leaf"]
    evaluations = gpus * f["evaluations_per_s_per_gpu"]
    requests = evaluations / leaves
    broker_us, client_us, consumer_us = (microseconds(f, party, request) for party in ("broker", "client", "consumer"))
    broker_cores = requests * broker_us / 1e6
    brokers = math.ceil(broker_cores / f["broker_use"])
    through = evaluations * (f["request_bytes_per_leaf"] + f["reply_bytes_per_leaf"]) / 1e9
    cpu = gpus * f["search_cores_per_gpu"] + requests * client_us / 1e6 + requests * consumer_us / 1e6 + broker_cores
    games = gpus * f["games_per_s_per_gpu"]
    open_games = 2 * leaves * gpus * f["search_cores_per_gpu"]
    journals = open_games / games / f["journal_s"]
    game_us = f["adopt_us_per_game"] + journals * f["journal_us_per_game"] + f["finish_us_per_game"] + f["insert_us_per_game"]
    samples = games * f["plies_per_game"]
    wanted = samples * f["samples_per_insert"]
    memory = open_games * f["sample_bytes_per_game"] + WAITING_GAMES * f["waiting_game_bytes"] + KEPT_VERSIONS * f["weights_bytes"]
    control_in = games * (f["sample_bytes_per_game"] + journals * f["journal_bytes_per_game"])
    return [
        Step("evaluations", "inference GPUs x evaluations of one", evaluations / 1e6, "M/s"),
        Step("requests", "evaluations / leaves a request", requests, "/s"),
        Step("a request", "leaves x bytes of a leaf", request / KIB, "KiB"),
        Step("broker CPU a request", "line through 16 and 64 KiB", broker_us, "us"),
        Step("broker cores", "requests x CPU of one", broker_cores, "cores"),
        Step("data brokers", "broker cores / share that one may be busy, rounded up", brokers, ""),
        Step("evaluations a broker", "evaluations / brokers", evaluations / brokers / 1e6, "M/s"),
        Step("network of a broker, each way", "evaluations x bytes of request and reply / brokers", through * 8 / brokers, "Gbit/s"),
        Step("network of a GPU, in + out", "its evaluations x bytes of request and reply", 8 * through / gpus, "Gbit/s"),
        Step("search cores", "inference GPUs x cores that feed one", gpus * f["search_cores_per_gpu"], "cores"),
        Step("client cores", "requests x client CPU of one", requests * client_us / 1e6, "cores"),
        Step("inference workers' transport", "requests x consumer CPU of one", requests * consumer_us / 1e6, "cores"),
        Step("share of the CPU cores used", "(search + clients + transport + brokers) / cores", 100 * cpu / f["cpu_cores"], "%"),
        Step("games", "inference GPUs x games of one", games, "/s"),
        Step("open games", "a worker for each search core x 2 groups x leaves", open_games, ""),
        Step("journal writes a game", "open games / games a second / journal_s", journals, ""),
        Step("control plane CPU", "games x (adopt + journals + finish + insert)", games * game_us / 1e6, "cores"),
        Step("control plane, bytes in", "games x (sample + journals)", control_in * 8 / 1e6, "Mbit/s"),
        Step("control plane memory", "open games + 20,000 waiting games + 64 versions (store.url = redis)", memory / 1e6, "MB"),
        Step("samples made", "games x plies", samples, "/s"),
        Step("samples to train", "samples made x samples_per_insert", wanted / 1e6, "M/s"),
        Step("training GPUs needed", "samples to train / samples of one", wanted / f["training_samples_per_s_per_gpu"], "GPUs"),
        Step(
            "share of the training GPUs used",
            "needed / there",
            100 * wanted / f["training_samples_per_s_per_gpu"] / f["training_gpus"],
            "%",
        ),
        Step(
            "weights to the workers",
            "inference GPUs x bytes / publish_every_s",
            gpus * f["weights_bytes"] * 8 / f["publish_every_s"] / 1e6,
            "Mbit/s",
        ),
        Step(
            "gradients of a training GPU, each way",
            "2 (N - 1) / N x bytes x steps a second at full use (ring)",
            _ring(f) * 8 / 1e9,
            "Gbit/s",
        ),
    ]


def _ring(f: Mapping[str, float]) -> float:
    share = 2 * (f["training_gpus"] - 1) / f["training_gpus"]
    return share * f["weights_bytes"] * f["training_samples_per_s_per_gpu"] / f["training_batch"]


def units(figures: Mapping[str, float]) -> dict[str, float]:
    """What is paid for: how many of each, by the name of its price."""
    brokers = next(step.value for step in plan(figures) if step.what == "data brokers")
    names = {"cpu_core": "cpu_cores", "inference_gpu": "inference_gpus", "training_gpu": "training_gpus"}
    return {**{price: figures[name] for price, name in names.items()}, "broker": brokers + 1}


def cost(counts: Mapping[str, float], prices: Mapping[str, float], hours: float) -> float:
    """Hours x the sum of counts x prices. Raises `KeyError` for a price that is missing."""
    return hours * sum(count * prices[name] for name, count in counts.items())


def table(figures: Mapping[str, float], sources: Mapping[str, str]) -> str:
    """The plan as Markdown, and under it the measured figures that went in."""
    lines = ["| step | how | result |", "|---|---|---|"]
    lines += [f"| {step.what} | {step.how} | {shown(step.value)} {step.unit}".rstrip() + " |" for step in plan(figures)]
    counts = " + ".join(f"{shown(count)} x {name}" for name, count in units(figures).items())
    lines += ["", f"Cost of a run = hours x ({counts}), each name a price for one and an hour; a broker is a core with its memory.", ""]
    lines += ["| measured | value | where |", "|---|---|---|"]
    lines += [f"| {name} | {shown(figures[name])} | {source} |" for name, source in sources.items()]
    return "\n".join(lines)


def shown(value: float) -> str:
    """A number as people read it: three digits, or whole above a thousand."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def with_table(text: str, made: str) -> str:
    """A page with the part between the marks replaced. Raises `ValueError` where it has none."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{made}\n{END}{tail}"


def main() -> None:
    """Prints the table, or puts it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="?", type=Path, default=FIGURES)
    parser.add_argument("--write-docs", type=Path)
    parser.add_argument("--price", action="append", default=[], metavar="NAME=P")
    parser.add_argument("--hours", type=float, default=1.0)
    asked: Any = parser.parse_args()
    figures, sources = read_figures(asked.figures)
    made = table(figures, sources)
    if asked.write_docs:
        asked.write_docs.write_text(with_table(asked.write_docs.read_text("utf-8"), made), "utf-8")
    else:
        sys.stdout.write(made + "\n")
    if asked.price:
        prices = {name: float(value) for name, _, value in (text.partition("=") for text in asked.price)}
        sys.stdout.write(f"\n{asked.hours:g} hours cost {cost(units(figures), prices, asked.hours):,.2f}\n")


if __name__ == "__main__":
    main()
