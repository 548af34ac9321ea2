"""Commands that are processes: `azq up`, which keeps the others, and each of them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import AsJson, ConfigFile, Overrides, RunName, names

if TYPE_CHECKING:
    from azq.config import Config
    from azq.wire.keys import Role


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
    from azq.console.up import UpRequest
    from azq.console.up import up as command

    asked = UpRequest(game, run, overrides or (), until, config, preset, as_json)
    raise typer.Exit(command(asked, listen=listen, plaintext=plaintext))


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

    def main(settings: Config) -> int:
        from workers.worker import main as work

        return work(settings, names(queues.replace(":", ",")), concurrency or settings.worker.concurrency)

    _serve("worker", main, config, overrides, tags=names(tags))


def inference(
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda:0, mps; the best there is by default.")] = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Run an inference worker: evaluate leaves for every run."""

    def main(settings: Config) -> int:
        from workers.inference import main as serve

        return serve(settings)

    chosen = [f'inference.device="{device}"'] if device else []
    _serve("inference", main, config, [*(overrides or []), *chosen])


def learner(
    run: Annotated[str, typer.Option("--run", help="Name of the run.")],
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Run the learner of one run."""

    def main(settings: Config) -> int:
        from workers.learner import main as learn

        return learn(settings, run)

    _serve("learner", main, config, overrides)


def daemon(config: ConfigFile = None, overrides: Overrides = None) -> None:
    """Run the operations daemon and its REST interface."""

    def main(settings: Config) -> int:
        from daemon.main import main as operate

        return operate(settings)

    _serve("daemon", main, config, overrides)


def _serve(role: Role, main: Callable[[Config], int], config: Path | None, overrides: list[str] | None, tags: Sequence[str] = ()) -> None:
    """Ends with the exit code of a process's main, which imports what it needs once the role's log is set up."""
    from azq.process.start import run_main, use_config

    settings = use_config(config, overrides or [], role, tags=tags)
    raise typer.Exit(run_main(role, lambda: main(settings)))


def front(
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where other machines connect.")],
    server: Annotated[Path, typer.Option("--server", help="The broker's unix socket.")],
    certificate: Annotated[Path, typer.Option("--certificate", help="PEM file.")],
    key: Annotated[Path, typer.Option("--key", help="PEM file, readable by its owner alone.")],
) -> None:
    """Run the TLS front of one broker of this host; `azq up --listen` and systemd start it."""
    from azq.process.start import run_main

    def body() -> int:
        from azq.host.fronts import main

        return main(listen, server, certificate, key)

    raise typer.Exit(run_main("front", body))
