"""Commands of a fleet's owner: who was let in, who is sent away, what each user may do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from azq.cli.options import AsJson, ConfigFile, Overrides, emit
from azq.clock import now_ms

fleet_app = typer.Typer(no_args_is_help=True, help="Machines that were let in by `azq join-token`, and the brokers' users.")


@fleet_app.command("list")
def fleet_list(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """List machines that were let in, until when, and where they connect from."""
    from azq.config import load
    from azq.host.brokers import resolve
    from azq.host.machines import as_row, as_text, machines_of

    with machines_of(resolve(load(config, overrides or []))) as machines:
        found = machines.seen()
    emit([as_row(seen) for seen in found], as_json, as_text(found, now_ms()))


@fleet_app.command("revoke")
def fleet_revoke(
    name: Annotated[str, typer.Argument(help="A machine of `azq fleet list`.")],
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Send a machine away, at once: its user is removed from every broker and its connections end."""
    from azq.config import load
    from azq.host.brokers import resolve
    from azq.host.machines import machines_of

    with machines_of(resolve(load(config, overrides or []))) as machines:
        machines.revoke(name)
    emit({"revoked": name}, as_json, f"{name} is out; games that it held are played on by others")


@fleet_app.command("expire")
def fleet_expire(config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Send away machines whose time is over; `azq up` and the unit azq-fleet.timer do so by themselves."""
    from azq.config import load
    from azq.host.brokers import resolve
    from azq.host.machines import machines_of
    from azq.host.roles import knows_roles

    settings = resolve(load(config, overrides or []))
    gone: list[str] = []
    if knows_roles(settings):
        with machines_of(settings) as machines:
            machines.renew()
            gone = machines.expire(now_ms())
    emit({"expired": gone}, as_json, "\n".join(f"{name} is out: its time is over" for name in gone))


@fleet_app.command("acl")
def fleet_acl(
    apply: Annotated[bool, typer.Option("--apply", help="Make these users on every broker of the settings.")] = False,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Print the roles' users as lines of an ACL file, or make them; for servers that azq did not start."""
    from azq.config import load
    from azq.host.brokers import resolve
    from azq.host.machines import give_roles

    for text in give_roles(resolve(load(config, overrides or [])), apply=apply):
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
