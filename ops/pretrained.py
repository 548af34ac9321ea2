"""Makes azq's weights to take home from runs: `python ops/pretrained.py RUN... --home FOLDER` writes azq/pretrained/<game>.* again.

The newest weights of each run, in half precision, and the card: what the run's ledger and processes told, and what is measured here,
with the bytes that are shipped: graded positions where the game has some or is small, matches against `OPPONENTS`, and what half
precision moved. The brokers of FOLDER need not run; one that does is only read. `--levels MINUTES` plays the levels of shipped games
against each other for so long, or until each is known to `NARROW_ELO`, and adds to the card what they came to.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from azq import games, pretrained
from azq.arena.levels import Level, drawn
from azq.arena.match import play_match
from azq.arena.player import Ground, Player
from azq.arena.players import NetworkPlayer
from azq.bus.redis import RedisBus
from azq.config import Config, InferenceConfig, RunSections, dump_run, load
from azq.config.loading import flat, to_toml, toml_value
from azq.console.demo import levels_of, sections_of
from azq.console.grading import SolveRequest, grade_player, solve
from azq.console.move import newest_weights
from azq.console.play import Seating, match_players
from azq.files import publish_file
from azq.host.brokers import reading_control
from azq.host.devices import detect
from azq.host.rundir import RunDir
from azq.inference.ask.local import LocalEvaluator
from azq.ledger import Ledger
from azq.nets import WeightsMeta, from_bytes
from azq.nets.weights import state_to_bytes
from azq.parts.lab.bench.suite import processor
from azq.presets import preset
from azq.process.source import commit
from azq.ratings import positions
from azq.ratings.elo import rate
from azq.search.evaluator import Evaluation
from azq.status.curves import Course, read_course
from azq.wire.messages import MatchResult, MatchSpec

# Who plays the network, and in how many games; `--opponents` names others.
OPPONENTS = {
    "tic_tac_toe": ("uct:1000",),
    "connect_four": ("uct:1000",),
    "othello": ("uct:200", "uct:1000"),
    "gomoku": ("uct:1000", "uct:10000"),
    "hex": ("uct:1000",),
    "backgammon": ("random", "pimc:20"),
    "beasty_bar": ("rule", "pimc:20"),
    "blob": ("rule", "pimc:20"),
    "2048": ("rule", "uct:20", "uct:100"),
}
SOLVED = ("tic_tac_toe",)
MATCH_SIMULATIONS = 64
GRADE_SIMULATIONS = (1, 400)
POSITIONS = 512  # of random games, on which half precision is compared
AT_ONCE = 32  # games of two levels, in step
NARROW_ELO = 60.0  # half of the widest 95 % interval that is wanted


def shipped(state: Mapping[str, torch.Tensor], meta: WeightsMeta) -> bytes:
    """Weights in half precision. Raises `ValueError` for a tensor that it cannot hold."""
    data = state_to_bytes(state, meta, torch.float16)
    from_bytes(data)  # which refuses infinities
    return data


def rounding(meta: WeightsMeta, exact: bytes, half: bytes) -> float:
    """How far half precision moves a prior or a value at most, on positions of random games."""
    game, luck = games.GameFiles().load(meta.game, meta.params), random.Random(0)
    states: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    while len(states) < POSITIONS:
        state = game.new_initial_state()
        while not state.is_terminal():
            if not state.is_chance_node():
                states.append(state.packed_observation())
            state.apply_action(luck.choice(state.legal_actions()))
    packed, found = np.stack(states[:POSITIONS]), []
    for data in (exact, half):
        evaluator = LocalEvaluator.from_bytes(game, data, InferenceConfig(device="cpu", precision="float32"))
        evaluation = evaluator.result(evaluator.submit(packed), timeout_s=600)
        evaluator.close()
        assert evaluation is not None
        found.append(evaluation)
    return float(np.abs(_priors(found[0]) - _priors(found[1])).max())


def _priors(evaluation: Evaluation) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Priors and values beside each other."""
    logits = torch.from_numpy(np.asarray(evaluation.logits, np.float32)).softmax(1).numpy()
    return np.concatenate([logits, np.asarray(evaluation.values, np.float32)], axis=1)


def training(course: Course, sections: RunSections, made: str) -> pretrained.TrainedBy:
    """What the run's own records say."""
    reached, newest = course.reached, max(course.weights, key=lambda event: event.version)
    usual = dict(flat(dump_run(load(base=preset(sections.run.game)).run_sections())))
    return pretrained.TrainedBy(
        run=course.view.record.run,
        commit=made,
        minutes=round(reached.minutes, 1),
        cpu_seconds=round(reached.cpu_s),
        machine=machine(),
        games=course.counts.finished,
        samples=max((point.samples for point in course.points), default=0),
        steps=newest.step,
        settings=[f"{name}={toml_value(value)}" for name, value in flat(dump_run(sections)) if value != usual.get(name)],
    )


