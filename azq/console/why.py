"""`azq why`: what keeps a run from learning, from its recorded games and its history; and the same as warnings of a run at work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from azq import logs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.config import Config
from azq.console.move import folder_of
from azq.errors import AzqError, BrokerError, ConfigError, NotFound
from azq.host.brokers import reading_control
from azq.host.game_files import load_game
from azq.host.rundir import RunDir
from azq.replay.readers import SegmentReader
from azq.status.observe import Watch
from azq.status.why.gather import GAMES, Diagnosis, diagnose

EVERY_S = 60.0  # between two looks of a run at work
GAMES_AT_WORK = 300  # a look takes a fraction of a second, in which nobody looks after the children

log = logs.get(__name__)


def why(config: Config, run: str, most: int = GAMES) -> Diagnosis:
    """What is wrong with a run; without its control plane from its games alone. Raises `NotFound`, `StoreError`."""
    folder = folder_of(config, None, run)
    sections = folder.sections()
    rules = load_game(config, sections.run.game, sections.run.params, folder.settings)
    reader = SegmentReader(folder.path / "segments")
    try:
        with reading_control(config) as client:
            bus = RedisBus(client)
            found = diagnose(bus, run, sections, rules, reader, games=most)
            with contextlib.suppress(NotFound):  # it was never started here
                found = replace(found, no_games=Watch(client).summary(run).no_games)
            return found
    except (BrokerError, ConfigError) as error:  # nobody serves it, or it was never started here
        return diagnose(None, run, sections, rules, reader, games=most, note=f"no history: {error}")


def why_text(found: Diagnosis) -> list[str]:
    """Who dies again and again, a line a finding, the first cause first; then what was looked at."""
    lines = [*found.dying, *([f"no games: {found.no_games}"] if found.no_games else [])]
    for finding in found.findings:
        lines += [str(finding), *(f"  then: {step}" for step in finding.plan)]
    steps = "no history" if found.steps is None else f"a history of {found.steps:,} steps"
    looked = f"looked at {found.games:,} games and {steps}"
    blind = [f"not looked for, for want of {what}: {', '.join(rules)}" for what, rules in found.blind.items()]
    nothing = "nothing found" if found.games else "no game is recorded here, which says nothing about the run"
    return [*(lines or [nothing]), looked, *blind, *([found.note] if found.note else [])]


class Adviser:
    """Looks at a run at work every `EVERY_S`, and keeps what it found as sentences."""

    def __init__(self, folder: RunDir, config: Config, bus: Bus, clock: Callable[[], float]) -> None:
        self._rules, self._reader = load_game(config, config.run.game, config.run.params), SegmentReader(folder.path / "segments")
        self._run, self._sections, self._bus, self._clock = folder.name, config.run_sections(), bus, clock
        self._looked_s = clock()  # in its first minute a run has hardly a game
        self.warnings: tuple[str, ...] = ()

    def look(self) -> tuple[str, ...]:
        """The sentences of now. Raises `BrokerError`; a log that cannot be read is left to who needs it."""
        if self._clock() - self._looked_s < EVERY_S:
            return self.warnings
        self._looked_s = self._clock()
        try:
            found = diagnose(self._bus, self._run, self._sections, self._rules, self._reader, games=GAMES_AT_WORK)
        except BrokerError:
            raise
        except AzqError as error:
            log.warning("why_unknown", run=self._run, reason=str(error))
            return self.warnings
        before, self.warnings = self.warnings, tuple(f"azq why: {finding}" for finding in found.findings)
        for finding in found.findings:
            if not any(text.startswith(f"azq why: {finding.rule}:") for text in before):
                log.warning("does_not_learn", run=self._run, rule=finding.rule, evidence=finding.evidence, setting=str(finding.setting))
        return self.warnings
