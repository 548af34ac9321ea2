"""`azq move`: positions in, moves out, as JSON lines; the run may be stopped, no broker is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from azq import games, logs, pretrained
from azq.arena.analyse import analyse, outcomes_of
from azq.arena.player import position, requested_history
from azq.config import Config, RunSections, SearchConfig, merge, parse_run
from azq.errors import AzqError, ConfigError, NotFound, WeightsError, WireError, meant
from azq.games.files import absolute, is_python_file
from azq.host import rundir
from azq.host.game_files import load_game
from azq.ledger.records import check_run_name
from azq.notation.reading import json_row
from azq.notation.text import BLANK
from azq.notation.units import unit
from azq.presets import preset
from azq.search.evaluator import EnsembleEvaluator, Evaluator
from azq.wire.messages import LATEST

if TYPE_CHECKING:
    from azq.nets.weights import WeightsMeta

BATCH_LINES = 256  # positions searched together
MAX_LINE_BYTES = 1 << 20
PRINTED = ("action", "action_text", "value", "visit_counts", "priors", "principal_variation", "principal_variation_texts")

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Agent:
    """A network with its search, ready to answer positions; with a temperature it does not always play its best move."""

    game: games.Game
    evaluator: Evaluator
    weight_version: int
    search: SearchConfig
    num_simulations: int
    temperature: float = 0.0
    source: str = ""  # of weights that come with azq, in words

    def moves(self, histories: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """One answer per list of actions from the initial state, or `Line`; all are searched at once."""
        return analyse(self.game, self.evaluator, histories, num_simulations=self.num_simulations, config=self.search)

    def answers(self, histories: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """What `azq move` prints: the moves, with the distribution of outcomes and the value in the game's unit where it has them."""
        states = [position(self.game, history) for history in histories]
        answers = self.moves(histories)
        lines = [{key: answer[key] for key in PRINTED if key in answer} for answer in answers]
        scale = unit(self.game)
        if not scale.plain:
            lines = [{**answer, scale.name: round(scale.convert(answer["value"]), 4)} for answer in lines]
        outcomes = outcomes_of(self.game, self.evaluator, states)
        return [{**answer, "outcomes": row} for answer, row in zip(lines, outcomes, strict=True)] if outcomes else lines


def open_player(config: Config, *, game: str | None, run: str | None, weights: str, num_simulations: int) -> Agent:
    """Loads weights, or several, from files, the run's folder or those that come with azq; raises `ConfigError` for those of another game.

    `NotFound` and `WeightsError` name what is missing or does not fit.
    """
    from azq.inference.ask.local import LocalEvaluator

    folder = folder_of(config, game, run)
    chosen = [_or_pretrained(config, folder, game, run, name) for name in weights.split(",")]
    paths = [weights_file(folder, name) for name in chosen]
    settings = _settings(config, folder, game, run, chosen)
    name = game or settings.run.game
    naming = next((path for path, meta in described_by(chosen).items() if meta.game == name), folder.settings)
    rules = load_game(config, name, settings.run.params if settings.run.game == name else {}, naming)
    members = [LocalEvaluator.from_file(rules, path, config.inference) for path in paths]
    versions = [member.weight_version for member in members]
    evaluator = members[0] if len(members) == 1 else EnsembleEvaluator([(member, LATEST) for member in members])
    source = f" of {', '.join(chosen)}" if any(map(pretrained.named, chosen)) else ""
    return Agent(rules, evaluator, max(versions), settings.search, num_simulations, source=source)


def _or_pretrained(config: Config, folder: rundir.RunDir, game: str | None, run: str | None, weights: str) -> str:
    """These weights; where the newest of any run are meant and none has some, those that come with azq for the game, and says so."""
    name = game or config.run.game
    if weights != "latest" or run or holds_weights(folder) or name not in pretrained.names():
        return weights
    if requested_params(config, name) not in ({}, pretrained.card(name).params):
        return weights
    log.info("no_run", game=name, weights=f"{pretrained.PREFIX}{name}", remedy=f"azq up --game {name} trains others, --run names them")
    return f"{pretrained.PREFIX}{name}"


def described_by(weights: Iterable[str]) -> dict[Path, WeightsMeta]:
    """The metadata of those that are files. Raises `WeightsError` for one that cannot be read."""
    from azq.nets.weights import describe

    return {path: describe(path) for path in map(Path, weights) if path.suffix == ".safetensors"}


def _settings(config: Config, folder: rundir.RunDir, game: str | None, run: str | None, chosen: Sequence[str]) -> RunSections:
    """Game and search: as the first of the weights that come with azq was trained, else as the run, else the search of the game's preset.

    A file of weights knows its game's parameters itself where no run was named. What file, environment or `--set` say of the search
    themselves goes before all, as it does in `azq up`.
    """
    stored = _stored(config, folder, game, run, chosen)
    search = config.search.model_dump(exclude_unset=True)
    return parse_run({"run": stored.run.model_dump(), "search": merge(stored.search.model_dump(), search)}, "the search asked for")


