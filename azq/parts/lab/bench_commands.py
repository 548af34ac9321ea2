"""The commands of `azq bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from azq.cli.options import Answer, Command, MeasuredFile, Overrides, offering, rehearsal, with_answer

bench_app = typer.Typer(no_args_is_help=True, help="Measure this machine; figures are per CPU-second of all processes.")

Seconds = Annotated[float, typer.Option("--seconds", min=0.5, help="Time to measure.")]
Evaluator = Annotated[Literal["stream", "local"], typer.Option("--evaluator", help="Who evaluates leaves.")]


def _measured(command: Command) -> None:
    """A benchmark of that name and those options."""
    name = command.__name__

    def run(config: Path | None, overrides: list[str] | None, **options: Any) -> Answer:
        from azq.config import load
        from azq.parts.lab.bench import as_text, measure

        result = measure(name, load(config, overrides or []), **options)
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
) -> None:
    """Self-play over all processes, with a 3x32 network and 200 simulations or as in the game's preset."""


@_measured
def inference(
    seconds: Seconds = 5.0,
    game: str = "connect_four",
    batch: Annotated[int, typer.Option("--batch", min=0, help="Leaves of a request; 0: those of a self-play group.")] = 0,
) -> None:
    """The network's forward pass, bare and through the stream, and what the stream adds to a round trip."""


@_measured
def learner(seconds: Seconds = 10.0, game: str = "connect_four") -> None:
    """The learner's step against a bare training loop."""


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
