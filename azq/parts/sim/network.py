"""What lies between simulated processes: round trips to the broker, and Celery's delivery, which loses, doubles, delays and reorders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import redis

from azq.errors import BrokerUnavailable
from azq.ledger.types import JobView
from azq.parts.sim.broker import Broker
from azq.parts.sim.client import Command, SimulatedClient
from azq.parts.sim.keyspace import Reply
from azq.parts.sim.world import SECOND, START_NS, World

REPLY_SHARE = 0.3  # of answers that others overtake
VISIBLE_AGAIN_S = 60.0  # a message that a worker took and never acknowledged


class SimulatedNetwork:
    """The broker, and who reaches it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.skew_ns = 0  # of the broker's clock
        self.broker = Broker(lambda: self.broker_ms)
        self.rolled_back = False
        self.sent_away: set[str] = set()  # processes of machines that the broker does not know any more
        self._down_until_ns = 0
        self._lives = 0
        self.client = SimulatedClient(self._exchange)  # of all processes: it keeps nothing, and is slow to make

    def _exchange(self, commands: Sequence[Command], atomic: bool) -> list[Reply]:
        """A round trip of the actor that runs. Raises `redis.ConnectionError`."""
        world = self.world
        # of a script the name of its command: the same in each process, as keys with a host's name are not
        cut = world.send(" ".join(str(command[4] if command[0] == "EVALSHA" else command[0]) for command in commands))
        if cut == "before" or self._down_until_ns > world.now_ns:
            raise redis.ConnectionError("the connection was cut")
        if world.current.name in self.sent_away:
            raise redis.AuthenticationError("invalid username-password pair or user is disabled.")
        lives = self._lives
        replies = self.broker.exchange(commands, atomic)
        if cut or world.rng.random() < REPLY_SHARE:
            world.pause(world.latency_s())
        if cut == "after" or lives != self._lives:
            raise redis.ConnectionError("the connection was cut")
        return replies

    def lose(self, share: float, lag_s: float, down_s: float) -> None:
        """The broker dies and comes back with a prefix of its file: this share of what it wrote in the last `lag_s` is gone."""
        self.rolled_back |= self.broker.crash(share, self.broker_ms - round(1000 * lag_s))
        self._lives += 1
        self._down_until_ns = self.world.now_ns + round(down_s * SECOND)

    @property
    def refuses(self) -> bool:
        """Whether the broker takes no message of the actor that runs, and gives it none."""
        return self.broker.refusal is not None or self.world.current.name in self.sent_away

    @property
    def broker_ms(self) -> int:
        return (START_NS + self.world.now_ns + self.skew_ns) // 1_000_000


@dataclass(eq=False)
class QueuedMessage:
    """A job's, on its way or with a worker."""

    job_id: str
    attempt: int
    visible_ns: int


class Delivery:
    """Celery: messages of one queue."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.world = network.world
        self.network = network
        self.messages: list[QueuedMessage] = []
        self.trouble: list[Sequence[float]] = []  # of the next messages: after how many seconds each copy of it comes

    def publish(self, view: JobView, _game: str = "") -> None:
        """As `azq.queue.publish`. Raises `BrokerUnavailable`."""
        cut = self.world.send(f"publish {view.job.job_id} {view.attempt}")
        if cut == "before" or self.network.refuses:
            raise BrokerUnavailable("the connection was cut, or the broker refuses it")
        for late_s in self.trouble.pop(0) if self.trouble else (0.0,):
            self.messages.append(QueuedMessage(view.job.job_id, view.attempt, self.world.now_ns + round(late_s * SECOND)))
        if cut:
            raise BrokerUnavailable("the connection was cut")

    def take(self) -> QueuedMessage | None:
        """A message for the actor that runs, in any order; it comes again where that one dies before it acknowledges."""
        visible = [message for message in self.messages if message.visible_ns <= self.world.now_ns]
        if not visible or self.network.refuses:
            return None
        message = self.world.rng.choice(visible)
        message.visible_ns = self.world.now_ns + round(VISIBLE_AGAIN_S * SECOND)
        self.world.note(f"take {message.job_id} {message.attempt}")
        return message

    def acknowledge(self, message: QueuedMessage) -> None:
        if message in self.messages and not self.network.refuses:
            self.messages.remove(message)

    def lose(self) -> None:
        """What a broker that lost its last commands has forgotten."""
        self.messages = [message for message in self.messages if self.world.rng.random() < 0.5]
