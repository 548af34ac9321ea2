"""`azq match`, `azq grade`, `azq play`: players by name on this machine, a person against weights; without a broker."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from azq import pretrained
from azq.arena.levels import drawn, nearest
from azq.arena.match import MeteredPlayer, draw_outcome, play_match, share_of_first_place, whole_groups
from azq.arena.player import Ground, Player, position
from azq.arena.players import FILE, kind_of, make_player
from azq.config import Config, SearchConfig
from azq.console import move
from azq.console.remote import best_weights, client_of
from azq.errors import ConfigError, IllegalActionError
from azq.games import Game, State
from azq.games.files import absolute
from azq.host.game_files import check_game, load_game
from azq.notation.boards import labelled
from azq.notation.units import Unit, score_text, unit
from azq.notation.words import legal_texts, read_move
from azq.stats import Z95
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
    move_ms: int = 0  # of a move, in place of simulations


def budget(num_simulations: int | None, move_ms: int | None, usual: int) -> dict[str, int]:
    """What of a `Seating` bounds a move, one of the two. Raises `ConfigError` for both, and for a time that is none."""
    if move_ms is not None and (move_ms < 1 or num_simulations is not None):
        instead = "" if num_simulations is None else f", and takes the place of --num-simulations {num_simulations}; give one of them"
        raise ConfigError(f"--move-ms {move_ms} is a move's time in milliseconds, at least 1{instead}")
    return {"num_simulations": usual if num_simulations is None else num_simulations, "move_ms": move_ms or 0}


@contextmanager
def seated(config: Config, seating: Seating, names: Sequence[str]) -> Iterator[tuple[Game, list[Player]]]:
    """The rules and the players of these names, closed at the end.

    Raises `ConfigError` for a wrong name or flag, `NotFound` for missing weights, and what engines raise.
    """
    if seating.num_simulations < 1:
        raise ConfigError(f"--num-simulations {seating.num_simulations} must be at least 1")
    with ExitStack() as stack:
        agents = {name: _agent(config, seating, name, stack) for name in dict.fromkeys(names) if kind_of(name).network}
        _check_alike(agents)
        game = next((agent.game for agent in agents.values()), None) or _rules(config, seating)
        engines = [name.partition(":")[2] for name in names]  # the user of this terminal may start any program
        ground = Ground(game, None, SearchConfig(), seating.num_simulations, slots=seating.slots, engines=engines, move_ms=seating.move_ms)
        players = []
        for number, name in enumerate(names):
            here = replace(ground, seed=seating.seed + number)
            if name in agents:
                agent = agents[name]
                owner = name if name.startswith(FILE) or pretrained.named(name) is not None else ""
                here = replace(here, evaluator=agent.evaluator, search=agent.search, latest=agent.weight_version, owner=owner)
            player = make_player(name, here)
            stack.callback(player.close)
            players.append(player)
        yield game, players


def _agent(config: Config, seating: Seating, name: str, stack: ExitStack) -> move.Agent:
    """The network behind `latest`, `weights:<version>`, `azq:<game>` or `file:<weights>`."""
    weights = seating.weights if name == "latest" else name if pretrained.named(name) is not None else name.partition(":")[2]
    agent = move.open_player(config, game=seating.game, run=seating.run, weights=weights, num_simulations=seating.num_simulations)
    stack.callback(agent.evaluator.close)
    return agent


def _check_alike(agents: Mapping[str, move.Agent]) -> None:
    """Raises `ConfigError` where two of them play a game with other parameters."""
    for (first, agent), (other, opponent) in pairwise(agents.items()):
        if (agent.game.name, agent.game.params) != (opponent.game.name, opponent.game.params):
            raise ConfigError(
                f"{first} plays {agent.game.name} with {agent.game.params}, {other} with {opponent.game.params}; they cannot meet"
            )


def game_named(config: Config, game: str | None, run: str | None, *names: str) -> str:
    """The game that was named, else the run's, else that of the first players or weights that come with azq or lie in a file.

    Raises `ConfigError` where nothing names one, `NotFound` for a run that is not there, `WeightsError` for a damaged file.
    """
    if game:
        return game
    if run:
        folder = move.folder_of(config, None, run)
        return check_game(config, folder.sections().run.game, folder.settings)
    if result := next(filter(None, map(pretrained.named, names)), None):
        return result
    files = (file for name in names if not name.startswith("gtp:") for file in name.removeprefix(FILE).split(","))
    for path, meta in move.described_by(files).items():
        return check_game(config, meta.game, path)
    raise ConfigError("no game was named; say which with --game, name a --run of it, a file of weights, or such as come with azq: azq:GAME")


def two_named(players: Sequence[str], first: str, second: str) -> tuple[str, str]:
    """The two players, whichever way they were named; `ConfigError` where there are not two."""
    named = [*players, *filter(None, (first, second))]
    if len(named) != 2:
        raise ConfigError(f"a match has two players, and {len(named)} were named; say `azq match FIRST SECOND`, or --first and --second")
    return named[0], named[1]


def _rules(config: Config, seating: Seating) -> Game:
    return load_game(config, seating.game, params_of(config, seating))


def params_of(config: Config, seating: Seating) -> dict[str, int | float | str | bool]:
    """The game's parameters: as the named run has them, else with `--set run.params.<name>=<value>`."""
    if seating.run:
        settings = move.folder_of(config, seating.game, seating.run).sections()
        if settings.run.game in (seating.game, absolute(seating.game)):
            return settings.run.params
    return move.requested_params(config, seating.game)


