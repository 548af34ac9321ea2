"""A cluster on machines that stand already, by ssh, under their own systemd: values a host, and scripts that are the same for all. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from azq.config import merge
from azq.config.host import data_settings
from azq.config.loading import to_toml
from azq.errors import ConfigError
from azq.host.systemd.brokers import CERTIFICATE
from azq.host.systemd.install import CONFIG_FOLDER
from azq.parts.cluster.description import Cluster, Reaching
from azq.parts.cluster.members import Member, creation, host_settings, members_of, start_order, url_of
from azq.parts.cluster.reach import words_for
from azq.parts.cluster.targets.files import RenderedFile, Rendering, shell_case, static

SCRIPTS = ("install.sh", "remove.sh")  # the third is sent to hosts
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then set -- bash -s --; else set -- sudo -n bash -s --; fi; exec "$@"'


def ssh(cluster: Cluster) -> Rendering:
    """All files of a folder in which `install.sh` is run.

    Raises `ConfigError` for a group without hosts, and for machines that one systemd cannot have together or that no machine lets in.
    """
    members = members_of(cluster)
    first = members[0]
    if "daemon" not in first.roles:
        raise ConfigError(f"machines.{first.name}: broker and daemon are one machine under systemd, and let the others in; give it both")
    names: dict[str, str] = {}
    for member in members:
        if (other := names.setdefault(member.address, member.name)) != member.name:
            raise ConfigError(f"machines.{member.name}: {member.address} is {other} already; under systemd a host is one machine")
    hosts = {f"hosts/{member.name}.sh": RenderedFile(_host(cluster, member, members)) for member in members}
    return {**static("ssh", executable=SCRIPTS), "cluster.sh": RenderedFile(_values(cluster, members)), **hosts}


def _values(cluster: Cluster, members: Sequence[Member]) -> str:
    """What the scripts of this side know."""
    lines = [
        "# shellcheck shell=bash disable=SC2034",
        f"first={members[0].name}",
        f"machines=({shlex.join(member.name for member in members)})",
        "# In the order in which they leave.",
        f"stopped=({shlex.join(member.name for member in sorted(members, key=lambda member: member.stage))})",
        f"as_root={shlex.quote(AS_ROOT)}",
        "# MACHINE COMMAND",
        shell_case("reach", {member.name: _way(cluster.ssh, member.host) for member in members}),
    ]
    return "\n".join(lines) + "\n"


def _way(reaching: Reaching, host: str) -> str:
    """The words by which a shell has a host run the command `$2`."""
    mark = "{command}"
    command = reaching.command if mark in reaching.command else (*reaching.command, "sh", "-c", mark)
    words = words_for(reaching.model_copy(update={"command": tuple(word for word in command if word != mark), "azq": ()}), host)
    place = command.index(mark)
    arguments = words[: len(command) - 1]
    return " ".join([*map(shlex.quote, arguments[:place]), '"$2"', *map(shlex.quote, arguments[place:])])


def _host(cluster: Cluster, member: Member, members: Sequence[Member]) -> str:
    """What is one machine's own; of the first also who the others are and which runs there are."""
    first = members[0]
    own = host_settings(cluster, member)
    joins = start_order(cluster, member, first).join
    if member == first:
        lines = [f"settings={shlex.quote(_toml(cluster, member, own))}", f"words=({shlex.join(joins)})", *_of_first(cluster, members)]
    else:
        of_hosts = {section: values for section, values in own.items() if section != "broker"}
        overrides = [f"{section}.{key}={_value(value)}" for section, values in of_hosts.items() for key, value in values.items()]
        lines = ["settings=''", f"words=({shlex.join([*joins, *(word for text in overrides for word in ('--set', text))])})"]
    digest = sha256("\n".join(lines).encode()).hexdigest()[:16]
    head = [
        "# shellcheck shell=bash disable=SC2034,SC2054,SC2154",
        f"machine={member.name} wanted={digest}",
        f"azq=({shlex.join(cluster.ssh.azq)})",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _of_first(cluster: Cluster, members: Sequence[Member]) -> Iterator[str]:
    yield f"runs=({shlex.join(run.name for run in cluster.wanted_runs())})"
    created = {run.name: f'"${{azq[@]}}" {shlex.join(creation(run, members))} --config "$folder/azq.toml"' for run in cluster.wanted_runs()}
    yield shell_case("create", created)
    yield shell_case("roles_of", {member.name: f"echo {','.join(member.roles)}" for member in members[1:]})


def _toml(cluster: Cluster, first: Member, own: dict[str, Any]) -> str:
    """The first machine's `azq.toml`: where the others reach its brokers, and weights where they see them."""
    shards = int(own.get("broker", {}).get("data_shards", 1))
    data = data_settings([url_of(cluster, first, place) for place in range(1, shards + 1)], "public_")
    public = {"public_control_url": url_of(cluster, first), **data}
    base = {"broker": {**public, "tls_ca": str(CONFIG_FOLDER / CERTIFICATE)}, "store": {"url": "redis"}}
    return f"# Written by install.sh of the cluster {cluster.name}.\n\n{to_toml(merge(base, own))}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
