"""A learner's objects in a store are signed with a key of its control plane: write access to a bucket is not enough to train a run.

    <name>.<mark>              an extent; its mark is of folder and name, which holds the number of its writer and the sha256 of its bytes
    <name>.<mark>, with a mark of folder, name and sha256 behind its bytes: any other object, whose name says nothing of them

The owner's processes make the key and leave a copy in their home: without it no other control plane reads what is there.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from azq import logs
from azq.errors import ConfigError, StoreError
from azq.files import make_folders, publish_file
from azq.store.extents import extent_of, is_object_name
from azq.store.objects import ObjectPrefix
from azq.wire import keys
from azq.wire.connect import translate

KEY_FILE = ".store-key"
MARK_BYTES = 32
_SIGNED = re.compile(r"(?P<name>.+)\.(?P<mark>[0-9a-f]{64})")


def make_key(client: redis.Redis, home: Path) -> bytes:
    """The key of a control plane, by its owner: the one it has, while it has no run that of `home`, else a new one; `home` keeps a copy.

    Raises `ConfigError` for a file that cannot be used, `BrokerError`.
    """
    path, log = home / KEY_FILE, logs.get(__name__)
    try:
        own = bytes.fromhex(path.read_text("ascii")) if path.exists() else b""
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used to sign what the store keeps ({error}); put a copy of it back") from None
    with translate(client):
        client.set(keys.STORE_KEY, own or secrets.token_bytes(MARK_BYTES), nx=not own or bool(client.exists(keys.RUNS)))
    key = read_key(client)
    if own and own != key:
        log.warning("other_store_key", file=str(path), reason="the control plane has another one, which counts")
    elif not own:
        try:
            make_folders(home)
            publish_file(path, f"{key.hex()}\n".encode(), 0o600)
        except OSError as error:  # as in a container: the control plane has it
            log.warning("store_key_not_copied", file=str(path), reason=error.strerror, remedy="back up the control plane")
    return key


def read_key(client: redis.Redis) -> bytes:
    """The key of a control plane. Raises `StoreError` where it has none, `BrokerError`."""
    with translate(client):
        key: Any = client.get(keys.STORE_KEY)
    if not key:
        raise StoreError(f"the control plane has no {keys.STORE_KEY} to sign what the store keeps; start its daemon, which makes it")
    return bytes(key)


@dataclass(frozen=True, slots=True)
class SignedPrefix(ObjectPrefix):
    """A prefix whose objects count only with a mark by `key`; one of another name than azq writes is no object."""

    prefix: ObjectPrefix
    folder: str  # of the run, so that no object counts for another
    key: bytes

    def names(self, folder: str = "") -> list[str]:
        """Raises `StoreError` for an object without its mark: it could take the place of others by its name alone."""
        signed: list[str] = []
        for stored in self.prefix.names(folder):
            name = self._name(stored)
            if name and not hmac.compare_digest(self._stored(name), stored):
                raise self._refused(stored)
            if name:
                signed.append(name)
        return signed

    def folders(self) -> list[str]:
        return self.prefix.folders()

    def write(self, name: str, data: bytes) -> None:
        self.prefix.write(self._stored(name), data if extent_of(name) else data + self._mark(name, data))

    def read(self, name: str) -> bytes | None:
        """An object; an extent's reader compares the sha256 with its name's."""
        data = self.prefix.read(self._stored(name))
        if data is None or extent_of(name):
            return data
        content = data[:-MARK_BYTES]
        if not hmac.compare_digest(data[-MARK_BYTES:], self._mark(name, content)):
            raise self._refused(name)
        return content

    def remove(self, name: str) -> None:
        self.prefix.remove(self._stored(name))

    def sign(self) -> int:
        """Signs all objects, from any writer; returns how many were written again."""
        count = 0
        for stored in self.prefix.names():
            name, data = self._name(stored), self.prefix.read(stored)
            if name is None or data is None or (extent_of(name) and stored == self._stored(name)):
                continue
            self.write(name, data[:-MARK_BYTES] if stored != name and not extent_of(name) else data)
            if stored != self._stored(name):
                self.prefix.remove(stored)
            count += 1
        return count

    def _name(self, stored: str) -> str | None:
        """The name of an object with or without a mark; None for objects of other programs."""
        signed = _SIGNED.fullmatch(stored)
        return next((name for name in (signed["name"] if signed else "", stored) if is_object_name(name)), None)

    def _stored(self, name: str) -> str:
        if not is_object_name(name):
            raise StoreError(f"{name!r} is no name of an object that azq keeps")
        return f"{name}.{self._mark(name).hex()}"

    def _mark(self, name: str, data: bytes | None = None) -> bytes:
        content = b"" if data is None else hashlib.sha256(data).digest()
        return hmac.digest(self.key, f"{self.folder}/{name}\n".encode() + content, "sha256")

    def _refused(self, name: str) -> StoreError:
        return StoreError(
            f"{self.folder}/{name} in the store is not signed with this control plane's key: remove it; or put a copy of its key into the "
            f"owner's home ({KEY_FILE}); or, where an older azq wrote it or the key is lost, trust what is there with `azq runs sign`"
        )
