"""Commands that play and judge on this machine: `azq play`, `move`, `gtp`, `match`, `grade`, `solve`, `replay`, and the games there are."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.arena.players import FORMS as PLAYER_FORMS
from azq.cli.options import Answer, ConfigFile, Overrides, Preset, RunName, answers_apart, with_answer, with_settings
from azq.errors import ExitCode

if TYPE_CHECKING:
    from azq.config import Config

games_app = typer.Typer(name="games", no_args_is_help=True, help="The games azq knows.")
site_app = typer.Typer(name="site", no_args_is_help=True, help="Pages on which visitors play the shipped networks.")

Game = Annotated[str | None, typer.Option("--game", help="Name of the game; that of the weights where `azq:GAME` or a file is named.")]
Latest = Annotated[
    str, typer.Option("--weights", help="What `latest` means: a file, a version, `latest` of the run, `azq:GAME`, or several: `a,b`.")
]

MoveMs = Annotated[int | None, typer.Option("--move-ms", help="Milliseconds a move of networks and GTP engines, in place of simulations.")]


@with_settings
def play(
    settings: Config,
    name: Annotated[str | None, typer.Argument(metavar="GAME", help="Name of the game.", show_default=False)] = None,
    game: Annotated[str | None, typer.Option("--game", help="The same.")] = None,
    run: RunName = None,
    weights: Annotated[
        str, typer.Option("--weights", help="A version, a file, `latest`, the highest rated `best`, `azq:GAME`, or several: `3,7`.")
    ] = "latest",
    level: Annotated[float | None, typer.Option("--level", help="An Elo of the run's ratings; it chooses weights and simulations.")] = None,
    num_simulations: Annotated[int, typer.Option(help="Simulations a move.")] = 400,
    first: Annotated[bool, typer.Option("--first/--second", help="You begin, or the agent does.")] = True,
) -> None:
    """Play in the terminal: against a run's weights, as strong as they are or at a level, else against those that come with azq."""
    from azq.console.play import play as command

    command(settings, name or game, run, weights, level, num_simulations, first)


