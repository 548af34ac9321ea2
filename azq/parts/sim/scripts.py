"""The ledger's Lua files in this process: Lua 5.1 (lupa) with what a server gives to scripts, and its rules for values of both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import msgpack
from redis.exceptions import ResponseError

from azq.errors import MissingExtra
from azq.parts.sim.keyspace import Reply, Status

Run: TypeAlias = Callable[[Sequence[bytes]], Reply]  # executes a command

# Takes the script's source and what `call` and `pcall` reach; answers the script as a function of keys and arguments.
_LOADER = """
local source, run, try, pack, unpack_ = ...
redis = {call = run, pcall = try}
cmsgpack = {pack = pack, unpack = unpack_}
local script = assert(loadstring(source))
return function(keys, arguments)
  KEYS, ARGV = keys, arguments
  return script()
end
"""


def as_bytes(word: Any) -> bytes:
    """An argument of a command as it is sent."""
    return bytes(word) if isinstance(word, bytes) else str(word).encode()


class Scripts:
    """Scripts by the SHA-1 of their source, in one interpreter. Raises `MissingExtra` without lupa."""

    def __init__(self) -> None:
        try:
            from lupa import lua51
        except ImportError:
            raise MissingExtra("the simulation runs the ledger's Lua; `pip install 'azq[sim]'`, or `pip install lupa`") from None
        self._lua = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._type = lua51.lua_type
        self._loader = self._lua.compile(_LOADER)
        self._parts = self._lua.eval("function(list) return list.err, list.ok, unpack(list) end")
        self._compiled: dict[bytes, Any] = {}
        self._shas: dict[bytes, bytes] = {}
        self._run: Run  # of the script that is called

    def compile(self, source: bytes) -> bytes:
        """Makes a script ready; returns its SHA-1 in hexadecimal."""
        if (sha := self._shas.get(source)) is None:
            sha = self._shas[source] = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
            unpacked = partial(msgpack.unpackb, raw=True, strict_map_key=False)
            self._compiled[sha] = self._loader(source, self._called, self._tried, self._packed, lambda data: self._table(unpacked(data)))
        return sha

    def call(self, sha: bytes, keys: Sequence[bytes], arguments: Sequence[bytes], run: Run) -> Reply:
        """What a script answers, whose commands `run` executes. Raises `ResponseError`."""
        self._run = run
        table = self._lua.table_from
        return self._reply(self._compiled[sha](table(keys), table(arguments)))

    def _called(self, *words: Any) -> Any:
        plain = [word if type(word) is bytes else b"%.17g" % word if type(word) is float else as_bytes(word) for word in words]
        reply = self._run(plain)
        return reply if type(reply) is bytes or type(reply) is int else self._value(reply)

    def _tried(self, *words: Any) -> Any:
        try:
            return self._called(*words)
        except ResponseError as error:
            return self._lua.table_from({b"err": str(error).encode()})

    def _value(self, reply: Reply) -> Any:
        """A reply as Lua has it: nil is false, a status a table."""
        if reply is None:
            return False
        if isinstance(reply, list):
            return self._lua.table_from([part if type(part) is bytes else self._value(part) for part in reply])
        return self._lua.table_from({b"ok": bytes(reply)}) if isinstance(reply, Status) else reply

    def _reply(self, value: Any) -> Reply:
        """A value of Lua as a server answers it: a list ends at its first nil, a number loses its fraction."""
        if type(value) is bytes:
            return value
        if value is None or value is False:
            return None
        if self._type(value) != "table":
            return int(value)
        error, status, *parts = self._parts(value)
        if error is not None:
            raise ResponseError(error.decode())
        if status is not None:
            return Status(status)
        return list(map(self._reply, parts[: parts.index(None)] if None in parts else parts))

    def _packed(self, value: Any) -> bytes:
        return bytes(msgpack.packb(self._plain(value), unicode_errors="surrogateescape"))

    def _plain(self, value: Any) -> Any:
        """A value of Lua, whose strings are text to msgpack."""
        if self._type(value) != "table":
            return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
        pairs = [(self._plain(name), self._plain(item)) for name, item in value.items()]
        if sorted(name for name, _ in pairs if isinstance(name, int)) == list(range(1, len(pairs) + 1)):
            return [item for _, item in sorted(pairs)]
        return dict(pairs)

    def _table(self, value: Any) -> Any:
        if isinstance(value, list | dict):
            parts = map(self._table, value) if isinstance(value, list) else {name: self._table(item) for name, item in value.items()}
            return self._lua.table_from(list(parts) if isinstance(value, list) else parts)
        return value


@cache
def shared() -> Scripts:
    """Those of this process: an interpreter is slow to make, and scripts keep nothing between calls."""
    return Scripts()
