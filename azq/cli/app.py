"""The command line: the composition root. Commands import what they need when they run, so that `azq --help` is quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from azq import __version__, logs
from azq.arena.players import FORMS as PLAYER_FORMS
from azq.cli.bench import bench_app
from azq.cli.doctor import doctor
from azq.cli.drill import drill_app
from azq.cli.fleet import fleet_app
from azq.cli.join import join, join_token
from azq.cli.options import AsJson, ConfigFile, Overrides, RunName, emit
from azq.cli.profile import profile
from azq.cli.rest import register as register_rest
from azq.cli.top import top
from azq.errors import AzqError, ExitCode

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Trains AlphaZero agents over a message queue. Begin with `azq up --game connect_four`; then `azq status`, `azq top`, `azq play`.",
)
config_app = typer.Typer(no_args_is_help=True, help="The settings in force, and whether they are sound.")
games_app = typer.Typer(no_args_is_help=True, help="The games azq knows.")
systemd_app = typer.Typer(no_args_is_help=True, help="Run azq under systemd.")


def main() -> None:
    """Runs the command line; every foreseen error is one line and an exit code of the README's table."""
    logs.setup("azq")  # to standard error: what a command answers stays alone on standard output
    try:
        app()
    except AzqError as error:
        print(f"azq: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        sys.exit(int(ExitCode.INTERRUPTED))


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"azq {__version__}")
        raise typer.Exit


@app.command()
def up(
    game: Annotated[str | None, typer.Option("--game", help="Game to learn; connect_four by default.")] = None,
    run: RunName = None,
    preset: Annotated[str, typer.Option("--preset", help="Settings for another machine than two cores: gpu, sprint.")] = "",
    overrides: Overrides = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="minutes=M|games=N|steps=N", help="End the run there; the first of several, comma-separated."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST[:PORT]", help="Let other machines join, over TLS: `azq join`.")
    ] = None,
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="With --listen, without TLS: whoever is on the way reads and changes all, passwords too.")
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Train: start every process on this machine, watch the agent learn; Ctrl-C drains, twice aborts. Resumes the run if it exists."""
    from azq.console.up import up as command

    end = command(
        game=game, run=run, overrides=overrides or [], until=until, config_file=config, as_json=as_json, preset=preset, listen=listen,
        plaintext=plaintext,
    )  # fmt: skip
    raise typer.Exit(end)


@app.command()
def status(run: RunName = None, config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show runs, workers, queues and rates."""
    from azq.config import load
    from azq.console.show import show_status

    show_status(load(config, overrides or []), run, as_json)


