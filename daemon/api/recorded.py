"""What runs recorded: figures over time, games from the segment logs of this host, runs beside each other, studies of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from fastapi import Path as PathPart
from fastapi import status as http
from numpy.typing import NDArray

from azq import games
from azq.config import RUN_NAME_PATTERN, RunConfig
from azq.errors import AzqError, ConfigError, IllegalActionError, InvalidRequest, NotFound, WireError
from azq.games import Game
from azq.games.files import is_python_file
from azq.ledger.records import sections_of
from azq.ledger.types import RunView
from azq.replay.readers import LogPlace
from azq.samples.diff import SamplesDiff, diff
from azq.samples.played import ROW, read_games
from azq.samples.stats import LearningCurves, SampleStats, learning_curves, stats
from azq.status.compare import RunComparison, checked, compare, same_game
from azq.status.curves import read_course
from azq.status.history import History, downsample, read
from azq.status.results import StudyReport, keep_study, kept_study, known_studies
from azq.status.viewer import GameSummary, GameView, summary, view
from azq.status.why.gather import OPENING_PLIES, Diagnosis, diagnose
from daemon.api.access import OPERATE, READ
from daemon.api.conventions import LINKED, Paged
from daemon.api.events import QUESTION
from daemon.api.services import Services, Use

router = APIRouter(prefix="/v1/runs")
LONGEST_MS = 14 * 24 * 3600 * 1000


@router.get("/{run}/history", tags=["runs"], dependencies=[READ])
def run_history(
    run: str,
    use: Use,
    since_ms: Annotated[int, Query(ge=0, lt=2**53, description="Milliseconds since 1970; absent: the last hour.")] | None = None,
    points: Annotated[int, Query(ge=1, le=2000, description="At most about so many moments; means over equal parts.")] = 240,
) -> History:
    """Figures over time in columns, oldest first; recorded every 5 s while the run runs."""
    use.ledger.run(run)
    now_ms = use.clock_ms()
    start = max(now_ms - LONGEST_MS, now_ms - 3_600_000 if since_ms is None else since_ms)
    return downsample(read(use.bus, run, start), max(1, now_ms - start), points)


@router.get("/{run}/games", tags=["games"], responses=LINKED, dependencies=[READ])
def list_games(run: str, use: Use, pages: Paged, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> list[GameSummary]:
    """The recorded games, in the order in which the learner stored them, newest first."""
    place = pages.place("games", int, int)
    entries = use.games_of(segments_of(use.ledger.run(run))).newest(limit + 1, LogPlace(*place) if place else None)
    page = pages.take("games", entries, limit, lambda entry: (entry[0].segment, entry[0].record))
    return [summary(event) for _, event in page]


@router.get("/{run}/games/{uid}", tags=["games"], dependencies=[READ])
def show_game(run: str, uid: int, use: Use) -> GameView:
    """One game ply by ply: position, player, action, the search's values and policy target."""
    run_view = use.ledger.run(run)
    event = use.games_of(segments_of(run_view)).find(uid)
    settings = sections_of(run_view.record).run
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
    run_view = use.ledger.run(run)
    rules = rules_of(sections_of(run_view.record).run)
    played = read_games(rules, use.games_of(segments_of(run_view)).last(games))
    return {name: stats(rules, rows) for name, rows in played.groups(by).items()}


@router.get("/{run}/findings", tags=["runs"], dependencies=[READ])
def run_findings(
    run: str, use: Use, games: Annotated[int, Query(ge=1, le=20_000, description="The newest so many are looked at.")] = 500
) -> Diagnosis:
    """What keeps the run from learning, as `azq why` tells it: rule, evidence, the one setting to change, confidence."""
    run_view = use.ledger.run(run)
    sections = sections_of(run_view.record)
    try:
        rules, note = rules_of(sections.run), ""
    except AzqError as error:
        rules, note = None, f"games are not looked at: {error}; `azq why {run}` does, on the learner's host"
    return diagnose(use.bus, run, sections, rules, use.games_of(segments_of(run_view)), games=games, note=note)


