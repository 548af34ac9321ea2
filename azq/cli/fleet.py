"""Commands of a fleet: who joins it, systemd's units, and what ends one of its machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, AsJson, emit, names, with_answer, with_settings
from azq.clock import now_ms

if TYPE_CHECKING:
    from azq.config import Config

fleet_app = typer.Typer(name="fleet", no_args_is_help=True, help="Machines that were let in by `azq join-token`, and the brokers' users.")
systemd_app = typer.Typer(name="systemd", no_args_is_help=True, help="Run azq under systemd.")

JOIN_ROLES = "Of selfplay, eval, inference (by default those that suit this machine), learner, rank, daemon, gateway, broker."
TOKEN_ROLES = "Of selfplay, eval, inference, learner, rank, daemon, gateway."
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]


def join(
    control: Annotated[str, typer.Argument(metavar="URL", help="The fleet's control plane: rediss://HOST:PORT/0.")],
    data: Annotated[str, typer.Option("--data", metavar="URL", help="The data plane, where the daemon does not tell it.")] = "",
    token: Annotated[str, typer.Option("--token", help="The token. Others here see it: rather --token-file or AZQ_JOIN_TOKEN.")] = "",
    token_file: Annotated[Path | None, typer.Option("--token-file", help="A file that holds the token; - reads standard input.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", help="PEM file of the brokers' authority, where the token names no certificate.")
    ] = None,
    roles: Annotated[str, typer.Option("--roles", help=JOIN_ROLES)] = "",
    tags: Annotated[str, typer.Option("--tags", help="Hardware tags besides the detected ones, comma-separated.")] = "",
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Self-play jobs at once.")] = None,
    run: Annotated[
        list[str] | None, typer.Option("--run", help="Of learner and rank: a run; may be repeated. Those that run, by default.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Place among the ranks; 0 is a learner whose ranks are on other machines.")
    ] = None,
    learner_host: Annotated[
        str, typer.Option("--learner-host", metavar="HOST", help="Where rank 0 trains, for --rank; where the brokers are, by default.")
    ] = "",
    kind: Annotated[str, typer.Option("--kind", help="What it costs, by its kind in azq's catalogue of prices.")] = "",
    per_hour: Annotated[float | None, typer.Option("--per-hour", min=0.0, metavar="MONEY", help="What an hour of it costs.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting of this machine alone; may be repeated.")
    ] = None,
    folder: Annotated[Path, typer.Option("--folder", help="For settings and logs where there is no systemd.")] = Path(),
    foreground: Annotated[bool, typer.Option("--foreground", help="Work in this terminal, also where there is a systemd.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace settings that are there and differ.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look and tell, change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make this machine work for a fleet: check the way there, write the settings, start the services."""
    from azq.host.join import join as joining
    from azq.host.join.token import read_token

    given = read_token(token, token_file)
    wish = joining.Wish(control, data, given, tls_ca, roles, tuple(names(tags)), concurrency, folder.absolute(), foreground, force, dry_run)
    wish = replace(
        wish, runs=tuple(run or ()), rank=rank, learner_host=learner_host, kind=kind, per_hour=per_hour, settings=tuple(overrides or ())
    )
    say = (lambda line: typer.echo(line, err=True)) if as_json else typer.echo
    raise typer.Exit(joining.join(wish, say, lambda joined: emit(joined.values(), True, "") if as_json else None))


@with_settings
def join_token(
    settings: Config,
    name: Annotated[str, typer.Option("--name", help="What the machine is called; made up by default.")] = "",
    roles: Annotated[str, typer.Option("--roles", help=TOKEN_ROLES)] = "selfplay,eval,inference",
    days: Annotated[float, typer.Option("--days", help="How long it may work; it is let in again by a new token.")] = 30.0,
) -> Answer:
    """Let one machine in: print the command by which it joins this fleet, and its token, a secret."""
    from azq.host.join.token import Invitee, invitation

    values = invitation(settings, Invitee(name, tuple(names(roles)), days))
    lines = [values["command"], f"token: {values['token'] or '(none: the brokers ask for no password)'}"]
    if "name" in values:
        lines.append(
            f"for machine {values['name']} ({', '.join(values['roles'])}), {days:g} days; `azq fleet revoke {values['name']}` ends it"
        )
    if "warning" in values:
        typer.echo(f"warning: {values['warning']}", err=True)
    return Answer(values, lines)


@fleet_app.command("list")
@with_settings
def fleet_list(settings: Config) -> Answer:
    """List machines that were let in, until when, and where they connect from."""
    from azq.host.brokers import resolve
    from azq.host.users import as_row, as_text, machines_of

    with machines_of(resolve(settings)) as machines:
        result = machines.seen()
    return Answer([as_row(seen) for seen in result], as_text(result, now_ms()))