@app.command()
def ledger(run: RunName = None, config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Show the proof that no game was lost: opened = finished + open + abandoned, finished = inserted."""
    from azq.config import load
    from azq.console.show import show_ledger

    show_ledger(load(config, overrides or []), run, as_json)


@app.command()
def play(
    run: RunName = None,
    num_simulations: Annotated[int, typer.Option(help="Simulations a move.")] = 400,
    first: Annotated[bool, typer.Option("--first/--second", help="You begin, or the agent does.")] = True,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Play against a run's newest weights in the terminal."""
    from azq.config import load
    from azq.console.play import play as command

    command(load(config, overrides or []), run, num_simulations, first)


@app.command()
def move(
    game: Annotated[str, typer.Option("--game", help="Name of the game.")],
    run: RunName = None,
    weights: Annotated[str, typer.Option("--weights", help="A weights file, or `latest` of the run.")] = "latest",
    num_simulations: Annotated[int, typer.Option(help="Simulations a position.")] = 400,
    chance: Annotated[
        str, typer.Option("--chance", help="Dice: `sampled` by the search, or `expected`, exact over all that follow the candidates.")
    ] = "sampled",
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Read positions as JSON lines {"actions": [..]} or {"position": "<notation>"}, write {"action", "value", ..} for each."""
    from azq.config import load
    from azq.console.move import move as command

    command(load(config, overrides or []), game, run, weights, num_simulations, sys.stdin, sys.stdout, chance)


@app.command()
def match(
    game: Annotated[str, typer.Option("--game", help="Name of the game.")],
    first: Annotated[str, typer.Option("--first", help=PLAYER_FORMS)],
    second: Annotated[str, typer.Option("--second", help="The opponent, in every other seat.")],
    games: Annotated[int, typer.Option("--games", help="Rounded up so that every deal is played once from each seat.")] = 100,
    run: RunName = None,
    weights: Annotated[str, typer.Option("--weights", help="What `latest` means: a weights file, or `latest` of the run.")] = "latest",
    num_simulations: Annotated[int, typer.Option(help="Simulations a move, of networks.")] = 64,
    opening_plies: Annotated[int, typer.Option(help="Random plies before each group of games.")] = 0,
    seed: Annotated[int, typer.Option(help="Of openings, dice, deals and players.")] = 0,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Play a match between two players on this machine."""
    from azq.config import load
    from azq.console.matching import as_text, match_players
    from azq.console.players import Request

    request = Request(game, run, weights, num_simulations, seed)
    result = match_players(load(config, overrides or []), request, first, second, games, opening_plies)
    emit(result, as_json, as_text(result))


@app.command()
def grade(
    game: Annotated[str, typer.Option("--game", help="Name of the game.")],
    positions: Annotated[
        Path | None, typer.Option("--positions", help="JSON lines of graded positions; those shipped with the game by default.")
    ] = None,
    player: Annotated[str, typer.Option("--player", help=PLAYER_FORMS)] = "latest",
    run: RunName = None,
    weights: Annotated[str, typer.Option("--weights", help="What `latest` means: a weights file, or `latest` of the run.")] = "latest",
    num_simulations: Annotated[int, typer.Option(help="Simulations a position, of networks.")] = 400,
    seed: Annotated[int, typer.Option(help="Of the player.")] = 0,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Grade a player's moves on positions whose moves are known: mean loss and lost result classes, by class."""
    from azq.config import load
    from azq.console.grading import as_text, grade_player
    from azq.console.players import Request

    request = Request(game, run, weights, num_simulations, seed, slots=256)
    result = grade_player(load(config, overrides or []), request, player, positions)
    emit(result, as_json, as_text(result))


@app.command()
def worker(
    queues: Annotated[
        str, typer.Option("--queues", help="Celery queues, separated by commas or colons: selfplay.cpu,eval.cpu")
    ] = "selfplay.cpu,eval.cpu",
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Jobs at once, else worker.concurrency.")] = None,
    tags: Annotated[str, typer.Option("--tags", help="Hardware tags besides the detected ones, comma-separated.")] = "",
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Run a Celery worker for self-play and evaluation jobs."""
    from azq.process.start import run_main, use_config

    settings = use_config(config, overrides or [], "worker", tags=_names(tags))

    def body() -> int:
        from workers.worker import main as worker_main

        return worker_main(settings, _names(queues.replace(":", ",")), concurrency or settings.worker.concurrency)

    raise typer.Exit(run_main("worker", body))


@app.command()
def inference(
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda:0, mps; the best there is by default.")] = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Run an inference worker: evaluate leaves for every run."""
    from azq.process.start import run_main, use_config

    chosen = [f'inference.device="{device}"'] if device else []
    settings = use_config(config, [*(overrides or []), *chosen], "inference")

    def body() -> int:
        from workers.inference import main as inference_main

        return inference_main(settings)

    raise typer.Exit(run_main("inference", body))


@app.command()
def learner(
    run: Annotated[str, typer.Option("--run", help="Name of the run.")],
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Run the learner of one run."""
    from azq.process.start import run_main, use_config

    settings = use_config(config, overrides or [], "learner")

    def body() -> int:
        from workers.learner import main as learner_main

        return learner_main(settings, run)

    raise typer.Exit(run_main("learner", body))


@app.command()
def daemon(config: ConfigFile = None, overrides: Overrides = None) -> None:
    """Run the operations daemon and its REST interface."""
    from azq.process.start import run_main, use_config

    settings = use_config(config, overrides or [], "daemon")

    def body() -> int:
        from daemon.main import main as daemon_main

        return daemon_main(settings)

    raise typer.Exit(run_main("daemon", body))


@app.command()
def front(
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where other machines connect.")],
    server: Annotated[Path, typer.Option("--server", help="The broker's unix socket.")],
    certificate: Annotated[Path, typer.Option("--certificate", help="PEM file.")],
    key: Annotated[Path, typer.Option("--key", help="PEM file, readable by its owner alone.")],
) -> None:
    """Run the TLS front of one broker of this host; `azq up --listen` and systemd start it."""
    from azq.process.start import run_main

    def body() -> int:
        from azq.host.front import main as front_main

        return front_main(listen, server, certificate, key)

    raise typer.Exit(run_main("front", body))


@config_app.command("show")
def config_show(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Print every setting in force; secrets are masked."""
    from azq.config import load
    from azq.host.rundir import to_toml
    from azq.masking import masked_settings

    values = masked_settings(load(config, overrides or []).model_dump(mode="json"))
    emit(values, as_json, to_toml(values))


@config_app.command("check")
def config_check(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Check settings, game and broker; exit code 0 when all is sound."""
    from azq.config import load
    from azq.console.show import check_config

    problems = check_config(load(config, overrides or []))
    emit({"ok": not problems, "problems": problems}, as_json, "\n".join(problems) or "configuration is sound")
    if problems:
        raise typer.Exit(int(ExitCode.CONFIG))


@games_app.command("list")
def games_list(as_json: AsJson = False) -> None:
    """List the games."""
    from azq import games

    rows = []
    for name in games.names():
        game = games.load(name)
        rows.append(
            {"name": name, "players": game.num_players(), "actions": game.num_distinct_actions(), "max_length": game.max_game_length()}
        )
    lines = [f"{row['name']:<16} {row['players']} players, {row['actions']} actions, at most {row['max_length']} plies" for row in rows]
    emit(rows, as_json, "\n".join(lines))


@games_app.command("check")
def games_check(
    name: Annotated[str, typer.Argument(help="A game: its name, path/to/file.py:Class, or openspiel:NAME.")],
    games_to_play: Annotated[int, typer.Option("--games", min=1, help="Random games to play.")] = 100,
    params: Annotated[list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check what every game must fulfil on random games; exit code 2 where a rule is broken, by name."""
    from azq.console.check_games import check_game

    if not check_game(name, params or [], games_to_play, as_json):
        raise typer.Exit(int(ExitCode.CONFIG))


@systemd_app.command("install")
def systemd_install(
    root: Annotated[Path, typer.Option("--root", help="Install below this folder.")] = Path("/"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    data_shards: Annotated[
        int | None, typer.Option("--data-shards", min=1, help="Data brokers of this host; broker.data_shards of its azq.toml by default.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST[:PORT]", help="Let other machines reach the brokers, over TLS.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install the units, the user and the folders that azq needs under systemd."""
    from azq.host.systemd.install import install

    steps = install(root=root, dry_run=dry_run, data_shards=data_shards, listen=listen)
    emit(steps, as_json, "\n".join(steps))


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


# In the order in which `azq --help` lists them, after the commands above.
app.command("top")(top)
app.command("doctor")(doctor)
app.command("profile")(profile)
app.command("join")(join)
app.command("join-token")(join_token)
register_rest(app)
app.add_typer(fleet_app, name="fleet")
app.add_typer(config_app, name="config")
app.add_typer(games_app, name="games")
app.add_typer(bench_app, name="bench")
app.add_typer(drill_app, name="drill")
app.add_typer(systemd_app, name="systemd")
