"""Commands by which machines come together: `azq join` and `azq join-token`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from azq.cli.options import AsJson, ConfigFile, Overrides, emit


def join(
    control: Annotated[str, typer.Argument(metavar="URL", help="The fleet's control plane: rediss://HOST:PORT/0.")],
    data: Annotated[str, typer.Option("--data", metavar="URL", help="The data plane, where the daemon does not tell it.")] = "",
    token: Annotated[str, typer.Option("--token", help="The token. Others here see it: rather --token-file or AZQ_JOIN_TOKEN.")] = "",
    token_file: Annotated[Path | None, typer.Option("--token-file", help="A file that holds the token; - reads standard input.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", help="PEM file of the brokers' authority, where the token names no certificate.")
    ] = None,
    roles: Annotated[str, typer.Option("--roles", help="Of selfplay, eval, inference; by default all that suit this machine.")] = "",
    tags: Annotated[str, typer.Option("--tags", help="Hardware tags besides the detected ones, comma-separated.")] = "",
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Self-play jobs at once.")] = None,
    folder: Annotated[Path, typer.Option("--folder", help="For settings and logs where there is no systemd.")] = Path(),
    foreground: Annotated[bool, typer.Option("--foreground", help="Work in this terminal, also where there is a systemd.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace settings that are there and differ.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look and tell, change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make this machine work for a fleet: check the way there, write the settings, start the services."""
    from azq.host import join as joining
    from azq.host.join.token import read_token

    names = tuple(part.strip() for part in tags.split(",") if part.strip())
    wish = joining.Wish(
        control, data, read_token(token, token_file), tls_ca, roles, names, concurrency, folder.absolute(), foreground, force, dry_run
    )
    say = (lambda line: typer.echo(line, err=True)) if as_json else typer.echo
    raise typer.Exit(joining.join(wish, say, lambda joined: emit(joined.values(), True, "") if as_json else None))


def join_token(
    name: Annotated[str, typer.Option("--name", help="What the machine is called; made up by default.")] = "",
    roles: Annotated[str, typer.Option("--roles", help="Of selfplay, eval, inference, learner.")] = "selfplay,eval,inference",
    days: Annotated[float, typer.Option("--days", help="How long it may work; it is let in again by a new token.")] = 30.0,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Let one machine in: print the command by which it joins this fleet, and its token, a secret."""
    from azq.config import load
    from azq.host.join import Invitee, invitation

    guest = Invitee(name, tuple(part.strip() for part in roles.split(",") if part.strip()), days)
    values = invitation(load(config, overrides or []), guest)
    lines = [values["command"], f"token: {values['token'] or '(none: the brokers ask for no password)'}"]
    if "name" in values:
        lines.append(
            f"for machine {values['name']} ({', '.join(values['roles'])}), {days:g} days; `azq fleet revoke {values['name']}` ends it"
        )
    if "warning" in values:
        typer.echo(f"warning: {values['warning']}", err=True)
    emit(values, as_json, "\n".join(lines))
