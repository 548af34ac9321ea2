"""What a run recorded: its figures over time, for charts, and its games, from the segment log on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from azq import games
from azq.config import RunConfig
from azq.errors import AzqError, ConfigError, IllegalActionError, WireError
from azq.games.files import is_python_file
from azq.ledger.records import sections_of
from azq.ledger.types import RunView
from azq.replay.readers import LogPlace
from azq.samples.learning import LearningCurves, learning_curves
from azq.samples.played import read_games
from azq.samples.stats import SampleStats, stats
from azq.status.history import History, downsample, read
from azq.status.viewer import GameSummary, GameView, summary, view
from azq.status.why.gather import OPENING_PLIES, Diagnosis, diagnose
from daemon.api.access import READ
from daemon.api.conventions import LINKED, Paged
from daemon.api.services import Use

router = APIRouter(prefix="/v1/runs")
LONGEST_MS = 14 * 24 * 3600 * 1000


@router.get("/{run}/history", tags=["runs"], dependencies=[READ])
def run_history(
    run: str,
    use: Use,
    since_ms: Annotated[int, Query(ge=0, lt=2**53, description="Milliseconds since 1970; absent: the last hour.")] | None = None,
    points: Annotated[int, Query(ge=1, le=2000, description="At most about so many moments; means over equal parts.")] = 240,
) -> History:
    """Figures over time in columns, oldest first; recorded every `daemon.history_every_s` while the run runs."""
    use.ledger.run(run)
    now_ms = use.clock_ms()
    start = max(now_ms - LONGEST_MS, now_ms - 3_600_000 if since_ms is None else since_ms)
    return downsample(read(use.bus, run, start), max(1, now_ms - start), points)


@router.get("/{run}/games", tags=["games"], responses=LINKED, dependencies=[READ])
def list_games(run: str, use: Use, pages: Paged, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> list[GameSummary]:
    """The recorded games, in the order in which the learner stored them, newest first."""
    place = pages.place("games", int, int)
    found = use.games_of(segments_of(use.ledger.run(run))).newest(limit + 1, LogPlace(*place) if place else None)
    page = pages.take("games", found, limit, lambda entry: (entry[0].segment, entry[0].record))
    return [summary(event) for _, event in page]


@router.get("/{run}/games/{uid}", tags=["games"], dependencies=[READ])
def show_game(run: str, uid: int, use: Use) -> GameView:
    """One game ply by ply: position, player, action, the search's values and policy target."""
    known = use.ledger.run(run)
    event = use.games_of(segments_of(known)).find(uid)
    settings = sections_of(known.record).run
    try:
        rules, note = rules_of(settings), ""
    except AzqError as error:
        rules, note = None, f"positions are not shown: {error}"
    try:
        return view(settings.game, rules, event, note)
    except (WireError, IllegalActionError) as error:  # recorded under other rules than the run has now
        return view(settings.game, None, event, f"positions are not shown: {error}")


@router.get("/{run}/samples", tags=["games"], dependencies=[READ])
def run_samples(
    run: str,
    use: Use,
    by: Annotated[Literal["source", "worker", "version"] | None, Query(description="What tells the games apart; absent: nothing.")] = None,
    games: Annotated[int, Query(ge=1, le=20_000, description="The newest so many.")] = 2_000,
) -> dict[str, SampleStats]:
    """What the recorded games look like: lengths, results, policies, values against results, versions, openings, symmetry."""
    known = use.ledger.run(run)
    rules = rules_of(sections_of(known.record).run)
    played = read_games(rules, use.games_of(segments_of(known)).last(games))
    return {name: stats(rules, rows) for name, rows in played.groups(by).items()}


@router.get("/{run}/findings", tags=["runs"], dependencies=[READ])
def run_findings(
    run: str, use: Use, games: Annotated[int, Query(ge=1, le=20_000, description="The newest so many are looked at.")] = 500
) -> Diagnosis:
    """What keeps the run from learning, as `azq why` tells it: rule, evidence, the one setting to change, confidence."""
    known = use.ledger.run(run)
    sections = sections_of(known.record)
    try:
        rules, note = rules_of(sections.run), ""
    except AzqError as error:
        rules, note = None, f"games are not looked at: {error}; `azq why {run}` does, on the learner's host"
    return diagnose(use.bus, run, sections, rules, use.games_of(segments_of(known)), games=games, note=note)


@router.get("/{run}/learning", tags=["games"], dependencies=[READ])
def run_learning(
    run: str,
    use: Use,
    games: Annotated[int, Query(ge=1, le=20_000, description="The newest so many.")] = 2_000,
    blocks: Annotated[int, Query(ge=1, le=500, description="At most so many parts, of 20 games or more.")] = 40,
) -> LearningCurves:
    """How the recorded games changed: draws, first player's wins, length, entropy, openings, calibration, age of weights; oldest first."""
    known = use.ledger.run(run)
    rules = rules_of(sections_of(known.record).run)
    events = use.games_of(segments_of(known)).last(games)
    return learning_curves(read_games(rules, events, OPENING_PLIES).rows, blocks)


def rules_of(settings: RunConfig) -> games.Game:
    """The game's rules. Raises `ConfigError` where they are a Python file or not those of any game, `MissingExtra`."""
    if is_python_file(settings.game):
        raise ConfigError("this game is a Python file, and the daemon runs no code of games")
    return games.GameFiles().load(settings.game, settings.params)


def segments_of(known: RunView) -> Path:
    """Where a run's games lie, if on this host."""
    return Path(known.record.directory) / "segments"