@fleet_app.command("revoke")
@with_settings
def fleet_revoke(settings: Config, name: Annotated[str, typer.Argument(help="A machine of `azq fleet list`.")]) -> Answer:
    """Send a machine away, at once: its user is removed from every broker and its connections end."""
    from azq.host.brokers import resolve
    from azq.host.users import machines_of

    with machines_of(resolve(settings)) as machines:
        machines.revoke(name)
    return Answer({"revoked": name}, f"{name} is out; games that it held are played on by others")


@fleet_app.command("expire")
@with_settings
def fleet_expire(settings: Config) -> Answer:
    """Send away machines whose time is over; `azq up` and the unit azq-fleet.timer do so by themselves."""
    from azq.host.brokers import resolve
    from azq.host.users import knows_roles, machines_of

    owned = resolve(settings)
    gone: list[str] = []
    if knows_roles(owned):
        with machines_of(owned) as machines:
            machines.renew()
            gone = machines.expire(now_ms())
    return Answer({"expired": gone}, [f"{name} is out: its time is over" for name in gone])


@fleet_app.command("acl")
@with_settings
def fleet_acl(
    settings: Config, apply: Annotated[bool, typer.Option("--apply", help="Make these users on every broker of the settings.")] = False
) -> None:
    """Print the roles' users as lines of an ACL file, or make them; for servers that azq did not start."""
    from azq.host.brokers import resolve
    from azq.host.users import give_roles

    for text in give_roles(resolve(settings), apply=apply):
        typer.echo(text)


@fleet_app.command("seed", hidden=True)
def fleet_seed(
    users: Annotated[Path, typer.Argument(help="The ACL file.")],
    conf: Annotated[Path, typer.Option("--conf", help="The server's settings, which hold its password.")],
) -> None:
    """Write a server's ACL file before it starts; machines that it names are kept."""
    from azq.files import publish_file
    from azq.host.systemd.brokers import password
    from azq.wire import acl

    before = users.read_text("utf-8") if users.exists() else ""
    publish_file(users, acl.file_text(password(conf), before).encode(), 0o600)


@systemd_app.command("install")
@with_answer
def systemd_install(
    root: Annotated[Path, typer.Option("--root", help="Install below this folder.")] = Path("/"),
    dry_run: DryRun = False,
    data_shards: Annotated[
        int | None, typer.Option("--data-shards", min=1, help="Data brokers of this host; broker.data_shards of its azq.toml by default.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST[:PORT]", help="Let other machines reach the brokers, over TLS.")
    ] = None,
) -> Answer:
    """Install the units, the user and the folders that azq needs under systemd."""
    from azq.host.systemd.install import install

    steps = install(root=root, dry_run=dry_run, data_shards=data_shards, listen=listen)
    return Answer(steps, steps)


@systemd_app.command("uninstall")
@with_answer
def systemd_uninstall(
    root: Annotated[Path, typer.Option("--root", help="Of an installation below this folder.")] = Path("/"), dry_run: DryRun = False
) -> Answer:
    """Stop the services and remove the units; settings, passwords and runs are kept."""
    from azq.host.systemd.install import uninstall

    steps = uninstall(root=root, dry_run=dry_run)
    return Answer(steps, steps)


machine_app = typer.Typer(name="machine", no_args_is_help=True, help="What ends this machine: a budget, its provider, its dead-man timer.")

Folder = Annotated[Path, typer.Option("--folder", help="Where the three leave each other notes; its next start finds it empty.")]
NOTES = Path("/run/azq-machine")


@machine_app.command("watch")
@with_settings
def watch(settings: Config, folder: Folder = NOTES) -> None:
    """Say what this machine costs, and ask for its end once its provider takes it back or its fleet is over (azq-machine.service)."""
    from azq.host.machine_end import watch as command
    from azq.process.start import run_main

    raise typer.Exit(run_main("host", lambda: command(settings, folder)))


@machine_app.command("deadman")
@with_settings
def deadman(settings: Config, folder: Folder = NOTES) -> Answer:
    """Ask for this machine's end once its hours are over or no daemon was heard of for too long (azq-deadman.timer); needs no network."""
    from azq.host.machine_end import Notes, boot_s

    notes = Notes(folder)
    end = notes.due_end(settings.machine, boot_s())
    if end is not None:
        notes.ask(end)
    return Answer({"end": end.reason if end else ""}, f"this machine ends: {end.reason}" if end else "this machine goes on")


@machine_app.command("end")
@with_settings
def end(settings: Config, folder: Folder = NOTES) -> Answer:
    """Stop this machine's services in the order that loses nothing, then run machine.poweroff_command (azq-machine-end.service)."""
    from azq.host.machine_end import end as command

    ending = command(settings, folder)
    return Answer({"ended": ending.reason, "off": ending.off}, f"ended: {ending.reason}")
