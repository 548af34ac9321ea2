"""One seed's curve: a lockstep run in this process, measured at some of its versions. As a program, of several seeds, a line each point."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from azq import games, logs
from azq.arena.grade import grade
from azq.arena.match import play_match, whole_groups
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.config import RunSections, merge
from azq.errors import AzqError
from azq.parts.lab.validate.bands import BandPoint, SeedCurve
from azq.parts.lab.validate.validate import PREFIX, watch_alone
from azq.parts.lab.validate.versions import lockstep_sections
from azq.process.start import PYTHON, bare_environment, bound_to_this, run_main
from azq.ratings import positions
from azq.search.evaluator import Evaluator
from azq.wire.messages import MatchSpec

#: over lockstep's: steps enough to learn within a minute; players are bare policies, which show what was learned and hide nothing by search
MEASURED: dict[str, dict[str, Any]] = {
    "selfplay": {"games_in_flight": 64, "groups": 1},
    "network": {"blocks": 1},
    "learner": {"batch_size": 128, "lockstep_games": 64, "lockstep_steps": 64, "ema_decay": 0.9},
    "arena": {"num_simulations": 1, "games": 200, "grade_positions": 600, "opening_plies": 2},
}


@dataclass(frozen=True, slots=True)
class CurvePlan:
    """Against whom, where positions are not graded, at which versions, with which further settings; or why it would tell nothing."""

    opponent: str = "random"
    versions: tuple[int, ...] = (3, 5, 9, 13)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mute: str = ""  # what was measured where no learning shows within minutes


#: opponents against whom a network of so few steps neither wins all nor loses all
PLANS = {
    "tic_tac_toe": CurvePlan("uct:30"),
    "connect_four": CurvePlan(versions=(5, 9, 13)),
    "backgammon": CurvePlan(versions=(2, 3, 4)),
    "beasty_bar": CurvePlan(versions=(3, 5, 9)),
    "blob": CurvePlan(mute="512 steps leave its bare policy where it was, 0.66 to 0.70 of the points lost to random"),
    "gomoku": CurvePlan(mute="its bare policy loses 2 % to random untrained, for it plays rows, and 49 % after 128 steps"),
    "othello": CurvePlan("uct:10", versions=(3, 5), settings={"run": {"params": {"size": 6}}}),
}


class PointOfSeed(msgspec.Struct, frozen=True):
    seed: int
    point: BandPoint


def band_sections(game: str, seed: int, evaluator: str = "local") -> RunSections:
    """What a game's curves are made with; raises `ConfigError` where its preset goes with no lockstep."""
    graded = () if positions.available(game) else (plan_of(game).opponent,)
    measured = merge({**MEASURED, "arena": {**MEASURED["arena"], "opponents": graded}}, plan_of(game).settings)
    return lockstep_sections(game, seed, evaluator, measured)


def plan_of(game: str) -> CurvePlan:
    """When and against whom a game is measured."""
    return PLANS.get(game, CurvePlan())


def metric_of(game: str) -> str:
    """What the loss is of, in words."""
    if positions.available(game):
        return "mean loss of graded moves"
    return f"share of points lost to {plan_of(game).opponent}"


def curve(game: str, seed: int) -> Iterator[BandPoint]:
    """The points, as they come. Raises `ConfigError` for a game of one player without graded positions."""
    sections, wanted, cpu_s = band_sections(game, seed), plan_of(game).versions, 0.0
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder, closing(watch_alone(sections, Path(folder))) as versions:
        while True:
            began_s = time.process_time()
            version, evaluator = next(versions)
            cpu_s += time.process_time() - began_s if version.number > 1 else 0.0  # the first is what starting costs
            if version.number in wanted:
                figures = strength(sections, evaluator, version.number)
                yield BandPoint(version.step, version.games, **figures, cpu_s=round(cpu_s, 2), hash=version.hash)
            if version.number == max(wanted):
                return


def strength(sections: RunSections, evaluator: Evaluator, version: int) -> Mapping[str, Any]:
    """Loss and errors of a version's bare policy, always on the same positions or from the same openings."""
    arena, game = sections.arena, games.load(sections.run.game, **sections.run.params)
    slots = whole_groups(arena.games, game.num_players())
    ground = Ground(game, evaluator, sections.search, arena.num_simulations, latest=version, slots=slots)
    with closing(make_player(f"weights:{version}", ground)) as player:
        if not arena.opponents:
            graded = grade(game, player, positions.choose(positions.load(game.name), arena.grade_positions, 0))
            return {"loss": round(graded.mean_loss, 6), "errors": round(graded.error_share, 6)}
        spec = MatchSpec(player.name, arena.opponents[0], arena.games, arena.num_simulations, arena.opening_plies, 0)
        with closing(make_player(spec.second, ground)) as opponent:
            return {"loss": round(1.0 - play_match(spec, game, player, opponent).share, 6), "errors": None}


def main() -> int:
    """`python -m azq.parts.lab.validate.curve GAME SEED ...`: the points of one seed after the other."""
    game, *seeds = sys.argv[1:]
    logs.setup("validate", level=logging.WARNING)
    for seed in map(int, seeds):
        for point in curve(game, seed):
            sys.stdout.write(msgspec.json.encode(PointOfSeed(seed, point)).decode() + "\n")
            sys.stdout.flush()
    return 0


COMMAND = (*PYTHON, "-m", "azq.parts.lab.validate.curve")


def curves_of(game: str, seeds: Sequence[int], processes: int, progress: Callable[[str], None]) -> Iterator[SeedCurve]:
    """Each as it is finished; closing the generator ends those at work. Raises `AzqError` where a process fails."""
    read_end, write_end = os.pipe()  # one for all: a line is written at once
    shares = [share for first in range(processes) if (share := seeds[first::processes])]
    running = [_started(game, share, write_end) for share in shares]
    os.close(write_end)
    points: dict[int, list[BandPoint]] = {seed: [] for seed in seeds}
    with open(read_end, "rb") as lines:
        try:
            for line in lines:
                seed, point = msgspec.structs.astuple(msgspec.json.decode(line, type=PointOfSeed))
                points[seed].append(point)
                progress(f"seed {seed}: step {point.step}, loss {point.loss:.4f}, {point.cpu_s:.0f} CPU-seconds")
                if len(points[seed]) == len(plan_of(game).versions):
                    yield SeedCurve(seed, points[seed])
            if any(process.wait() for process in running):
                raise AzqError(
                    f"a process that runs seeds of {game} failed, as it says above; the same command goes on with what --out has"
                )
        finally:
            for process in running:
                process.send_signal(signal.SIGINT)  # its files go with it
                process.wait()


def _started(game: str, seeds: Sequence[int], output: int) -> subprocess.Popen[bytes]:
    life = bound_to_this({**bare_environment(), "OMP_NUM_THREADS": "1"})
    return subprocess.Popen([*COMMAND, game, *map(str, seeds)], stdout=output, start_new_session=True, **life)


if __name__ == "__main__":
    sys.exit(run_main("validate", main))