def demo(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Play the shipped networks in the browser: nine games, no training, no account."""
    from azq.console.demo import demo as command

    command(port, open_browser=browser)


@site_app.command("build")
def site_build(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    url: Annotated[str, typer.Option("--url", help="Address that it will have, ending in /: link previews then have pictures.")] = "",
) -> None:
    """Write the same pages into a folder that any web server can serve."""
    from azq.console.demo import build

    typer.echo(f"{folder}: {len(build(folder, url))} games; try it with `python3 -m http.server -d {folder}`")


@with_settings
def move(
    settings: Config,
    game: Game = None,
    run: RunName = None,
    weights: Annotated[str, typer.Option("--weights", help="A file, a version, `latest`, `azq:GAME`, or several: `3,7`.")] = "latest",
    num_simulations: Annotated[int, typer.Option(help="Simulations a position.")] = 400,
) -> None:
    """Read positions as JSON lines {"actions": [..]} or {"position": "<notation>"}, write {"action", "value", ..} for each."""
    from azq.console.move import move as command
    from azq.console.play import game_named

    with answers_apart() as sink:
        command(settings, game_named(settings, game, run, weights), run, weights, num_simulations, sys.stdin, sink)


@with_settings
def match(
    settings: Config,
    players: Annotated[list[str] | None, typer.Argument(metavar="FIRST SECOND", help="The players: " + PLAYER_FORMS)] = None,
    game: Game = None,
    first: Annotated[str, typer.Option("--first", help="The same, by names.")] = "",
    second: Annotated[str, typer.Option("--second", help="The opponent, in every other seat.")] = "",
    games: Annotated[int, typer.Option("--games", help="Rounded up so that every deal is played once from each seat.")] = 100,
    run: RunName = None,
    weights: Latest = "latest",
    num_simulations: Annotated[int | None, typer.Option(help="Simulations a move, of networks; 64 by default.")] = None,
    move_ms: MoveMs = None,
    opening_plies: Annotated[int, typer.Option(help="Random plies before each group of games.")] = 0,
    seed: Annotated[int, typer.Option(help="Of openings, dice, deals and players.")] = 0,
) -> Answer:
    """Play a match between two players on this machine."""
    from azq.console.play import Seating, budget, game_named, match_players, match_text, two_named

    player, opponent = two_named(players or (), first, second)
    bounds = budget(num_simulations, move_ms, 64)
    seating = Seating(game_named(settings, game, run, player, opponent, weights), run, weights, seed=seed, **bounds)
    result = match_players(settings, seating, player, opponent, games, opening_plies)
    return Answer(result, match_text(result))


@with_settings
def gtp(
    settings: Config,
    game: Annotated[str | None, typer.Option("--game", help="gomoku, hex or othello.")] = None,
    player: Annotated[str, typer.Option("--player", help=PLAYER_FORMS)] = "latest",
    run: RunName = None,
    weights: Latest = "latest",
    num_simulations: Annotated[int | None, typer.Option(help="Simulations a move, of networks; 400 by default.")] = None,
    move_ms: MoveMs = None,
    seed: Annotated[int, typer.Option(help="Of the player.")] = 0,
) -> None:
    """Play on boards that speak the Go Text Protocol, such as Sabaki and GoGui: commands on standard input, answers on standard output."""
    from azq.console.gtp import serve
    from azq.console.play import Seating, budget, game_named

    with answers_apart() as sink:
        bounds = budget(num_simulations, move_ms, 400)
        seating = Seating(game_named(settings, game, run, player, weights), run, weights, seed=seed, **bounds)
        serve(settings, seating, player, sys.stdin, sink)


@with_settings
def grade(
    settings: Config,
    game: Game = None,
    positions: Annotated[
        Path | None, typer.Option("--positions", help="JSON lines of graded positions; those shipped with the game by default.")
    ] = None,
    player: Annotated[str, typer.Option("--player", help=PLAYER_FORMS)] = "latest",
    run: RunName = None,
    weights: Latest = "latest",
    num_simulations: Annotated[int, typer.Option(help="Simulations a position, of networks.")] = 400,
    seed: Annotated[int, typer.Option(help="Of the player.")] = 0,
) -> Answer:
    """Grade a player's moves on positions whose moves are known: mean loss and lost result classes, by class."""
    from azq.console.grading import grade_player, grade_text
    from azq.console.play import Seating, game_named

    seating = Seating(game_named(settings, game, run, player, weights), run, weights, num_simulations, seed, slots=256)
    result = grade_player(settings, seating, player, positions)
    return Answer(result, grade_text(result))


@with_settings
def exploitability(
    settings: Config,
    game: Game = None,
    player: Annotated[str, typer.Option("--player", help=PLAYER_FORMS)] = "latest",
    run: RunName = None,
    weights: Latest = "latest",
    num_simulations: Annotated[int, typer.Option(help="Simulations a position, of networks.")] = 32,
    max_nodes: Annotated[int, typer.Option("--max-nodes", min=1, help="Give up beyond so many histories.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of the player.")] = 0,
) -> Answer:
    """Measure exactly what a player of a small game loses to the opponents that know it best; secrets, chance, any number of seats."""
    from azq.console.grading import exploit_player, exploit_text
    from azq.console.play import Seating, game_named

    seating = Seating(game_named(settings, game, run, player, weights), run, weights, num_simulations, seed, slots=256)
    result = exploit_player(settings, seating, player, max_nodes, lambda line: typer.echo(line, err=True))
    return Answer(result, exploit_text(result))


@with_settings
def replay(
    settings: Config,
    run: Annotated[str, typer.Option("--run", help="Name of the run; its folder is on this machine.")],
    game: Annotated[int, typer.Option("--game", min=1, help="Number of the game, as the viewer shows it.")],
    ply: Annotated[int | None, typer.Option("--ply", min=0, help="This ply alone, with all actions.")] = None,
) -> Answer:
    """Search a recorded game again with the run's weights, seed and settings: what is the same, and why something is not."""
    from azq.console.replay import replay_game, replay_text

    result = replay_game(settings, run, game, ply, lambda line: typer.echo(line, err=True))
    return Answer(result, replay_text(result))


@games_app.command("list")
@with_answer
def games_list() -> Answer:
    """List the games."""
    from azq import games

    rows, lines = [], []
    for name in games.names():
        game = games.load(name)
        row = {"players": game.num_players(), "actions": game.num_distinct_actions(), "max_length": game.max_game_length()}
        rows.append({"name": name, **row, "chance": game.is_chance(), "hidden": game.is_hidden()})
        seats = f"{row['players']} player{'s' if row['players'] > 1 else ''}"
        kind = ", hidden hands" if game.is_hidden() else ", chance" if game.is_chance() else ""
        lines.append(f"{name:<16} {seats}{kind}, {row['actions']} actions, at most {row['max_length']} plies")
    return Answer(rows, lines)


@games_app.command("check")
@with_answer
def games_check(
    name: Annotated[str, typer.Argument(help="A game: its name, path/to/file.py:Class, or openspiel:NAME.")],
    games_to_play: Annotated[int, typer.Option("--games", min=1, help="Random games to play.")] = 100,
    params: Annotated[list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter; may be repeated.")] = None,
) -> Answer:
    """Check what every game must fulfil on random games; exit code 2 where a rule is broken, by name."""
    from azq.console.show import check_game, report_text

    report = check_game(name, params or [], games_to_play)
    broken = [{"rule": finding.rule, "detail": finding.evidence, "history": finding.history} for finding in report.findings]
    values = asdict(report) | {"findings": broken, "sound": report.sound}
    return Answer(values, report_text(report), ExitCode.OK if report.sound else ExitCode.CONFIG)


@games_app.command("import")
@with_answer
def games_import(
    files: Annotated[list[Path], typer.Argument(help="Files of games: .jsonl, .sgf.")],
    run: Annotated[str, typer.Option("--run", help="Name of the new run.")],
    game: Annotated[str | None, typer.Option("--game", help="Name of the game; that of the settings by default.")] = None,
    form: Annotated[str, typer.Option("--format", metavar="jsonl|sgf", help="Of the files; by their names by default.")] = "",
    finish: Annotated[str, typer.Option(metavar="PLAYER", help="Plays games on that were given up: " + PLAYER_FORMS)] = "",
    num_simulations: Annotated[int, typer.Option(min=1, help="Simulations a move of --finish.")] = 400,
    preset: Preset = "",
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> Answer:
    """Begin a run with games that others played: `azq up --run RUN` learns from them first, then from its own."""
    from azq.console.recorded import import_games
    from azq.console.up import UpRequest

    request = UpRequest(game, run, overrides or (), config_file=config, preset=preset)
    done = import_games(request, files, partial(typer.echo, err=True), form=form, finish=finish, num_simulations=num_simulations)
    return Answer(done.values(), done.text())


@games_app.command("export")
@with_settings
def games_export(
    settings: Config,
    run: Annotated[str, typer.Argument(help="Name of the run; its folder is on this machine.")],
    form: Annotated[str, typer.Option("--format", metavar="jsonl|sgf", help="What another program reads.")] = "jsonl",
    most: Annotated[int, typer.Option("--games", min=1, help="The newest so many.")] = 100,
    uid: Annotated[int | None, typer.Option("--game", min=1, help="This one, by its number.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A file; standard output by default.")] = None,
) -> None:
    """Write a run's recorded games as JSON lines (any game) or SGF (gomoku, hex, Othello)."""
    from azq.console.samples import games_of
    from azq.files import write_output
    from azq.notation.writing import export

    with answers_apart() as sink:
        game, events = games_of(settings, run, most, uid)
        pieces = export(form, run, game, events)
        if out is None:
            sink.writelines(pieces)
        else:
            write_output(out, "".join(pieces).encode())


@with_settings
def solve(
    settings: Config,
    game: Annotated[str, typer.Argument(help="A game for one or two without secrets: its name, path/to/file.py:Class, openspiel:NAME.")],
    params: Annotated[list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter; may be repeated.")] = None,
    endgames: Annotated[int, typer.Option("--endgames", metavar="PLIES", min=0, help="Only so many plies before random games end.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Where graded positions go; the home folder by default.")] = None,
    positions: Annotated[int, typer.Option("--positions", min=1, help="At most so many of those where the choice matters.")] = 600,
    max_states: Annotated[int, typer.Option("--max-states", min=1, help="Give up beyond so many positions.")] = 1_000_000,
    by_looks: Annotated[
        bool, typer.Option("--by-looks", help="Positions that both players see alike, with the same moves, are one.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the choice of positions.")] = 0,
) -> Answer:
    """Solve a small game exactly, and write graded positions that `azq grade` and the arena use from then on."""
    from azq.config import parse_params
    from azq.console.grading import SolveRequest, solve_text
    from azq.console.grading import solve as command

    values = settings.run.params | parse_params(params or [])
    request = SolveRequest(game, values, settings.home, endgames, out, positions, max_states, by_looks, seed)
    result = command(request, lambda line: typer.echo(line, err=True))
    return Answer(result, solve_text(result))