MAX_SEATS = 8  # of any game; a bound for the searches held at once


def match_players(config: Config, seating: Seating, first: str, second: str, games: int, opening_plies: int) -> dict[str, Any]:
    """The result of a match as plain values; raises what `play_match` and `seated` raise."""
    if games < 1 or opening_plies < 0:
        raise ConfigError(f"--games {games} must be at least 1 and --opening-plies {opening_plies} at least 0")
    spec = MatchSpec(first, second, games, seating.num_simulations, opening_plies, seating.seed)
    with seated(config, replace(seating, slots=whole_groups(games, MAX_SEATS)), [first, second]) as (game, players):
        if not seating.move_ms:
            return match_figures(play_match(spec, game, *players), unit(game))
        metered = [MeteredPlayer(player) for player in players]
        figures = match_figures(play_match(spec, game, *metered), unit(game))
        return figures | {"move_ms": seating.move_ms, "a_move": [player.a_move() for player in metered]}


def match_figures(result: MatchResult, measure: Unit) -> dict[str, Any]:
    """Plain values; `points_95` is half the width of a 95 % interval. Pure."""
    same = ("first", "second", "seats", "games", "wins", "draws", "losses")
    figures: dict[str, Any] = {"share": result.score, "unit": measure.name, "points": result.points, "points_95": Z95 * result.points_se}
    if result.seats == 1:
        second = {"second_points": result.second_points, "second_points_95": Z95 * result.second_points_se}
        figures |= second | {"gap": result.points - result.second_points, "gap_95": Z95 * result.gap_se}
    plain = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    return {name: getattr(result, name) for name in same} | plain


def match_text(result: dict[str, Any]) -> str:
    """The result in two lines; and what a move took, where it had a time."""
    if moves := result.get("a_move"):
        took = ("{ms:g} ms, {cpu_s:g} CPU-s, {simulations:,g} simulations".format_map(spent) for spent in moves)
        return f"{match_text(result | {'a_move': ()})}\na move of {result['move_ms']} ms: {'; '.join(took)}"
    if result["seats"] == 1:
        return _scores_text(result)
    fair = f", {1 / result['seats']:.1%} between equals" if result["seats"] > 2 else ""
    opponents = f"{result['seats'] - 1} x {result['second']}" if result["seats"] > 2 else result["second"]
    return (
        f"{result['first']} - {opponents}: {result['wins']} won, {result['draws']} drawn, {result['losses']} lost, "
        f"share {result['share']:.1%}{fair}\n"
        f"{result['points']:+.4f} +-{result['points_95']:.4f} {result['unit']} a game ({result['games']} games, 95 %)"
    )


def _scores_text(result: dict[str, Any]) -> str:
    """Of a game for one."""
    ours, theirs, gap = ((result[name], result[f"{name}_95"]) for name in ("points", "second_points", "gap"))
    both = f"{result['first']} {score_text(*ours)}, {result['second']} {score_text(*theirs)}"
    return (
        f"{both}: mean {result['unit']} of {result['games']} games each\n"
        f"{score_text(*gap, sign='+')} with the same luck, higher in {result['wins']}, lower in {result['losses']} (95 %)"
    )


