"""Runs the parts one after the other, each for what the time that is really left allows."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from azq import logs
from azq.bench import peers
from azq.bench.suite import machine
from azq.bench.suite.pictures import pictures
from azq.bench.suite.plan import Case, Part, cases, parts, split
from azq.bench.suite.report import markdown, summary
from azq.errors import AzqError, ConfigError, EvaluationTimeout, MissingExtra
from azq.files import publish_file

PATIENCE_S, PATIENCE = 60.0, 4.0  # a part that takes longer, and so many times its overhead beyond what it measures, is ended
LATE_S = 15.0  # and one that began in time may end so long after the time is over
PEERS = ("pgx", "openspiel")

log = logs.get(__name__)
Measure = Callable[[Part, Case, float, float], dict[str, Any]]  # seconds to measure, seconds until it is ended
Told = Callable[[dict[str, dict[str, Any]], dict[str, str]], object]  # figures and reasons so far, after each part


def run_all(
    size: str,
    minutes: float,
    device: str = "auto",
    *,
    keep: Callable[[dict[str, Any]], object] = lambda _: None,
    measure: Measure | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Everything that fits: machine, figures by part, reasons of what has none, ratios within the run.

    `keep` gets what there is after each part, since nobody knows whether a borrowed machine stays until the end.
    `size` is empty for the one that suits the machine. Raises `ConfigError` for a size that is none.
    """
    began_s = clock()
    facts = machine.facts(device)
    on_gpu = facts["device"].startswith("cuda")
    size = size or ("full" if on_gpu else "small")
    which = cases(size)
    missing = {} if measure else {peer: reason for peer in PEERS if (reason := peers.missing(peer))}
    todo = parts(size, which, on_gpu=on_gpu, peers=[peer for peer in PEERS if peer not in missing])

    def result(figures: dict[str, dict[str, Any]], reasons: dict[str, str]) -> dict[str, Any]:
        return {
            "machine": facts,
            "size": size,
            "cases": [described(case) for case in which],
            "minutes": round((clock() - began_s) / 60, 2),
            "parts": figures,
            "left_out": {**missing, **reasons},
            "summary": summary(which, figures),
        }

    measure = measure or _in_a_process(facts["device"])
    found = measured(todo, which, began_s + 60 * minutes, measure, clock, lambda *so_far: keep(result(*so_far)))
    return result(*found)


def measured(
    todo: Sequence[Part],
    which: Sequence[Case],
    end_s: float,
    measure: Measure,
    clock: Callable[[], float],
    told: Told = lambda _figures, _reasons: None,
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Figures by part, and why others have none; after each part the rest is split anew over the time that is left."""
    by_name = {case.name: case for case in which}
    figures: dict[str, dict[str, Any]] = {}
    reasons: dict[str, str] = {}
    for number, part in enumerate(todo):
        seconds = split(todo[number:], end_s - clock()).seconds.get(part.name)
        if seconds is None:
            reasons[part.name] = (
                f"does not fit into the time: it needs {part.overhead_s + part.min_s:.0f} s, {max(0.0, end_s - clock()):.0f} are left"
            )
            continue
        log.info("measuring", part=part.name, seconds=round(seconds, 1))
        try:
            limit_s = min(max(PATIENCE_S, PATIENCE * part.overhead_s + 2 * seconds), end_s - clock() + LATE_S)
            figures[part.name] = measure(part, by_name[part.case], seconds, limit_s)
        except (AzqError, OSError, ValueError) as error:  # whatever it is, the other parts are to have their time
            reasons[part.name] = str(error)
            log.warning("part_failed", part=part.name, reason=str(error))
        told(figures, reasons)
    return figures, reasons


def described(case: Case) -> dict[str, Any]:
    """A case as JSON has it."""
    return {**dataclasses.asdict(case), "network": case.network.model_dump(mode="json"), "params": dict(case.params)}


def read(path: Path) -> dict[str, Any]:
    """What a run, perhaps on another machine, wrote as `bench.json`. Raises `ConfigError`."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as figures of `azq bench all`: {error}") from None
    if missing := {"machine", "summary", "parts", "left_out"} - found.keys():
        raise ConfigError(f"{path} lacks {', '.join(sorted(missing))}: it is none that `azq bench all --out` wrote")
    return found


def write(result: dict[str, Any], folder: Path) -> None:
    """`bench.json`, `bench.md` and, where matplotlib is installed, pictures."""
    write_tables(result, folder)
    try:
        pictures(result, folder)
    except MissingExtra as error:
        log.warning("no_pictures", reason=str(error))


def write_tables(result: dict[str, Any], folder: Path) -> None:
    """`bench.json` and `bench.md`, each whole at any moment."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("bench.json", json.dumps(result, indent=1) + "\n"), ("bench.md", markdown(result))):
        publish_file(folder / name, text.encode())


def _in_a_process(device: str) -> Measure:
    def measure(part: Part, case: Case, seconds: float, limit_s: float) -> dict[str, Any]:
        if part.kind in PEERS:
            network = case.network
            return peers.figures(
                part.kind, seconds, limit_s, num_simulations=part.num_simulations, blocks=network.blocks, channels=network.channels,
                games=case.batch, device=device,
            )  # fmt: skip
        asked = {"kind": part.kind, "num_simulations": part.num_simulations, "seconds": seconds, "device": device}
        return _child(json.dumps({**asked, "case": described(case)}), limit_s)

    return measure


def _child(asked: str, limit_s: float) -> dict[str, Any]:
    """A part's figures from a process of its own; `EvaluationTimeout` says how it failed."""
    with tempfile.TemporaryDirectory(prefix="azq-bench-all-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "azq.bench.suite.part", asked, str(answer)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=_environment()
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # its brokers and workers with it: the whole session is the part's own
            process.communicate()
            raise EvaluationTimeout(f"ended after {limit_s:.0f} s without an answer") from None
        if process.returncode or not answer.is_file():
            last = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise EvaluationTimeout(f"ended with exit code {process.returncode}: {last[:300]}")
        found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        return found


def _environment() -> dict[str, str]:
    """This one without settings of azq: a part is measured as it is described."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AZQ_")}
