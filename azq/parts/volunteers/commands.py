"""Commands about contributors: who they are, who may contribute, whose games leave a run's window. They work on the control plane."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from azq.cli.options import Answer, with_settings
from azq.cli.processes import process
from azq.clock import now_ms

if TYPE_CHECKING:
    from azq.config import Config
    from azq.parts.volunteers.contributors import Contributor, Contributors

volunteers_app = typer.Typer(no_args_is_help=True, help="Contributors whose browsers make games for runs.")

NEWEST = 100_000  # games of a run that are compared
Name = Annotated[str, typer.Argument(help="Id or name of a contributor, as `azq volunteers list` shows them.")]
Reason = Annotated[str, typer.Option("--reason", help="What a contributor reads.")]


@contextlib.contextmanager
def _contributors(settings: Config) -> Iterator[Contributors]:
    from azq.host.brokers import open_control
    from azq.parts.volunteers.contributors import Contributors

    config, client = open_control(settings)
    with contextlib.closing(client):
        yield Contributors(client, config.gateway)


@contextlib.contextmanager
def _one(settings: Config, name: str) -> Iterator[tuple[Contributors, Contributor]]:
    with _contributors(settings) as contributors:
        yield contributors, contributors.find(name)


def _outcomes(settings: Config, run: str, contributor: str) -> dict[str, Any]:
    """What seat 0 gets in a contributor's games above what it gets in the run's others, with an interval; nothing where none compare."""
    from azq.console.samples import read
    from azq.samples.diff import outcome_gap
    from azq.samples.played import OPENING_PLIES
    from azq.wire.messages import BROWSER_PREFIX

    _, played = read(settings, run, NEWEST, OPENING_PLIES)
    his = played.of_worker(f"{BROWSER_PREFIX}{contributor}")
    found = outcome_gap(played.rows[his], played.rows[~his])
    return asdict(found) if found else {}


def _line(row: dict[str, Any]) -> str:
    figures = f"{row['games']:>9} games  {row['reliability']:6.1%} taken"
    return f"{row['contributor']:<14}{row['name']:<20}{row['device']:<20}{row['trust']:<12}{figures}  {row['reason']}".rstrip()


@volunteers_app.command("list")
@with_settings
def volunteers_list(settings: Config) -> Answer:
    """List contributors with their standing and their games, the newest last."""
    with _contributors(settings) as contributors:
        sums = contributors.sums("ever")
        rows = [asdict(contributors.figures_of(each, sums)) for each in contributors.all()]
    return Answer(rows, [_line(row) for row in rows] or "nobody came yet")


@volunteers_app.command("show")
@with_settings
def volunteers_show(
    settings: Config,
    name: Name,
    run: Annotated[str, typer.Option("--run", help="Also compare the outcomes of his games with all others of this run, read here.")] = "",
) -> Answer:
    """Show one contributor: standing, what was searched again and differed, what he and his address did with games that were handed out."""
    with _contributors(settings) as contributors:
        found = contributors.find(name)
        row = asdict(contributors.figures_of(found, contributors.sums("ever"), address=True))
    if run:
        row["outcomes"] = _outcomes(settings, run, found.contributor)
    return Answer(row, [f"{key:<13} {value}" for key, value in row.items()])


@volunteers_app.command("block")
@with_settings
def volunteers_block(settings: Config, name: Name, reason: Reason = "") -> Answer:
    """Take no more games of a contributor; those that count stay, see purge."""
    with _one(settings, name) as (contributors, found):
        standing = contributors.block(found.contributor, reason)
    return Answer({"blocked": found.contributor}, f"{found.name} is {standing.trust}: {standing.reason}")


@volunteers_app.command("unblock")
@with_settings
def volunteers_unblock(settings: Config, name: Name) -> Answer:
    """Let a contributor begin anew, in probation."""
    with _one(settings, name) as (contributors, found):
        standing = contributors.unblock(found.contributor)
    return Answer({"unblocked": found.contributor}, f"{found.name} is in {standing.trust}")


@volunteers_app.command("rename")
@with_settings
def volunteers_rename(
    settings: Config, name: Name, to: Annotated[str, typer.Option("--to", help="The new name; without it he has none.")] = ""
) -> Answer:
    """Give a contributor another name, or none; from then on he cannot change it himself."""
    with _one(settings, name) as (contributors, found):
        called = contributors.rename(found.contributor, to)
    return Answer({"renamed": found.contributor, "name": called}, f"{found.name} is called {called}")


@volunteers_app.command("purge")
@with_settings
def volunteers_purge(
    settings: Config,
    name: Name,
    run: Annotated[str, typer.Option("--run", help="The run whose window they leave.")],
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for the learner's word.")] = 10.0,
) -> Answer:
    """Take all games that a contributor has made so far out of a run's window; the log and the ledger keep them as proof."""
    from azq.parts.volunteers.purging import purge

    with _one(settings, name) as (contributors, found):
        said = purge(contributors.client, run, found.contributor, now_ms(), wait_s)
    if said is None:
        return Answer({"purged": found.contributor}, f"{found.name}'s games leave the window as soon as a learner of run {run} works")
    share = said.samples / max(1, said.window)
    figures = {"games": said.games, "samples": said.samples, "window": said.window, "share": share}
    text = f"{said.games} games of {found.name} with {said.samples} samples left the window: {share:.2%} of {said.window}"
    return Answer({"purged": found.contributor, **figures}, text)


@volunteers_app.command("invite")
@with_settings
def volunteers_invite(
    settings: Config,
    name: Annotated[str, typer.Option("--name", help="What who comes by it is called.")] = "",
    uses: Annotated[int, typer.Option("--uses", min=1, help="Devices that may come by it.")] = 1,
    days: Annotated[float, typer.Option("--days", min=0.001, help="How long.")] = 30.0,
) -> Answer:
    """Print a link by which new devices may come; it is a secret."""
    with _contributors(settings) as contributors:
        code = contributors.invite(name, uses, days)
    gateway = settings.gateway
    base = gateway.url or f"{'https' if gateway.tls_certificate else 'http'}://{gateway.host}:{gateway.port}/"
    link = f"{base.rstrip('/')}/web/contribute/#invite={code}"
    return Answer({"link": link, "uses": uses, "days": days}, [link, f"for {uses} devices, {days:g} days"])


@volunteers_app.command("off")
@with_settings
def volunteers_off(settings: Config, reason: Reason = "") -> Answer:
    """Let nobody contribute any more, at every gateway, until `azq volunteers on`."""
    with _contributors(settings) as contributors:
        contributors.turn(on=False, reason=reason)
    return Answer({"on": False}, "nobody may contribute now")


@volunteers_app.command("on")
@with_settings
def volunteers_on(settings: Config) -> Answer:
    """Let contributors in again."""
    with _contributors(settings) as contributors:
        contributors.turn(on=True)
    return Answer({"on": True}, "contributors are let in")


@process
def gateway(settings: Config) -> int:
    """Run the gateway: browsers' tabs play for the runs that want volunteers."""
    from azq.parts.volunteers.main import main

    return main(settings)


COMMANDS = {"volunteers": volunteers_app, "gateway": gateway}
