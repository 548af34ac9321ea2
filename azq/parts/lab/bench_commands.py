"""The commands of `azq bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from azq.cli.options import Answer, Command, MeasuredFile, Overrides, offering, rehearsal, with_answer

bench_app = typer.Typer(no_args_is_help=True, help="Measure this machine; figures are per CPU-second of all processes.")

Seconds = Annotated[float, typer.Option("--seconds", min=0.5, help="Time to measure.")]
Evaluator = Annotated[Literal["stream", "local"], typer.Option("--evaluator", help="Who evaluates leaves.")]
NetworkClock = Annotated[str, typer.Option(metavar="TIME", help="A clock for a network: each batch takes this long and no CPU.")]


def _measured(command: Command) -> None:
    """A benchmark of that name and those options; what `command` returns of them is as `measure` takes it."""
    name = command.__name__

    def run(config: Path | None, overrides: list[str] | None, **options: Any) -> Answer:
        from azq.config import load
        from azq.parts.lab.bench import as_text, measure

        result = measure(name, load(config, overrides or []), **options | (command(**options) or {}))
        return Answer(result, as_text(name, result))

    bench_app.command(name)(offering(rehearsal(run), command, config=(MeasuredFile, None), overrides=(Overrides, None)))


@_measured
def search(seconds: Seconds = 5.0, game: str = "connect_four") -> None:
    """The search core alone, with the built-in uniform evaluator."""


@_measured
def selfplay(
    evaluator: Evaluator = "stream",
    seconds: Seconds = 20.0,
    game: str = "connect_four",
    preset: Annotated[bool, typer.Option("--preset", help="Network and search as the game's preset has them.")] = False,
    network_clock: NetworkClock = "",
) -> None:
    """Self-play over all processes, with a 3x32 network and 200 simulations or as in the game's preset.

    With --network-clock 2.2ms: the CPU that a turn of 8,192 leaves costs beside the network, and what speed follows for a GPU.
    """


@_measured
def inference(
    seconds: Seconds = 5.0,
    game: str = "connect_four",
    batch: Annotated[int, typer.Option("--batch", min=0, help="Leaves of a request; 0: those of a self-play group.")] = 0,
    network_clock: NetworkClock = "",
) -> None:
    """The network's forward pass, bare and through the stream, and what the stream adds to a round trip.

    With --network-clock 2.2ms: the CPU that requests of 8,192 leaves cost client, brokers and inference worker beside the network.
    """


@_measured
def learner(
    seconds: Seconds = 10.0,
    game: str = "connect_four",
) -> None:
    """The learner's step against a bare training loop."""


@_measured
def fleet(
    seconds: Seconds = 10.0,
    game: str = "connect_four",
    network_clock: Annotated[str, typer.Option(metavar="TIME", help="Of the network: what 1,024 leaves take.")] = "20ms",
    rtt: Annotated[
        list[float] | None, typer.Option("--rtt", min=0.0, help="Round trip times in ms; repeatable. 0, 0.2, 1, 10 without.")
    ] = None,
    loss: Annotated[float, typer.Option("--loss", min=0.0, help="Share of packets that are lost.")] = 0.0,
) -> dict[str, Any]:
    """Self-play whose brokers are a network away from it and from inference: evaluations and latency by round trip time."""
    return {"rtt": tuple(rtt or (0.0, 0.2, 1.0, 10.0))}


@_measured
def peers(seconds: Seconds = 20.0) -> None:
    """pgx + mctx and OpenSpiel on this machine (extra `bench`), beside azq in the same run."""


@bench_app.command("all")
@with_answer
@rehearsal
def bench_all(
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="Time for everything; what does not fit is named.")] = 9.0,
    size: Annotated[str, typer.Option("--size", help="tiny, small or full; full on a GPU, else small, by default.")] = "",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1")] = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for bench.json and bench.md.")] = None,
    write_docs: Annotated[Path | None, typer.Option("--write-docs", help="Markdown file whose `bench all` section is replaced.")] = None,
    overrides: Overrides = None,
) -> Answer:
    """Everything in one run: bare network, stream, self-play and learner for five games, and the peers that are installed."""
    from azq.parts.lab.bench.plan import markdown, replace_section
    from azq.parts.lab.bench.suite import run_all, write

    def save(so_far: dict[str, Any]) -> None:
        if out is not None:
            write(so_far, out)

    result = run_all(size, minutes, device, overrides or (), keep=save)
    if out is not None:
        write(result, out)
    if write_docs is not None:
        replace_section(write_docs, markdown(result))
    return Answer(result, markdown(result))
