"""`azq up --from`: a run that begins with the weights of another run or of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azq import logs, pretrained
from azq.bus.base import Bus
from azq.config import Config, RunSections
from azq.console.move import weights_file
from azq.errors import ConfigError
from azq.games import Game
from azq.host import rundir
from azq.ledger import Ledger
from azq.ledger.rules.runs import check_run_name
from azq.store import Store

if TYPE_CHECKING:  # the command line starts without torch
    from torch import Tensor

    from azq.nets import WeightsMeta

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """Weights to begin with, and where they are from."""

    path: Path
    state: dict[str, Tensor]
    meta: WeightsMeta

    def settings(self) -> dict[str, dict[str, Any]]:
        """What a run takes over with them: game and network."""
        return {"run": {"game": self.meta.game, "params": self.meta.params}, "network": self.meta.network}


def read_origin(config: Config, named: str) -> Origin:
    """The weights of a file, of `RUN` (its newest), of `RUN:VERSION` or `azq:GAME`; raises `NotFound`, `ConfigError` or `WeightsError`."""
    from azq.nets import from_bytes
    from azq.nets.weights import naming

    run, _, version = named.partition(":")
    if Path(named).is_file():
        path = Path(named)
    elif (shipped := pretrained.named(named)) is not None:
        path = pretrained.verified(shipped)
    else:
        path = weights_file(rundir.RunDir(config.home, check_run_name(run)), version or "latest")
    with naming(path):
        return Origin(path, *from_bytes(path.read_bytes()))


def first_weights(origin: Origin, sections: RunSections, game: Game) -> bytes:
    """Version 1 of a run: all tensors of the origin that fit its network, the others as they are made; says which.

    Raises `ConfigError` where the game is another, or most does not fit.
    """
    from azq.nets import build, load_into, to_bytes
    from azq.nets.weights import fitting

    if origin.meta.game != sections.run.game:
        raise ConfigError(f"{origin.path} has weights of {origin.meta.game}, the run is to learn {sections.run.game}")
    network = build(sections.network, game, seed=sections.run.seed)
    own = network.state_dict()
    taken = fitting(origin.state, own) | _reading_more(origin.state, own)
    if 2 * _numbers(taken) < _numbers(origin.state):
        raise ConfigError(f"most of {origin.path} does not fit the run's network; take its own: leave [network] and run.params out")
    load_into(network, own | taken)
    log.info("begins_with", weights=str(origin.path), tensors=len(taken), fresh=",".join(sorted(own.keys() - taken.keys())) or "none")
    meta = replace(origin.meta, version=1, step=0, params=dict(sections.run.params), network=sections.network.description())
    return to_bytes(network, meta)


def _reading_more(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Kernels (K, C, h, w) of convolutions that read more planes in `own`, which they weigh with zero, so that they say what they said."""
    from azq.learner.step.growth import widen

    def more(old: Tensor, new: Tensor) -> bool:
        return old.ndim == new.ndim == 4 and new.shape[1] > old.shape[1] and new[:, : old.shape[1]].shape == old.shape

    return {name: widen(value, own[name]) for name, value in state.items() if name in own and more(value, own[name])}


def _numbers(state: Mapping[str, Tensor]) -> int:
    return sum(value.numel() for value in state.values())


def publish_first(ledger: Ledger, bus: Bus, store: Store, run: str, data: bytes, sections: RunSections) -> None:
    """Announces them, before a learner is there."""
    from functools import partial

    from azq.learner.publish import Publisher

    publisher = Publisher(bus, store, run, announce=partial(ledger.announce_weights, run))
    publisher.publish(data, 1, 0, blocks=sections.network.blocks, channels=sections.network.channels)