def machine() -> str:
    """Cores and the CPU's name; runs are trained where their cards are made."""
    return f"{detect().cores} cores of {processor()}"


def matches(config: Config, game: str, opponents: Sequence[str], count: int, plies: int) -> Iterator[pretrained.MeasuredMatch]:
    """The shipped weights against each opponent, after random `plies` as in the run's own matches."""
    for opponent in opponents:
        found = match_players(config, Seating(game, None, "latest", MATCH_SIMULATIONS), f"azq:{game}", opponent, count, plies)
        bounds = standing(found, plies) if found["seats"] > 1 else {key: found[key] for key in ("gap", "gap_95")}
        told = {key: found[key] for key in ("games", "wins", "draws", "losses", "seats", "share", "points", "points_95", "unit")}
        print(f"{game}: {told | bounds} against {opponent}", flush=True)
        row = {"opponent": opponent, "num_simulations": MATCH_SIMULATIONS, **told, **bounds}
        yield msgspec.convert(row, pretrained.MeasuredMatch)


def standing(found: Mapping[str, Any], plies: int) -> dict[str, int]:
    """Elo over the opponent, with its 95 % interval."""
    name, opponent = found["first"], found["second"]
    spec = MatchSpec(name, opponent, found["games"], MATCH_SIMULATIONS, plies, 0)
    counts = found["wins"], found["draws"], found["losses"]
    result = MatchResult(spec, name, opponent, *counts, 0, seats=found["seats"], share=found["share"])
    rating = next(one for one in rate([result], anchor=opponent) if one.player == name)
    return {"elo": round(rating.elo), "elo_low": round(rating.low), "elo_high": round(rating.high)}


def grades(config: Config, game: str) -> Iterator[pretrained.MeasuredGrade]:
    """The shipped weights on graded positions, where the game has some or is solved in seconds: one simulation, then a long search."""
    if game in SOLVED:
        solve(SolveRequest(game, pretrained.card(game).params, config.home), print)
    if not positions.available(game, pretrained.card(game).params, config.home):
        return
    for simulations in GRADE_SIMULATIONS:
        found = grade_player(config, Seating(game, None, "latest", simulations, slots=256), f"azq:{game}", None)
        row = {key: found.get(key) for key in ("positions", "mean_loss", "unit", "errors", "error_share")}
        print(f"{game}: {row} at {simulations} simulations", flush=True)
        bare = found["regret"]["policy"]["mean"] if "regret" in found else None
        yield msgspec.convert(row | {"num_simulations": simulations, "policy_loss": bare}, pretrained.MeasuredGrade)


class LevelPlayer(Player):
    """A level as the play page has it, but for the precision of the network."""

    def __init__(self, number: int, level: Level, ground: Ground) -> None:
        self.name = f"level {number}"
        self.cost = level.num_simulations
        self._network = NetworkPlayer((level.weight_version,), replace(ground, num_simulations=level.num_simulations, seed=number))
        self._temperature, self._luck = level.temperature, random.Random(number)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        found = self._network.results(histories)
        if not self._temperature:
            return [result.best_action for result in found]
        return [drawn([float(share) for share in result.policy], self._temperature, self._luck) for result in found]


def measured_levels(name: str, minutes: float) -> list[pretrained.MeasuredLevel]:
    """Each level against those one and two above it: most games where they cost least, for the least error of all in a time; those levels
    that came to play."""
    card, sections = pretrained.card(name), sections_of(pretrained.card(name))
    game = games.GameFiles().load(name, card.params)
    evaluator = LocalEvaluator.from_file(game, pretrained.verified(name), InferenceConfig(device="cpu"))
    search = sections.search.model_copy(update={"leaves_per_step": 1})
    ground = Ground(game, evaluator, search, 1, slots=AT_ONCE, latest=card.version)
    players = [LevelPlayer(number, level, ground) for number, level in enumerate(levels_of(card), 1)]
    pairs = [(first, second) for apart in (1, 2) for first, second in zip(players[apart:], players, strict=False)]
    played, results = Counter[tuple[LevelPlayer, LevelPlayer]](), list[MatchResult]()
    widest, until_s = math.inf, time.monotonic() + 60 * minutes
    while widest > NARROW_ELO and time.monotonic() < until_s:
        first, second = pair = min(pairs, key=lambda pair: (played[pair] + AT_ONCE) * (pair[0].cost + pair[1].cost) ** 0.5)
        spec = MatchSpec(first.name, second.name, AT_ONCE, 0, sections.arena.opening_plies, len(results))
        results.append(play_match(spec, game, first, second))
        played[pair] += results[-1].games
        ratings = {rating.player: rating for rating in rate(results, players[0].name)}
        widest = max((rating.high - rating.low) / 2 for rating in ratings.values())
        print(f"{name}: {len(results)} {first.name} - {second.name}: {results[-1].share:.3f}; +-{widest:.0f}", flush=True)
    evaluator.close()
    return [
        pretrained.MeasuredLevel(level.num_simulations, level.temperature, round(one.elo), round(one.elo - one.low), one.games)
        for level, player in zip(levels_of(card), players, strict=True)
        if (one := ratings.get(player.name))
    ]


