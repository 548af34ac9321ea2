"""Seats players by name for `azq match` and `azq grade`: networks from a run's folder or a file, all others as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from azq import games
from azq.arena.player import Ground, Player
from azq.arena.players import kind_of, make_player
from azq.config import Config, SearchConfig
from azq.console import move
from azq.errors import ConfigError, NotFound


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for."""

    game: str
    run: str | None
    weights: str  # a file, or `latest` of the run: what the player `latest` means
    num_simulations: int
    seed: int = 0
    slots: int = 1


@contextmanager
def seated(config: Config, request: Request, names: Sequence[str]) -> Iterator[tuple[games.Game, list[Player]]]:
    """The rules and the players of these names, closed at the end.

    Raises `ConfigError` for a wrong name or flag, `NotFound` for missing weights, and what engines raise.
    """
    if request.num_simulations < 1:
        raise ConfigError(f"--num-simulations {request.num_simulations} must be at least 1")
    with ExitStack() as stack:
        agents = {name: _agent(config, request, name, stack) for name in dict.fromkeys(names) if kind_of(name).network}
        game = next((agent.game for agent in agents.values()), None) or _rules(config, request)
        engines = [name.partition(":")[2] for name in names]  # whoever sits at this terminal may start what he names
        ground = Ground(game, None, SearchConfig(), request.num_simulations, slots=request.slots, engines=engines)
        players = []
        for number, name in enumerate(names):
            here = replace(ground, seed=request.seed + number)
            if name in agents:
                agent = agents[name]
                here = replace(here, evaluator=agent.evaluator, search=agent.search, latest=agent.weight_version)
            player = make_player(name, here)
            stack.callback(player.close)
            players.append(player)
        yield game, players


def _agent(config: Config, request: Request, name: str, stack: ExitStack) -> move.Player:
    """The network behind `latest` or `weights:<version>`."""
    weights = request.weights if name == "latest" else str(_file(config, request, name))
    agent = move.open_player(config, game=request.game, run=request.run, weights=weights, num_simulations=request.num_simulations)
    stack.callback(agent.evaluator.close)
    return agent


def _file(config: Config, request: Request, name: str) -> Path:
    folder = move.folder_of(config, request.game, request.run)
    wanted = name.partition(":")[2]
    for path in (folder.path / "weights").glob("*.safetensors"):
        if str(move.weight_version(path)) == wanted:
            return path
    raise NotFound(f"run {folder.name!r} keeps no weights of version {wanted!r}; see {folder.path / 'weights'}, or name a run with --run")


def _rules(config: Config, request: Request) -> games.Game:
    """The rules where no network plays: as the named run has them, else with `--set run.params.<name>=<value>`."""
    if request.run:
        settings = move.folder_of(config, request.game, request.run).sections()
        if settings.run.game == request.game:
            return games.load(request.game, **settings.run.params)
    return games.load(request.game, **config.run.params)
