"""Recorded games out of a run's folder and into a new one: `azq games export`, `azq games import`."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from azq.arena.match import play_on
from azq.arena.player import Player
from azq.clock import now_ms
from azq.config import Config, load
from azq.console.grading import ProgressLine
from azq.console.play import Seating, seated
from azq.console.up import UpRequest, read_start, requested_game
from azq.errors import ConfigError, NotFound, StateConflict
from azq.games import Game
from azq.host.game_files import list_game, load_game
from azq.host.rundir import RunDir, make_folder
from azq.learner.data.intake import game_key
from azq.notation import sgf
from azq.notation.reading import ReadGame, form_of, read_games, sgf_params
from azq.notation.writing import as_event
from azq.replay.samples import count_trained, judge
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire.codec import encode
from azq.wire.messages import SampleEvent

AT_ONCE = 64  # games checked and stored together
SOURCE = "import"  # who made them, where the log names a worker
UNFINISHED = "end before the game does (`--finish PLAYER` plays them on)"
BROKEN = "cannot be read, or break the rules"
STRAY = "are text outside of any game"
MOST_NAMED = 20  # of what was left out, in words

File = tuple[Path, str, bytes]  # with its notation
OTHERWISE = "were played on to another result than the file's"


@dataclass
class Imported:
    """What an import has come to."""

    run: str
    games: int = 0
    positions: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)

    def leave_out(self, kind: str, name: str, why: str = "") -> None:
        self.left_out[kind] += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(f"{name}: {why or kind}")

    def values(self) -> dict[str, Any]:
        """By their public names."""
        return vars(self) | {"first_left_out": self.named[0] if self.named else ""}

    def text(self) -> list[str]:
        lines = [f"run {self.run} begins with {self.games:,} games, {self.positions:,} positions"]
        if self.left_out:
            counts = ", ".join(f"{count:,} {why}" for why, count in self.left_out.items())
            more = self.left_out.total() - len(self.named)
            lines += [f"{self.left_out.total():,} left out: {counts}", *(f"  {line}" for line in self.named)]
            lines += [f"  and {more:,} more"] if more else []
        return [*lines, f"`azq up --run {self.run}` learns from them first, then more and more from its own"]


def import_games(
    request: UpRequest,
    paths: Sequence[Path],
    report: Callable[[str], None],
    *,
    form: str = "",
    finish: str = "",
    num_simulations: int = 400,
) -> Imported:
    """Makes the folder of a new run whose log begins with the games of these files; it is there whole, or not at all.

    `form` is their notation (none: by their names). The player `finish` plays on what was given up; without one, and where they break the
    rules, games are left out and counted. Raises `NotFound` for a file, `StateConflict` for a run that exists, `ConfigError` where no game
    is left, `StoreError` for a full disk.
    """
    start = read_start(request)
    if start.run.path.exists():
        raise StateConflict(f"run {start.run.name!r} exists, and games come before all others of a run; choose another --run")
    files = [(path, form or form_of(path.name), _bytes(path)) for path in paths]
    sections = _as_in(files, start.config, request).run_sections()
    game = load_game(start.config, sections.run.game, sections.run.params)
    making, done = RunDir(start.run.home, f".{start.run.name}.import"), Imported(start.run.name)
    make_folder(making.path / "segments")
    try:
        with ExitStack() as stack:
            log = SegmentLog(making.path / "segments", game_key(sections), count=partial(count_trained, game))
            stack.callback(log.close)
            result = _sound(game, files, done)
            seating = Seating(sections.run.game, None, "latest", num_simulations, slots=AT_ONCE)
            players = stack.enter_context(seated(start.config, seating, [finish]))[1] if finish else [None]
            store = Storing(game, log, players[0], done)
            progress = ProgressLine(report, lambda: f"{done.games:,} games, {done.positions:,} positions")
            while several := list(islice(result, AT_ONCE)):
                store.take(several)
                progress()
        if not done.games:
            named = ", ".join(map(str, paths))
            raise ConfigError(f"no game of {named} can be learnt from; the first: {'; '.join(done.named[:3]) or 'there is none'}")
        making.create(sections, start.host)
        list_game(start.run.home, requested_game(request))
        making.path.rename(start.run.path)
    finally:
        shutil.rmtree(making.path, ignore_errors=True)
    return done


def _as_in(files: Sequence[File], config: Config, request: UpRequest) -> Config:
    """Settings with the size of board, and hex's swap, that the first file of SGF says, unless they are set by hand."""
    run = config.run
    if run.game not in sgf.NUMBERS:
        return config
    chosen = load(request.config_file, request.overrides).run.params
    for _, data in ((form, data) for _, form, data in files if form == "sgf"):
        values = {name: value for name, value in sgf_params(load_game(config, run.game, {}), data).items() if name not in chosen}
        with suppress(ConfigError):  # another size than the game has: each game of the file is refused by name
            load_game(config, run.game, run.params | values)
            return config.model_copy(update={"run": run.model_copy(update={"params": run.params | values})})
    return config


def _sound(game: Game, files: Sequence[File], done: Imported) -> Iterator[tuple[str, ReadGame]]:
    for path, form, data in files:
        try:
            result = read_games(form, game, data)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        for read in result:
            name = str(path) if read.stray else f"{path}, game {read.number}"
            if read.problem:
                done.leave_out(STRAY if read.stray else BROKEN, name, read.problem)
            else:
                yield name, read


@dataclass
class Storing:
    """Games as they go into the log of a run that is made."""

    game: Game
    log: SegmentLog
    finisher: Player | None
    done: Imported

    def take(self, several: Sequence[tuple[str, ReadGame]]) -> None:
        """Finishes what was given up, then stores what can be learnt from, numbered from 1."""
        events: list[SampleEvent] = []
        for (name, read), actions in zip(several, self._whole([read for _, read in several]), strict=True):
            if not actions:
                self.done.leave_out(UNFINISHED, name)
                continue
            event = as_event(self.game, self.done.games + len(events) + 1, actions, SOURCE, now_ms(), len(read.actions))
            if not read.over and read.sign is not None and read.sign != np.sign(event.returns[0]):
                self.done.leave_out(OTHERWISE, name)
            else:
                events.append(event)
        counts = judge(self.game, events).counts
        self.log.append([LogEntry(event.record.uid, counts[event.record.uid], encode(event)) for event in events])
        self.done.games += len(events)
        self.done.positions += sum(counts.values())

    def _whole(self, reads: Sequence[ReadGame]) -> list[Sequence[int]]:
        """Actions up to an end by the rules; none without a finisher."""
        given_up = [read for read in reads if not read.over]
        finished = iter(play_on(self.game, self.finisher, [read.actions for read in given_up]) if self.finisher else [()] * len(given_up))
        return [read.actions if read.over else next(finished) for read in reads]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from None
