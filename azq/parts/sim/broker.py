"""A Redis server of one process, by the clock of a simulation, with an append-only file that a crash cuts anywhere."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from azq.parts.sim import keyspace, streams
from azq.parts.sim.client import Command
from azq.parts.sim.keyspace import Keyspace, Reply
from azq.parts.sim.scripts import as_bytes, shared

Refusal: TypeAlias = Callable[[], ResponseError]
LoggedCommand: TypeAlias = tuple[int, bytes, Sequence[bytes]]  # when it ran (ms), its name and its arguments

WRITES = {**keyspace.CHANGES, **streams.CHANGES}
COMMANDS = {name.encode(): (command, name in WRITES) for name, command in {**keyspace.LOOKUPS, **streams.LOOKUPS, **WRITES}.items()}
# Those that a server without memory takes; others it refuses, but in a script that has written something before.
FREEING = frozenset(b"DEL UNLINK EXPIRE RENAME HDEL SREM ZREM LREM LPOP RPOP XDEL XREADGROUP XACK XAUTOCLAIM".split())
FULL = partial(OutOfMemoryError, "command not allowed when used memory > 'maxmemory'.")
READ_ONLY = partial(ReadOnlyError, "You can't write against a read only replica.")
REWRITE_AFTER = 300  # units of the file, which come to some ten seconds


class Broker:
    """One server. Blocking reads do not wait."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.keys = Keyspace()
        self.refusal: Refusal | None = None  # of commands that write: `FULL`, `READ_ONLY`
        self._scripts = shared()
        self._loaded: set[bytes] = set()
        self._base = Keyspace()
        self._file: list[list[LoggedCommand]] = []  # since the base; what a script or transaction wrote stands or falls together
        self._unit: list[LoggedCommand] = []

    def exchange(self, commands: Sequence[Command], atomic: bool) -> list[Reply]:
        """The answers to commands that run as one unit or one by one; an error takes the place of its answer."""
        if atomic and self.refusal:  # it queues none for later: azq's transactions all write
            return [self.refusal() for _ in commands]
        return self._transact(commands) if atomic else [self._transact([command])[0] for command in commands]

    def _transact(self, commands: Sequence[Command]) -> list[Reply]:
        self.keys.now_ms = self._clock_ms()
        replies: list[Reply] = []
        for command in commands:
            try:
                replies.append(self._do([word if type(word) is bytes else as_bytes(word) for word in command]))
            except ResponseError as error:
                replies.append(error)
        if self._unit:
            self._file.append(self._unit)
            self._unit = []
            if len(self._file) > 2 * REWRITE_AFTER:
                _replay(self._base, self._file[:REWRITE_AFTER])
                del self._file[:REWRITE_AFTER]
        return replies

    def crash(self, share: float, since_ms: int) -> bool:
        """Dies and starts without this share of what its file has since then, the newest units; whether that was any."""
        lost = round(share * sum(unit[0][0] >= since_ms for unit in self._file))
        if lost:
            del self._file[-lost:]
            self.keys = copy.deepcopy(self._base)
            _replay(self.keys, self._file)
        self._loaded.clear()
        return lost > 0

    def _do(self, words: Sequence[bytes]) -> Reply:
        name, *arguments = words
        match name:
            case b"EVALSHA":
                return self._call(arguments[0], arguments[1:])
            case b"EVAL":
                return self._call(self._load(arguments[0]), arguments[1:])
            case b"SCRIPT":
                return self._load(arguments[1])
        return self._run(words)

    def _run(self, words: Sequence[bytes]) -> Reply:
        """What a command answers that is no script."""
        name, arguments = words[0], words[1:]
        if name not in COMMANDS:
            raise ResponseError(f"ERR unknown command '{name.decode()}'")
        command, writes = COMMANDS[name]
        if writes and self.refusal and (self.refusal is READ_ONLY or not (self._unit or name in FREEING)):
            raise self.refusal()
        reply = command(self.keys, *arguments)
        if writes:
            self._unit.append((self.keys.now_ms, name, arguments))
        return reply

    def _load(self, source: bytes) -> bytes:
        sha = self._scripts.compile(source)
        self._loaded.add(sha)
        return sha

    def _call(self, sha: bytes, rest: Sequence[bytes]) -> Reply:
        if sha not in self._loaded:
            raise NoScriptError("NOSCRIPT No matching script. Please use EVAL.")
        count = int(rest[0])
        return self._scripts.call(sha, rest[1 : 1 + count], rest[1 + count :], self._run)


def _replay(keys: Keyspace, units: Sequence[Sequence[LoggedCommand]]) -> None:
    for keys.now_ms, name, words in (command for unit in units for command in unit):
        COMMANDS[name][0](keys, *words)
