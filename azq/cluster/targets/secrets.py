"""The secrets of a cluster in containers: made once on the operator's machine, a file a role, and in no file that is rendered."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from azq.cluster.description import Cluster
from azq.cluster.targets.containers import BROKER_PORT, PASSWORD, planes
from azq.errors import ConfigError
from azq.files import make_folders, publish_file
from azq.host.brokers import read_password
from azq.wire import acl, keys

TOKEN = "daemon.token"


def make(cluster: Cluster, folder: Path) -> list[str]:
    """Writes them below a folder that only its owner enters, keeps password and token that are there; returns the names.

    A container's user is another than the folder's owner: the files are readable, the folder is not.
    Raises `ConfigError` where the folder cannot be written or holds something else under these names.
    """
    try:
        make_folders(folder)
        os.chmod(folder, 0o700)
        for name in (PASSWORD, TOKEN):
            if not (folder / name).exists():
                publish_file(folder / name, f"{secrets.token_hex(24)}\n".encode())
        files = contents(read_password(folder / PASSWORD), read_password(folder / TOKEN), planes(cluster))
        for name, text in files.items():
            publish_file(folder / name, text.encode())
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}; name another folder") from None
    return [PASSWORD, TOKEN, *files]


def contents(password: str, token: str, hosts: tuple[str, ...]) -> Mapping[str, str]:
    """What each role reads as `azq.env`: its own user at the brokers, and for the daemon and its clients the token. Pure."""
    rest = f"AZQ_DAEMON__TOKEN={token}\n"
    found = {f"{role}.env": _addresses(role, password, hosts) + (rest if role == "daemon" else "") for role in keys.AZQ_ROLES}
    # What reads a queue's length has the rights of the monitor, which writes nothing.
    monitor = f"username={acl.role_user('flower')}\npassword={acl.role_password(password, 'flower')}\n"
    return {**found, "client.env": rest, "monitor.env": monitor}


def _addresses(role: keys.Role, password: str, hosts: tuple[str, ...]) -> str:
    login = f"{acl.role_user(role)}:{acl.role_password(password, role)}"
    control, *data = [f"redis://{login}@{host}:{BROKER_PORT}/0" for host in hosts]
    return f"AZQ_BROKER__CONTROL_URL={control}\nAZQ_BROKER__DATA_URLS={json.dumps(data)}\n"
