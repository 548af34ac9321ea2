"""Training any torch module with several processes: `initialise` on rank 0, then steps, statistics, shut down; `follow` on the others.

Ranks find each other at a broker, Redis or Valkey, and need nothing else in common. Letters: B rows of a step, of all ranks together.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.config import RankSettings
from azq.errors import BrokerError, ConfigError
from azq.learner.data.batches import cut
from azq.learner.rounds import RanksFigures, TrainingRound
from azq.learner.step.stepper import Stepper
from azq.parts.ranks.follower import Follower
from azq.parts.ranks.leader import Leader
from azq.parts.ranks.rules import RankPlace
from azq.process.interrupts import StopSign
from azq.waiting import until
from azq.wire import keys

RUN = "plain"
WAIT_S = 60.0

Loss = Callable[..., Tensor]
Draw = Callable[[int, slice], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class TensorRows:
    """Rows of a step, a tensor a column."""

    tensors: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.tensors[0])

    def parts(self, most: int) -> list[TensorRows]:
        return [TensorRows(tuple(tensor[begin:end] for tensor in self.tensors)) for begin, end in cut(len(self), most)]


class ModuleTrainer(Stepper):
    """Trains a module by an optimiser of torch.

    `loss(model, *columns)` is the mean over the rows it is given, and calls `model` once, in the module's place. `draw(step, rows)` gives
    the columns, each (rows, ...), of that slice of a step's batch: the same for each rank that asks, so that a run does not depend on who
    takes part. `learning_rate` says that of a step, where it is not the optimiser's own. `step` is the first, where module and optimiser
    come from a checkpoint. Raises `ConfigError` for an optimiser that has other parameters than the module's.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        draw: Draw,
        *,
        learning_rate: Callable[[int], float] | None = None,
        micro_batch: int = 0,
        step: int = 0,
    ) -> None:
        ours = set(module.parameters())
        if not ours or not ours.issuperset(chain.from_iterable(group["params"] for group in optimizer.param_groups)):
            raise ConfigError("the optimiser has parameters that are not the module's; make it of module.parameters()")
        super().__init__(next(iter(module.parameters())).device, micro_batch)
        self.module, self._optimizer = module, optimizer
        self._loss, self.draw = loss, draw
        self._learning_rate = learning_rate
        self.step = step
        self.last_loss = torch.zeros(())  # of this rank's rows
        self.leave()

    def train_on(self, batch: TensorRows, progress: float) -> None:
        if self._learning_rate is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = self._learning_rate(self.step)
        self.last_loss = self._gradients(batch)["loss"]
        with self.phases("update"):
            self._optimizer.step()
        with self.phases("sync"):
            self.sync.after_step(self.step)
        self.step += 1

    def _losses(self, part: TensorRows) -> dict[str, Tensor]:
        with self.phases("forward"):
            return {"loss": self._loss(self.sync.forward, *part.tensors)}

    def _total(self, losses: dict[str, Tensor]) -> Tensor:
        return losses["loss"]


class RowsOrder(NamedTuple):
    """Some rows of a step's batch."""

    step: int
    begin: int
    rows: int

    @property
    def following(self) -> RowsOrder:
        return self._replace(step=self.step + 1)


@dataclass(frozen=True)
class PlainWork:
    """A trainer's own draws: `Batches` and `RankWork` at once."""

    trainer: ModuleTrainer

    @property
    def feed(self) -> PlainWork:
        return self

    def ready(self) -> bool:
        return True

    def take_in(self) -> int:
        return 0

    def restore(self, tensors: Mapping[str, Tensor], step: int) -> None:
        self.trainer.restore(tensors, step)

    def order(self, step: int, rows: int, size: int) -> RowsOrder:
        return RowsOrder(step, 0, rows)

    def share(self, planned: TrainingRound, rows: tuple[int, ...], place: int) -> RowsOrder:
        return RowsOrder(planned.step, sum(rows[:place]), rows[place])

    @contextlib.contextmanager
    def take(self, order: RowsOrder) -> Iterator[TensorRows]:
        columns = self.trainer.draw(order.step, slice(order.begin, order.begin + order.rows))
        yield TensorRows(tuple(column.to(self.trainer.device, non_blocking=True) for column in columns))

    def close(self) -> None:
        """There are no threads."""


class PlainTraining(AbstractContextManager["PlainTraining"]):
    """Rank 0 of several. After an error within its context the others wait a minute for another rank 0."""

    def __init__(self, trainer: ModuleTrainer, bus: Bus, place: RankPlace, rows: int, run: str, settings: RankSettings) -> None:
        self._trainer, self._bus, self._rows, self._run = trainer, bus, rows, run
        self._leader = Leader(trainer, PlainWork(trainer), run, bus, settings, place)

    def step(self, steps: int = 1) -> int:
        """Takes steps with all present ranks, as one round; returns how many were taken.

        A single one where ranks have just met, none where a rank was lost over them: module and optimiser are then as before. The others
        give up a rank 0 that neither steps nor polls for a minute.
        """
        self.poll()
        return self._leader.train(TrainingRound(self._trainer.step, steps, self._rows, 0, 0.0))

    def poll(self) -> None:
        """Admits waiting ranks and renews this one's sign of life, between long pauses of a program's steps."""
        self._leader.poll()

    def wait_for(self, ranks: int, within_s: float = WAIT_S) -> None:
        """Waits for so many ranks; raises `EvaluationTimeout`."""

        def all_there() -> bool:
            self.poll()
            return self._leader.size >= ranks

        until(all_there, f"{ranks} ranks were not there within {within_s:g} s; see their logs", within_s)

    def statistics(self) -> RanksFigures:
        """Figures of all ranks, and of each (`by_rank`)."""
        return self._leader.figures()

    def shut_down(self) -> None:
        """Ends training, here and for those that follow."""
        with contextlib.suppress(BrokerError):  # the table's life ends it too
            self._bus.delete(keys.ranks(self._run))
        self._close()

    def _close(self) -> None:
        self._leader.close()
        self._bus.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.shut_down()
        else:
            self._close()


def initialise(
    trainer: ModuleTrainer, address: str, place: RankPlace, *, rows: int, run: str = RUN, settings: RankSettings | None = None
) -> PlainTraining:
    """Rank 0 of `place.ranks`; each step has `rows` rows. One broker may serve several `run`s. Raises `ConfigError` for too few rows."""
    if rows < place.ranks:
        raise ConfigError(f"{rows} rows are less than one for each of {place.ranks} ranks; raise them")
    return PlainTraining(trainer, RedisBus(address), place, rows, run, settings or RankSettings())


def follow(
    trainer: ModuleTrainer,
    address: str,
    place: RankPlace,
    *,
    run: str = RUN,
    settings: RankSettings | None = None,
    stop: StopSign | None = None,
    on_turn: Callable[[], object] = lambda: None,
) -> None:
    """Any other rank: trains until rank 0 shuts down or is gone for a minute, or until `stop` is set."""
    bus = RedisBus(address)
    work, settings = PlainWork(trainer), settings or RankSettings()
    follower = Follower(run_name=run, place=place, config=settings, bus=bus, work=work, stays=False)
    try:
        follower.run(stop or threading.Event(), on_turn)
    finally:
        bus.close()
