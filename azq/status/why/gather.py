"""The one reader: what is recorded of a run becomes facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import RunSections
from azq.errors import IllegalActionError, NotFound, WireError
from azq.games import Game
from azq.replay.readers import SegmentReader
from azq.samples.played import read_games
from azq.status.deaths import crash_loops, read_deaths
from azq.status.history import read
from azq.status.mendings import mendings
from azq.status.observe import Standings, read_standing
from azq.status.strength import WITHOUT_ERRORS
from azq.status.why.facts import Facts, curve_facts, error_share, played_facts
from azq.status.why.probe import probe
from azq.status.why.rules import LearningFault, blind, findings
from azq.wire.messages import GradeResult, HistoryPoint, SampleEvent

GAMES = 2_000  # the newest
OPENING_PLIES = 4


def facts_of(
    game: Game | None,
    settings: RunSections,
    events: Sequence[SampleEvent],
    points: Sequence[HistoryPoint] = (),
    grades: Sequence[GradeResult] = (),
) -> Facts:
    """The facts of a run; without rules, games or a history those that are left. Raises `IllegalActionError` for games of other rules."""
    curves, errors = curve_facts(settings, points), error_share(grades) if settings.run.game not in WITHOUT_ERRORS else None
    if game is None or not events:
        return Facts(settings, None, curves, None, errors)
    played = played_facts(game, read_games(game, events, OPENING_PLIES), events, OPENING_PLIES)
    return Facts(settings, played, curves, probe(game, OPENING_PLIES), errors)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What keeps a run from learning, causes first; empty where nothing was found."""

    findings: list[LearningFault]
    games: int  # that were looked at; 0: none, or not on this host
    steps: int | None  # of the history that was looked at; None: none is known
    note: str = ""  # what could not be looked at, and why
    blind: dict[str, tuple[str, ...]] = field(default_factory=dict)  # what is missing -> the rules that could not look
    no_games: str = ""  # why a run has none
    dying: tuple[str, ...] = ()  # processes that die again and again, and what was wrong with the ledger's keys


def diagnose(
    bus: Bus | None, run: str, settings: RunSections, game: Game | None, reader: SegmentReader, *, games: int = GAMES, note: str = ""
) -> Diagnosis:
    """Reads a run's log and, where there is a control plane, its history. Raises `BrokerError`, `StoreError`."""
    try:
        events = list(reader.last(games)) if game is not None else []
    except NotFound:  # no game yet, or none on this host: the curves tell something, too
        events = []
    dying = (*map(str, crash_loops(read_deaths(bus), now_ms(), run)), *mendings(bus, run, now_ms())) if bus is not None else ()
    recorded = (read(bus, run, 0), read_standing(bus, run, Standings()).grades) if bus is not None else ()
    try:
        facts = facts_of(game, settings, events, *recorded)
    except (IllegalActionError, WireError) as error:  # recorded under other rules than the run has now
        events, note = [], f"games are not looked at: {error}"
        facts = facts_of(None, settings, events, *recorded)
    return Diagnosis(findings(facts), len(events), facts.curves.step if facts.curves else None, note, blind(facts), dying=dying)