HELP = "enter a move as the board writes it, or its number; h hints, u takes your last move back, q quits"
HINTS = 3  # moves

Ask = Callable[[str], str]
Tell = Callable[[str], object]


def play(
    config: Config, game: str | None, run: str | None, weights: str, level: float | None, num_simulations: int, human_first: bool
) -> None:
    """Plays games until the person quits. Raises `ConfigError` for flags that contradict, `DaemonUnavailable` where ratings are needed."""
    if level is not None and weights != "latest":
        raise ConfigError("--level chooses the weights itself; leave --weights out")
    temperature = 0.0
    if level is not None or weights == "best":
        run = move.folder_of(config, game, run).name
        with client_of(config) as client:  # the daemon has the ratings
            if level is None:
                weights = str(best_weights(client, run))
            else:
                chosen = nearest(client.levels(run), level)
                weights, num_simulations, temperature = str(chosen.weight_version), chosen.num_simulations, chosen.temperature
                sys.stdout.write(
                    f"level {chosen.elo:.0f}{'' if chosen.measured else ' (estimated)'}: {num_simulations} simulations a move\n"
                )
    agent = move.open_player(config, game=game, run=run, weights=weights, num_simulations=num_simulations)
    sys.stdout.write(f"{agent.game.name}, weights version {agent.weight_version}{agent.source}; {HELP}\n")
    match(replace(agent, temperature=temperature), 0 if human_first else 1, input, sys.stdout.write)


def match(player: move.Agent, human: int, ask: Ask, write: Tell, luck: random.Random | None = None) -> None:
    """One game; `human` is the person's seat, `luck` throws dice and deals. Ends at the end of the game or at `q`."""
    luck = luck or random.Random()
    history: list[int] = []
    while not (state := position(player.game, history)).is_terminal():
        if state.is_chance_node():
            history.append(draw_outcome(state, luck))
            continue
        hidden = player.game.is_hidden()
        write(f"\n{state.information_state_string(human) if hidden else labelled(player.game, state)}\n")
        if state.current_player() != human:
            answer = player.moves([history])[0]
            action = drawn(answer["policy"], player.temperature, luck) if player.temperature else answer["action"]
            agent = "agent" if player.game.num_players() == 2 else f"agent {state.current_player()}"
            write(f"{agent} plays {state.action_to_string(action)} (value {answer['value']:+.2f})\n")
            history.append(action)
        elif not _ask_action(player, state, history, ask, write):
            return
    write(f"\n{labelled(player.game, state)}\n{_verdict(state.returns(), human)}\n")


def _ask_action(player: move.Agent, state: State, history: list[int], ask: Ask, write: Tell) -> bool:
    """Changes the history by what the person says; False when there is nothing more to say."""
    while True:
        try:
            text = ask(f"your move [{', '.join(legal_texts(state))}]: ").strip()
        except EOFError:
            return False
        if text.lower() in ("q", "quit"):
            return False
        if text == "u" and (before := _last_move(player.game, history, state.current_player())) is not None:
            del history[before:]
            return True
        if text == "h":
            write(_hint(state, player.moves([history])[0]))
            continue
        try:
            history += read_move(state, text)
        except IllegalActionError as error:
            write(f"{error}\n{HELP}\n")
            continue
        return True


def _hint(state: State, answer: dict[str, Any]) -> str:
    """What the network would play, and what it thinks of each."""
    best = sorted(state.legal_actions(), key=lambda action: -answer["policy"][action])[:HINTS]
    moves = (f"{state.action_to_string(action)} {answer['policy'][action]:.0%}" for action in best)
    return f"{', '.join(moves)} (value {answer['value']:+.2f})\n"


def _last_move(game: Game, history: Sequence[int], human: int) -> int | None:
    """The ply of the person's last action; None before the first."""
    state = game.new_initial_state()
    last = None
    for ply, action in enumerate(history):
        last = ply if state.current_player() == human else last
        state.apply_action(action)
    return last


def _verdict(returns: Sequence[float], human: int) -> str:
    share = share_of_first_place(returns, human)
    return "you win" if share == 1.0 else "the agent wins" if share == 0.0 else "a draw"
