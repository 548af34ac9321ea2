"""`azq match` and `azq grade`: players by name on this machine, without a broker; networks from a run's folder or a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from azq import games
from azq.arena import positions
from azq.arena.grade import Grade, grade
from azq.arena.match import Unit, play_match, unit, whole_groups
from azq.arena.player import Ground, Player
from azq.arena.players import kind_of, make_player
from azq.arena.rating import Z95
from azq.config import Config, SearchConfig
from azq.console import move
from azq.errors import ConfigError, NotFound
from azq.games import Game
from azq.wire.messages import MatchResult, MatchSpec


@dataclass(frozen=True, slots=True)
class Seating:
    """What the command line asked for."""

    game: str
    run: str | None
    weights: str  # a file, or `latest` of the run: what the player `latest` means
    num_simulations: int
    seed: int = 0
    slots: int = 1


@contextmanager
def seated(config: Config, seating: Seating, names: Sequence[str]) -> Iterator[tuple[games.Game, list[Player]]]:
    """The rules and the players of these names, closed at the end.

    Raises `ConfigError` for a wrong name or flag, `NotFound` for missing weights, and what engines raise.
    """
    if seating.num_simulations < 1:
        raise ConfigError(f"--num-simulations {seating.num_simulations} must be at least 1")
    with ExitStack() as stack:
        agents = {name: _agent(config, seating, name, stack) for name in dict.fromkeys(names) if kind_of(name).network}
        game = next((agent.game for agent in agents.values()), None) or _rules(config, seating)
        engines = [name.partition(":")[2] for name in names]  # whoever sits at this terminal may start what he names
        ground = Ground(game, None, SearchConfig(), seating.num_simulations, slots=seating.slots, engines=engines)
        players = []
        for number, name in enumerate(names):
            here = replace(ground, seed=seating.seed + number)
            if name in agents:
                agent = agents[name]
                here = replace(here, evaluator=agent.evaluator, search=agent.search, latest=agent.weight_version)
            player = make_player(name, here)
            stack.callback(player.close)
            players.append(player)
        yield game, players


def _agent(config: Config, seating: Seating, name: str, stack: ExitStack) -> move.Agent:
    """The network behind `latest` or `weights:<version>`."""
    weights = seating.weights if name == "latest" else str(_file(config, seating, name))
    agent = move.open_player(config, game=seating.game, run=seating.run, weights=weights, num_simulations=seating.num_simulations)
    stack.callback(agent.evaluator.close)
    return agent


def _file(config: Config, seating: Seating, name: str) -> Path:
    folder = move.folder_of(config, seating.game, seating.run)
    wanted = name.partition(":")[2]
    for path in (folder.path / "weights").glob("*.safetensors"):
        if str(move.weight_version(path)) == wanted:
            return path
    raise NotFound(f"run {folder.name!r} keeps no weights of version {wanted!r}; see {folder.path / 'weights'}, or name a run with --run")


def _rules(config: Config, seating: Seating) -> games.Game:
    """The rules where no network plays: as the named run has them, else with `--set run.params.<name>=<value>`."""
    if seating.run:
        settings = move.folder_of(config, seating.game, seating.run).sections()
        if settings.run.game == seating.game:
            return games.load(seating.game, **settings.run.params)
    return games.load(seating.game, **config.run.params)


MAX_SEATS = 8  # of any game; a bound for the searches held at once


def match_players(config: Config, seating: Seating, first: str, second: str, games: int, opening_plies: int) -> dict[str, Any]:
    """The result of a match as plain values; raises what `play_match` and `seated` raise."""
    if games < 1 or opening_plies < 0:
        raise ConfigError(f"--games {games} must be at least 1 and --opening-plies {opening_plies} at least 0")
    spec = MatchSpec(first, second, games, seating.num_simulations, opening_plies, seating.seed)
    with seated(config, replace(seating, slots=whole_groups(games, MAX_SEATS)), [first, second]) as (game, players):
        return match_figures(play_match(spec, game, *players), unit(game))


def match_figures(result: MatchResult, told: Unit) -> dict[str, Any]:
    """Plain values; `points_95` is half the width of a 95 % interval. Pure."""
    return {
        "first": result.first,
        "second": result.second,
        "seats": result.seats,
        "games": result.games,
        "wins": result.wins,
        "draws": result.draws,
        "losses": result.losses,
        "share": round(result.score, 4),
        "unit": told.name,
        "points": round(result.points, 4),
        "points_95": round(Z95 * result.points_se, 4),
    }


def match_text(result: dict[str, Any]) -> str:
    """The result in two lines."""
    fair = f", {1 / result['seats']:.1%} between equals" if result["seats"] > 2 else ""
    opponents = f"{result['seats'] - 1} x {result['second']}" if result["seats"] > 2 else result["second"]
    return (
        f"{result['first']} - {opponents}: {result['wins']} won, {result['draws']} drawn, {result['losses']} lost, "
        f"share {result['share']:.1%}{fair}\n"
        f"{result['points']:+.4f} +-{result['points_95']:.4f} {result['unit']} a game ({result['games']} games, 95 %)"
    )


def grade_player(config: Config, seating: Seating, player: str, file: Path | None) -> dict[str, Any]:
    """The figures of one player on the positions of a file, or on those shipped for the game.

    Raises `ConfigError` naming the line that is wrong, `NotFound` for missing weights or a game without positions.
    """
    graded = positions.read(file) if file else positions.load(seating.game)
    with seated(config, seating, [player]) as (game, (seat,)):
        return grade_figures(game, seat.name, seating.num_simulations, grade(game, seat, graded))


def grade_figures(game: Game, player: str, num_simulations: int, found: Grade) -> dict[str, Any]:
    """Plain values, losses in the game's unit; lost result classes only where results are certain: two players, no chance. Pure."""
    told = unit(game)
    certain = game.num_players() == 2 and not game.is_chance() and not game.is_hidden()
    rows = {name: _row(told, found.loss_by_class[name], errors, count, certain) for name, (errors, count) in sorted(found.by_class.items())}
    return {
        "game": game.name,
        "player": player,
        "num_simulations": num_simulations,
        "unit": told.loss_name,
        **_row(told, found.mean_loss, found.errors, found.positions, certain),
        "unlisted": found.unlisted,
        "by_class": rows,
    }


def _row(told: Unit, loss: float, errors: int, count: int, certain: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"positions": count, "mean_loss": round(loss * told.loss_scale, 4)}
    if certain:
        row |= {"errors": errors, "error_share": round(errors / count, 4) if count else 0.0}
    return row


def grade_text(result: dict[str, Any]) -> str:
    """The figures as a table, a line for each class."""
    certain = "errors" in result
    head = f"{'class':<12} {'positions':>9} {'mean loss':>10}" + (f" {'lost classes':>13}" if certain else "")
    rows = {**result["by_class"], "all": result}
    lines = [f"{result['player']} at {result['game']}, loss in {result['unit']}", head]
    for name, row in rows.items():
        share = f" {row['error_share']:>13.1%}" if certain else ""
        lines.append(f"{name or '-':<12} {row['positions']:>9} {row['mean_loss']:>10.4g}{share}")
    if result["unlisted"]:
        lines.append(f"{result['unlisted']} moves are not graded in the file; each counts as the worst that is")
    return "\n".join(lines)