def _stored(config: Config, folder: rundir.RunDir, game: str | None, run: str | None, chosen: Sequence[str]) -> RunSections:
    for name in filter(None, map(pretrained.named, chosen)):
        card = pretrained.card(name)
        if game not in (None, card.game):
            raise ConfigError(f"weights azq:{name} play {card.game}, not {game}; leave --game out, or name others")
        return RunSections.model_validate({"run": {"game": card.game, "params": card.params}, "search": card.search})
    files, stored = list(described_by(chosen).values()), folder.sections() if folder.exists() else None
    name = game or (files[0].game if files and not run else stored.run.game if stored else config.run.game)
    for file in files:
        if file.game != name and not (is_python_file(file.game) and is_python_file(name)):  # the file may lie elsewhere here
            raise ConfigError(f"these weights play {file.game}, not {name}; leave --game out, or name others")
    if stored and (run or not files):
        return stored
    params = {**(files[0].params if files else {}), **requested_params(config, name)}
    search = stored.search.model_dump() if stored and stored.run.game == name else preset(name).get("search", {})
    return RunSections.model_validate({"run": {"game": name, "params": params}, "search": search})


def requested_params(config: Config, game: str) -> dict[str, int | float | str | bool]:
    """The game's parameters that file, environment or `--set` name; none where they name another game, whose they are."""
    named = config.run.game if "game" in config.run.model_fields_set else game
    return config.run.params if absolute(named) == absolute(game) else {}


def weights_file(folder: rundir.RunDir, weights: str) -> Path:
    """The file of `latest`, of a version of the run, of `azq:<game>`, or that of this path. Raises `NotFound`, `WeightsError`."""
    if weights == "latest":
        return newest_weights(folder)
    if (name := pretrained.named(weights)) is not None:
        return pretrained.verified(name)
    if weights.isdecimal():
        for path in (folder.path / "weights").glob("*.safetensors"):
            if weight_version(path) == int(weights):
                return path
        raise NotFound(
            f"run {folder.name!r} keeps no weights of version {weights}; see {folder.path / 'weights'}, or name another run or a file"
        )
    if not Path(weights).is_file():
        raise NotFound(f"no weights file at {weights}; give --weights FILE or VERSION, or --run with `latest`")
    return Path(weights)


def holds_weights(folder: rundir.RunDir) -> bool:
    """Whether the run has weights in its folder."""
    return any(map(weight_version, (folder.path / "weights").glob("*.safetensors")))


def newest_weights(folder: rundir.RunDir) -> Path:
    """The file with the highest weight version in the run's folder; `NotFound` when the run has published none there."""
    files = {path: weight_version(path) for path in (folder.path / "weights").glob("*.safetensors")}
    newest = max(files, key=lambda path: files[path], default=None)
    if newest is None or not files[newest]:
        likely = "" if folder.exists() or folder.name in games.names() else meant(folder.name, games.names())
        raise NotFound(
            f"run {folder.name!r} has no weights in {folder.path / 'weights'}{likely}; train it with `azq up --run {folder.name}`, "
            "or name a file with --weights"
        )
    return newest


def weight_version(path: Path) -> int:
    """The version that a weights file says it has; 0 where it does not say."""
    from azq.nets.weights import describe

    try:
        return describe(path).version
    except WeightsError:
        return 0


def folder_of(config: Config, game: str | None, run: str | None) -> rundir.RunDir:
    """The folder of the named run, else of the newest of this game; `NotFound` where there is no such run."""
    if run:
        folder = rundir.RunDir(config.home, check_run_name(run))
        folder.values()
        return folder
    folders = [rundir.RunDir(config.home, name) for name in rundir.list_runs(config.home)]
    of_game = [folder for folder in folders if game is None or folder.sections().run.game == game]
    newest = max(of_game, key=lambda folder: folder.settings.stat().st_mtime, default=None)
    return newest or rundir.RunDir(config.home, game or config.run.game)


def move(config: Config, game: str, run: str | None, weights: str, num_simulations: int, source: TextIO, sink: TextIO) -> None:
    """Answers every line of `source` in order. A line that is wrong ends with `WireError` naming it; answers before it stand."""
    if num_simulations < 1:
        raise ConfigError(f"--num-simulations {num_simulations} must be at least 1")
    player = open_player(config, game=game, run=run, weights=weights, num_simulations=num_simulations)
    for batch in batches(source):
        histories: list[Sequence[int]] = []
        problem: AzqError | None = None
        for number, line in batch:
            try:
                histories.extend(_read_line(player.game, number, line))
            except AzqError as error:
                problem = error
                break
        for answer in player.answers(histories) if histories else []:
            sink.write(json.dumps(answer) + "\n")
        sink.flush()
        if problem:
            raise problem


def batches(source: TextIO) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines in groups: all that have arrived, never waiting for more once there is one, so that a dialogue works."""
    try:
        descriptor = source.fileno()
    except OSError:  # not a file: a text in memory
        yield list(enumerate(source, start=1))
        return
    number, rest = 0, b""
    while chunk := os.read(descriptor, MAX_LINE_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise WireError(f"line {number + len(lines) + 1} exceeds {MAX_LINE_BYTES} bytes")
        for start in range(0, len(lines), BATCH_LINES):
            yield [(number + start + i + 1, line.decode("utf-8", "replace")) for i, line in enumerate(lines[start : start + BATCH_LINES])]
        number += len(lines)
    if rest.strip():
        yield [(number + 1, rest.decode("utf-8", "replace"))]


def _read_line(game: games.Game, number: int, line: str) -> Iterator[Sequence[int]]:
    """No position for a blank line, else one where a player is to move."""
    if not line.strip(BLANK):
        return
    try:
        actions, row = json_row(line)
        notation = row.get("position")
        if "position" in row and not isinstance(notation, str):
            raise ConfigError("`position` is no text")
    except ConfigError as error:
        raise WireError(f'line {number} is not of the form {{"actions": [3, 2]}} or {{"position": "<notation>"}}: {error}') from None
    try:
        yield requested_history(game, actions, notation)
    except AzqError as error:
        raise WireError(f"line {number}: {error}") from None
