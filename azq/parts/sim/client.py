"""A redis-py client whose connections end at a simulated server: what `azq.wire.connect` gives out, without sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import redis
from redis.client import Pipeline
from redis.exceptions import ResponseError

from azq.parts.sim.keyspace import Reply

Command: TypeAlias = Sequence[Any]
#: takes commands over the network, as one unit or one by one, and gives their answers, errors among them; may raise `redis.ConnectionError`
Exchange: TypeAlias = Callable[[Sequence[Command], bool], list[Reply]]


class SimulatedConnection:
    """Commands in, answers out."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._replies: list[Reply] = []

    def pack_commands(self, commands: Sequence[Command]) -> Sequence[Command]:
        return commands

    def send_packed_command(self, commands: Sequence[Command]) -> None:
        self._replies += self._exchange(commands, False)

    def read_response(self) -> Reply:
        reply = self._replies.pop(0)
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def disconnect(self) -> None:
        self._replies.clear()


class SimulatedPool(redis.ConnectionPool):
    """Where a client takes its connections from."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(host="simulated", protocol=2, legacy_responses=True)
        self.exchange = exchange

    def get_connection(self, *_: object, **__: object) -> Any:
        return SimulatedConnection(self.exchange)

    def release(self, connection: Any) -> None:
        """Connections are made for each use."""


class SimulatedClient(redis.Redis):
    """The client; safe to share between actors, of which one runs at a time."""

    connection_pool: SimulatedPool

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(connection_pool=SimulatedPool(exchange))

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """One command in a round trip. Raises as redis-py does."""
        (reply,) = self.connection_pool.exchange([_words(args)], False)
        return read(self, args[0], reply, options)

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> SimulatedPipeline:
        """Commands that go out together."""
        return SimulatedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class SimulatedPipeline(Pipeline):
    """Commands in one round trip."""

    connection_pool: SimulatedPool

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers to all commands. Raises the first error among them."""
        stack, self.command_stack = self.command_stack, []
        for script in self.scripts:
            self.connection_pool.exchange([("SCRIPT", "LOAD", script.script)], False)
        replies = self.connection_pool.exchange([_words(args) for args, _ in stack], bool(self.transaction))
        return [read(self, args[0], reply, options) for (args, options), reply in zip(stack, replies, strict=True)]


def _words(args: Command) -> Command:
    """A command whose name has two words, as they are sent."""
    return [*str(args[0]).split(" "), *args[1:]]


def read(client: redis.Redis, name: str, reply: Reply, options: dict[str, Any]) -> Any:
    """An answer as redis-py gives it. Raises one that is an error."""
    if isinstance(reply, ResponseError):
        raise reply
    options.pop("keys", None)
    callback = client.response_callbacks.get(name)  # type: ignore[no-untyped-call]
    return reply if callback is None else callback(reply, **options)
