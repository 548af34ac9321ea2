"""Commands about contributors, on the control plane: standing, names, invitations, blocks, games that leave a run's window."""

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
    from azq.parts.volunteers.contributor_store import Contributor, ContributorStore

volunteers_app = typer.Typer(no_args_is_help=True, help="ContributorStore whose browsers make games for runs.")

NEWEST = 100_000  # games of a run that are compared
Name = Annotated[str, typer.Argument(help="Id or name of a contributor, as `azq volunteers list` shows them.")]
Reason = Annotated[str, typer.Option("--reason", help="What a contributor reads.")]


@contextlib.contextmanager
def _contributors(settings: Config) -> Iterator[ContributorStore]:
    from azq.host.brokers import open_control
    from azq.parts.volunteers.contributor_store import ContributorStore

    config, client = open_control(settings)
    with contextlib.closing(client):
        yield ContributorStore(client, config.gateway)


@contextlib.contextmanager
def _contributor(settings: Config, name: str) -> Iterator[tuple[ContributorStore, Contributor]]:
    with _contributors(settings) as contributors:
        yield contributors, contributors.find(name)


def _outcomes(settings: Config, run: str, contributor: str) -> dict[str, Any]:
    """Seat 0's mean outcome in a contributor's games above the one in the run's others, with an interval; empty where none compare."""
    from azq.console.samples import read
    from azq.samples.diff import outcome_gap
    from azq.samples.played import OPENING_PLIES
    from azq.wire.messages import BROWSER_PREFIX

    _, played = read(settings, run, NEWEST, OPENING_PLIES)
    own = played.of_worker(f"{BROWSER_PREFIX}{contributor}")
    gap = outcome_gap(played.rows[own], played.rows[~own])
    return asdict(gap) if gap else {}


def _line(row: dict[str, Any]) -> str:
    figures = f"{row['games']:>9} games  {row['reliability']:6.1%} taken"
    return f"{row['contributor']:<14}{row['name']:<20}{row['device']:<20}{row['trust']:<12}{figures}  {row['reason']}".rstrip()


@volunteers_app.command("list")
@with_settings
def volunteers_list(settings: Config) -> Answer:
    """List contributors with their standing and their games, the newest last."""
    with _contributors(settings) as contributors:
        sums = contributors.sums("ever")
        rows = [asdict(contributors.figures_of(row, sums)) for row in contributors.all()]
    return Answer(rows, [_line(row) for row in rows] or "no contributors yet")


@volunteers_app.command("show")
@with_settings
def volunteers_show(
    settings: Config,
    name: Name,
    run: Annotated[str, typer.Option("--run", help="Also compare the outcomes of its games with all others of this run, read here.")] = "",
) -> Answer:
    """Show a contributor: standing, plies searched again and different, what it and its address did with games that were handed out."""
    with _contributors(settings) as contributors:
        contributor = contributors.find(name)
        row = asdict(contributors.figures_of(contributor, contributors.sums("ever"), address=True))
    if run:
        row["outcomes"] = _outcomes(settings, run, contributor.contributor)
    return Answer(row, [f"{key:<13} {value}" for key, value in row.items()])


@volunteers_app.command("block")
@with_settings
def volunteers_block(settings: Config, name: Name, reason: Reason = "") -> Answer:
    """Refuse further games of a contributor; those that count stay, see purge."""
    with _contributor(settings, name) as (contributors, contributor):
        standing = contributors.block(contributor.contributor, reason)
    return Answer({"blocked": contributor.contributor}, f"{contributor.name} is {standing.trust}: {standing.reason}")


@volunteers_app.command("unblock")
@with_settings
def volunteers_unblock(settings: Config, name: Name) -> Answer:
    """Let a contributor begin again, in probation."""
    with _contributor(settings, name) as (contributors, contributor):
        standing = contributors.unblock(contributor.contributor)
    return Answer({"unblocked": contributor.contributor}, f"{contributor.name} is in {standing.trust}")


@volunteers_app.command("rename")
@with_settings
def volunteers_rename(
    settings: Config, name: Name, to: Annotated[str, typer.Option("--to", help="The new name; without it the contributor is a guest.")] = ""
) -> Answer:
    """Give a contributor another name, or none; it stays fixed."""
    with _contributor(settings, name) as (contributors, contributor):
        new_name = contributors.rename(contributor.contributor, to)
    return Answer({"renamed": contributor.contributor, "name": new_name}, f"{contributor.name} is called {new_name}")


@volunteers_app.command("purge")
@with_settings
def volunteers_purge(
    settings: Config,
    name: Name,
    run: Annotated[str, typer.Option("--run", help="The run whose window they leave.")],
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for the learner's answer.")] = 10.0,
) -> Answer:
    """Take all games that a contributor has made so far out of a run's window; the log and the ledger keep them as proof."""
    from azq.parts.volunteers.contribution_counts import purge

    with _contributor(settings, name) as (contributors, contributor):
        purged = purge(contributors.client, run, contributor.contributor, now_ms(), wait_s)
    if purged is None:
        return Answer({"purged": contributor.contributor}, f"{contributor.name}'s games leave the window once a learner of run {run} works")
    share = purged.samples / max(1, purged.window)
    figures = {"games": purged.games, "samples": purged.samples, "window": purged.window, "share": share}
    text = f"{purged.games} games of {contributor.name} with {purged.samples} samples left the window: {share:.2%} of {purged.window}"
    return Answer({"purged": contributor.contributor, **figures}, text)


@volunteers_app.command("invite")
@with_settings
def volunteers_invite(
    settings: Config,
    name: Annotated[str, typer.Option("--name", help="The name that it gives.")] = "",
    uses: Annotated[int, typer.Option("--uses", min=1, help="Devices that may use it.")] = 1,
    days: Annotated[float, typer.Option("--days", min=0.001, help="Days that it lasts.")] = 30.0,
) -> Answer:
    """Print a link that admits new devices; it is a secret."""
    with _contributors(settings) as contributors:
        code = contributors.invite(name, uses, days)
    gateway = settings.gateway
    base = gateway.url or f"{'https' if gateway.tls_certificate else 'http'}://{gateway.host}:{gateway.port}/"
    link = f"{base.rstrip('/')}/web/contribute/#invite={code}"
    return Answer({"link": link, "uses": uses, "days": days}, [link, f"for {uses} devices, {days:g} days"])


@volunteers_app.command("off")
@with_settings
def volunteers_off(settings: Config, reason: Reason = "") -> Answer:
    """Close all gateways to contributors, until `azq volunteers on`."""
    with _contributors(settings) as contributors:
        contributors.turn(on=False, reason=reason)
    return Answer({"on": False}, "contributing is closed")


@volunteers_app.command("on")
@with_settings
def volunteers_on(settings: Config) -> Answer:
    """Open all gateways to contributors again."""
    with _contributors(settings) as contributors:
        contributors.turn(on=True)
    return Answer({"on": True}, "contributing is open")


@process
def gateway(settings: Config) -> int:
    """Run the gateway: browsers' tabs play for the runs that want volunteers."""
    from azq.parts.volunteers.main import main

    return main(settings)


COMMANDS = {"volunteers": volunteers_app, "gateway": gateway}
