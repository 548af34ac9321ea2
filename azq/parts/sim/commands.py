"""`azq sim`: the protocol under faults, from a seed."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, with_answer
from azq.errors import ConfigError, ExitCode
from azq.process.interrupts import end_as_ctrl_c

if TYPE_CHECKING:
    from azq.parts.sim.simulation import SeedOutcome

MOST_PAGES = 10
PROGRESS_S = 10.0  # between two lines of many seeds


@with_answer
def sim(
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many, one after the other.")] = 1,
    rate: Annotated[float, typer.Option("--faults", min=0.0, help="Faults in a simulated second.")] = 1.0,
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="Simulated, with faults; healing and rest come after.")] = 1.0,
    only: Annotated[
        list[str] | None, typer.Option("--fault", metavar="FAULT", help="In place of a seed's plan; as a failing seed prints.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print what happened, line by line: time, process, call.")] = False,
    shrinks: Annotated[bool, typer.Option("--shrink", help="Of each seed that fails, leave out faults while it still fails.")] = False,
    until: Annotated[
        int,
        typer.Option("--until", min=0, metavar="EVENT", help="Of the trace, by number: print the state there; in a terminal, debug."),
    ] = 0,
    version: Annotated[str, typer.Option("--protocol", help="That of the azq which printed the seed; another is an error.")] = "",
    out: Annotated[Path, typer.Option("--out", help="Folder for timelines, one page for each seed that fails.")] = Path(),
) -> Answer:
    """Run daemon, workers, learner and broker in this process under faults, and judge what was kept; the same seed, the same course."""
    from azq import logs
    from azq.files import write_output
    from azq.parts.sim.faults import parse, plan
    from azq.parts.sim.simulation import protocol, shrink, simulate
    from azq.parts.sim.timeline import page

    if version and version != protocol():
        raise ConfigError(f"seed {seed} is of protocol {version}, this azq runs {protocol()}: take that azq, or leave out --protocol")
    end_as_ctrl_c()
    logs.setup("sim", level=logging.CRITICAL)
    outcomes: list[SeedOutcome] = []
    pages, shown_s = list[Path](), time.monotonic()
    for number in range(seed, seed + seeds):
        outcome = simulate(number, parse(only) if only else plan(number, rate, 60 * minutes), 60 * minutes, trace=trace, until=until)
        if outcome.failed and shrinks:
            outcome = shrink(outcome, 60 * minutes)
        if outcome.failed and len(pages) < MOST_PAGES:
            outcome = outcome if outcome.trace else simulate(number, outcome.faults, 60 * minutes, trace=True)
            pages.append(out / f"azq-sim-{number}.html")
            title = f"Seed {number}: {[*outcome.wrong, outcome.stuck][0].strip().splitlines()[-1]}"
            write_output(pages[-1], page(title, described(outcome, rate, minutes), outcome.trace).encode())
        outcomes.append(outcome)
        if len(outcomes) < seeds and time.monotonic() - shown_s >= PROGRESS_S:
            so_far, shown_s = summary(outcomes), time.monotonic()
            typer.echo(f"{len(outcomes)} of {seeds} seeds: {so_far['faults']} faults, failed {so_far['failed']}", err=True)
    values, failed = summary(outcomes), [outcome for outcome in outcomes if outcome.failed]
    text = [line for outcome in outcomes if trace for line in (f"protocol {protocol()}", *outcome.trace)]
    text += [f"{name}: {value}" for name, value in values.items()]
    text += [line for outcome in failed for line in described(outcome, rate, minutes)] + [f"timeline: {path}" for path in pages]
    return Answer(values, text, ExitCode.CRASH if failed else ExitCode.OK)


def summary(outcomes: Sequence[SeedOutcome]) -> dict[str, object]:
    """The figures of all seeds; `failed` names those that failed."""
    hashes = "".join(outcome.trace_hash for outcome in outcomes)
    return {
        "seeds": len(outcomes),
        "faults": sum(len(outcome.faults) for outcome in outcomes),
        "simulated_s": round(sum(outcome.simulated_s for outcome in outcomes)),
        "lost": sum(outcome.lost for outcome in outcomes),
        "doubled": sum(outcome.doubled for outcome in outcomes),
        "stuck": sum(bool(outcome.stuck) for outcome in outcomes),
        "failed": [outcome.seed for outcome in outcomes if outcome.failed],
        "trace_hash": hashlib.sha256(hashes.encode()).hexdigest()[:16],
        "cpu_s": round(sum(outcome.cpu_s for outcome in outcomes), 2),
    }


def described(outcome: SeedOutcome, rate: float, minutes: float) -> list[str]:
    """A seed that failed, and how to see it again."""
    from azq.parts.sim.simulation import protocol

    again = f"azq sim --seed {outcome.seed} --faults {rate:g} --minutes {minutes:g} --protocol {protocol()}"
    return [
        f"seed {outcome.seed} failed: {again}",
        *([f"  {outcome.stuck}"] if outcome.stuck else []),
        *(f"  {line}" for line in outcome.wrong[:10]),
        *(f"  --fault {fault}" for fault in outcome.faults),
    ]


COMMANDS = {"sim": sim}
