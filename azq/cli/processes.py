"""Commands that are processes: `azq up`, which keeps the others, and each of them alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from azq.cli.options import AsJson, Command, ConfigFile, Overrides, Preset, RunName, answers_apart, names, offering, with_settings

if TYPE_CHECKING:
    from azq.config import Config
    from azq.wire.keys import Role
    from daemon.main import Serving


def up(
    game: Annotated[str | None, typer.Option("--game", help="Game to learn; connect_four by default.")] = None,
    run: RunName = None,
    preset: Preset = "",
    overrides: Overrides = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="minutes=M|games=N|steps=N|money=X", help="End the run there; the first of several, comma-separated."
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST[:PORT]", help="Let other machines join, over TLS: `azq join`.")
    ] = None,
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="With --listen, without TLS: the network in between reads and changes all, passwords too.")
    ] = False,
    volunteers: Annotated[bool, typer.Option("--volunteers", help="Let browsers' tabs play: people open the link that is shown.")] = False,
    port: Annotated[int | None, typer.Option("--port", help="With --volunteers, of that link; 8090 by default.")] = None,
    origin: Annotated[
        str | None, typer.Option("--from", metavar="RUN[:VERSION]|FILE|azq:GAME", help="Begin with these weights, its network theirs.")
    ] = None,
    freeze: Annotated[str, typer.Option("--freeze", metavar="trunk", help="With --from: `trunk` lets only the heads learn.")] = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Train: start every process on this machine, watch the agent learn; Ctrl-C drains, twice aborts. Resumes the run if it exists."""
    from azq.console.up import UpRequest
    from azq.console.up import up as command

    with answers_apart() as output:
        request = UpRequest(game, run, overrides or (), until, config, preset, as_json, volunteers, port, origin, freeze, output)
        raise typer.Exit(command(request, listen=listen, plaintext=plaintext))


def process(command: Command) -> Command:
    """A process of the role that `command` is named after; it imports what it needs once the log is set up, and returns its exit code."""
    role: Role = command.__name__  # type: ignore[assignment]

    def run(config: Path | None, overrides: list[str] | None, device: str | None = None, tags: str = "", **values: Any) -> None:
        from azq.host.rundir import naming_folder
        from azq.process import spans
        from azq.process.start import run_main, use_config

        chosen = [f'inference.device="{device}"'] if device else []
        settings = use_config(config, [*(overrides or []), *chosen], role, tags=names(tags))

        def main() -> int:
            spans.start(settings.tracing, role)
            with naming_folder(settings.home):
                return int(command(settings, **values))

        raise typer.Exit(run_main(role, main))

    return offering(run, command, given=1, config=(ConfigFile, None), overrides=(Overrides, None))


@process
def worker(
    settings: Config,
    queues: Annotated[
        str, typer.Option("--queues", help="Celery queues, separated by commas or colons: selfplay.cpu,eval.cpu")
    ] = "selfplay.cpu,eval.cpu",
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Jobs at once, else worker.concurrency.")] = None,
    tags: Annotated[str, typer.Option("--tags", help="Hardware tags besides the detected ones, comma-separated.")] = "",
) -> int:
    """Run a Celery worker for self-play and evaluation jobs."""
    from workers.worker import main

    return main(settings, names(queues.replace(":", ",")), concurrency or settings.worker.concurrency or 1)


@process
def inference(
    settings: Config, device: Annotated[str | None, typer.Option("--device", help="cpu, cuda:0, mps; the best there is by default.")] = None
) -> int:
    """Run an inference worker: evaluate leaves for every run."""
    from workers.inference import main

    return main(settings)


@process
def learner(
    settings: Config,
    run: Annotated[str, typer.Option("--run", help="Name of the run.")],
    folder: Annotated[Path | None, typer.Option("--folder", help="The run's folder on this host, where the run names another.")] = None,
) -> int:
    """Run the learner of one run."""
    from workers.learner import main

    return main(settings, run, folder)


@process
def daemon(settings: Config) -> int:
    """Run the operations daemon and its REST interface."""
    from daemon.main import main

    def interface() -> Serving:
        from daemon.api.rest import serving

        return serving

    return main(settings, interface)


@with_settings
def broker(
    settings: Config,
    plane: Annotated[str, typer.Option("--plane", help="control, or one of the data planes: data, data1, ...")] = "control",
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="In the clear: for private networks.")] = "127.0.0.1:6379",
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="Holds its owner's password; else the folder's own, made at first.")
    ] = None,
) -> None:
    """Run one broker by itself; `azq up` and systemd start theirs without this."""
    from azq.host.brokers import main
    from azq.process.start import run_main

    raise typer.Exit(run_main("broker", lambda: main(settings, plane, listen, password_file)))


def front(
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where other machines connect.")],
    server: Annotated[Path, typer.Option("--server", help="The broker's unix socket.")],
    certificate: Annotated[Path, typer.Option("--certificate", help="PEM file.")],
    key: Annotated[Path, typer.Option("--key", help="PEM file, readable by its owner alone.")],
) -> None:
    """Run the TLS front of one broker of this host; `azq up --listen` and systemd start it."""
    from azq.host.fronts import main
    from azq.process.start import run_main

    raise typer.Exit(run_main("front", lambda: main(listen, server, certificate, key)))