def write(card: pretrained.Card) -> None:
    """The card as TOML, tables of lists one under the other."""
    values = {key: value for key, value in pretrained.as_values(card).items() if value is not None}
    lists = {name: values.pop(name) for name in ("matches", "grades", "levels")}
    parts = [f"# Made by ops/pretrained.py from run {card.training.run}; not by hand.\n", to_toml(values)]
    for name, rows in lists.items():
        parts += [f"[[{name}]]\n{to_toml({key: value for key, value in row.items() if value is not None})}" for row in rows]
    publish_file(pretrained.FOLDER / f"{card.game}.toml", "\n".join(parts).encode())


def make(config: Config, run: str, made: str, opponents: Sequence[str], count: int, *, decisive: bool) -> None:
    """Both files of the run's game: first the weights with what is known of them, then again with what was measured.

    `decisive`: they play with `search.decisive_moves`, whatever their run did.
    """
    folder = RunDir(config.home, run)
    sections = folder.sections()
    with reading_control(config) as client:
        course = read_course(Ledger(client), RedisBus(client), run)
    exact = newest_weights(folder).read_bytes()
    state, meta = from_bytes(exact)
    half = shipped(state, meta)
    publish_file(pretrained.FOLDER / f"{meta.game}{pretrained.SUFFIX}", half)
    card = pretrained.Card(
        game=meta.game,
        sha256=hashlib.sha256(half).hexdigest(),
        size=len(half),
        version=meta.version,
        network=" ".join(f"{key}={meta.network[key]}" for key in ("kind", "blocks", "channels", "parity") if key in meta.network),
        params=dict(meta.params),
        search=sections.search.model_dump(mode="json", exclude_defaults=True, exclude={"num_simulations", "schedule"})
        | ({"decisive_moves": True} if decisive else {}),
        training=training(course, sections, made),
        ledger=asdict(course.counts) | {"balanced": course.counts.balanced},
        rounding=float(f"{rounding(meta, exact, half):.2g}"),
    )
    write(card)
    with tempfile.TemporaryDirectory() as empty:
        here = load(None, [f'home="{empty}"'])
        known = list(grades(here, meta.game))
        played = list(matches(here, meta.game, opponents or OPPONENTS[meta.game], count, sections.arena.opening_plies))
    write(msgspec.structs.replace(card, grades=known, matches=played))
    print(f"{meta.game}: {len(half):,} bytes, sha256 {card.sha256}", flush=True)


def main() -> None:
    """Reads the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("runs", nargs="+", metavar="RUN")
    options.add_argument("--home", type=Path, default=Path("runs"), help="the folder of the runs")
    options.add_argument("--levels", type=float, metavar="MINUTES", help="RUN names shipped games, whose levels play for so long")
    options.add_argument("--commit", default="", help="of the azq that trained them; this one's by default")
    options.add_argument("--opponents", default="", help="comma-separated, in place of the game's usual ones")
    options.add_argument("--games", type=int, default=100, help="of each match")
    options.add_argument("--decisive-moves", action="store_true", help="they play with search.decisive_moves, whatever their run did")
    given = options.parse_args()
    for game in given.runs if given.levels else ():
        write(msgspec.structs.replace(pretrained.card(game), levels=measured_levels(game, given.levels)))
    if given.levels:
        return
    config = load(None, [f'home="{given.home.absolute()}"'])
    for run in given.runs:
        opponents = [name for name in given.opponents.split(",") if name]
        make(config, run, given.commit or commit(), opponents, given.games, decisive=given.decisive_moves)


if __name__ == "__main__":
    main()
