"""Runs and games that kill whoever has to do with them, beside others that must not suffer."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from azq.clock import now_ms
from azq.drill.harm import Harm
from azq.drill.odd_games import ARMED, Stillborn
from azq.drill.scenarios import Scenario
from azq.drill.system import RUN, System
from azq.errors import StateConflict
from azq.ledger import Ledger
from azq.ledger.types import RunState
from azq.wire import keys

BAD_RUN = "stillborn"
READY_S = 120.0
KILLED = "killed its worker"  # in the reason for which a game is set aside


def bad_run(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """A second run whose game kills the process that loads it; healed once no inference worker tries any more and games go on."""
    path, _, _ = system.game.rpartition(":")
    log = system.log("inference")
    with system.client() as client:
        ledger = Ledger(client)
        record = ledger.run(RUN).record
        sections = msgspec.json.decode(record.sections)
        sections["run"]["game"] = f"{path}:{Stillborn.__name__}"
        bad = msgspec.structs.replace(
            record, run=BAD_RUN, sections=msgspec.json.encode(sections), directory=str(system.folder / BAD_RUN),
            created_ms=now_ms(),
        )  # fmt: skip
        if BAD_RUN in {view.record.run for view in ledger.runs()}:
            ledger.update_run(bad)
            ledger.set_run_state(BAD_RUN, RunState.RUNNING)
        else:
            ledger.create_run(bad)

    def lift() -> None:
        with system.client() as client:
            ledger = Ledger(client)
            if ledger.run(BAD_RUN).state is RunState.RUNNING:
                ledger.set_run_state(BAD_RUN, RunState.FINISHED, "the drill is over")

    return Harm(lambda: log.says("run_not_served", BAD_RUN) and system.pid("inference") is not None, lift=lift)


def deadly_game(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Arms the game: from now on one of those in play kills its worker; healed once it was set aside."""
    before, log = len(_set_aside(system)), system.log("selfplay")
    (Path(system.game.rpartition(":")[0]).parent / ARMED).touch()
    system.until(lambda: log.says("pool_child_died"), "a game that kills", READY_S)
    return Harm(lambda: len(_set_aside(system)) > before)


def _set_aside(system: System) -> set[bytes]:
    with system.client() as client:
        found: dict[bytes, bytes] = client.hgetall(keys.abandoned(RUN))  # type: ignore[assignment]
    wrong = [reason.decode() for reason in found.values() if KILLED not in reason.decode()]
    if wrong:
        raise StateConflict(f"a game was abandoned for another reason than that it {KILLED}: {wrong[0]}")
    return set(found)