@router.get("/{run}/learning", tags=["games"], dependencies=[READ])
def run_learning(
    run: str,
    use: Use,
    games: Annotated[int, Query(ge=1, le=20_000, description="The newest so many.")] = 2_000,
    blocks: Annotated[int, Query(ge=1, le=500, description="At most so many parts, of 20 games or more.")] = 40,
) -> LearningCurves:
    """How the recorded games changed: draws, first player's wins, length, entropy, openings, calibration, age of weights; oldest first."""
    run_view = use.ledger.run(run)
    rules = rules_of(sections_of(run_view.record).run)
    events = use.games_of(segments_of(run_view)).last(games)
    return learning_curves(read_games(rules, events, OPENING_PLIES).rows, blocks)


def rules_of(settings: RunConfig) -> games.Game:
    """The game's rules. Raises `ConfigError` where they are a Python file or not those of any game, `MissingExtra`."""
    if is_python_file(settings.game):
        raise ConfigError("this game is a Python file, and the daemon runs no code of games")
    return games.GameFiles().load(settings.game, settings.params)


def segments_of(view: RunView) -> Path:
    """Where a run's games lie, if on this host."""
    return Path(view.record.directory) / "segments"


compared = APIRouter(prefix="/v1/compare", tags=["runs"])
Runs = Annotated[str, Query(max_length=600, description="Two names of runs of one game, or more, with commas.")]


@compared.get("", dependencies=[READ])
def compare_runs(
    use: Use,
    runs: Runs,
    by: Annotated[Literal["minutes", "games", "steps", "cpu-s"], Query(description="What the curves are drawn over.")] = "minutes",
) -> RunComparison:
    """Losses, graded errors and Elo of runs over one axis, their figures where all were, settings that differ, graded positions."""
    return compare([read_course(use.ledger, use.bus, name, use.standings) for name in checked(runs.split(","))], by)


@compared.get("/samples", dependencies=[READ])
def compare_samples(
    use: Use, runs: Runs, games: Annotated[int, Query(ge=1, le=5_000, description="The newest so many of each.")] = 2_000
) -> dict[str, SamplesDiff]:
    """Whether the recorded games of each later run are of the same kind as those of the first; too few where logs are on other hosts."""
    names = checked(runs.split(","))
    views = [use.ledger.run(name) for name in names]
    for other in views:
        same_game(views[0].record, other.record)
    rules = rules_of(sections_of(views[0].record).run)
    first, *others = (_rows_of(use, rules, view, games) for view in views)
    return {name: diff(first, rows, match_versions=False) for name, rows in zip(names[1:], others, strict=True)}


def _rows_of(use: Services, rules: Game, run_view: RunView, games: int) -> NDArray[Any]:
    try:
        return read_games(rules, use.games_of(segments_of(run_view)).last(games)).rows
    except NotFound:
        return np.zeros(0, ROW)


studies = APIRouter(prefix="/v1/studies", tags=["studies"])
StudyName = Annotated[str, PathPart(pattern=RUN_NAME_PATTERN, max_length=40)]


@studies.get("", response_model_exclude={"__all__": {"trials", "importances"}}, dependencies=[READ])
def list_studies(use: Use) -> list[StudyReport]:
    """Studies reported in the last thirty days, newest report first, without their trials."""
    return known_studies(use.bus)


@studies.get("/{study}", dependencies=[READ])
def show_study(study: StudyName, use: Use) -> StudyReport:
    """A study's trials, and what mattered."""
    return kept_study(use.bus, study)


# Reported every few seconds, which in the audit would push out what people did.
@studies.put("/{study}", status_code=http.HTTP_204_NO_CONTENT, dependencies=[OPERATE, QUESTION])
def tell_study(study: StudyName, body: StudyReport, use: Use) -> None:
    """Keeps the newest report of `azq sweep` on a study, for thirty days."""
    if body.study != study:
        raise InvalidRequest(f"the report is of study {body.study}, the address names {study}; send it to its own")
    keep_study(use.bus, body)
