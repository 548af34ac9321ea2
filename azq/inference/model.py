"""Networks with weights, ready to evaluate: loaded into a spare copy, tried, and only then put to use."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from azq.config import InferenceConfig, NetworkConfig
from azq.errors import WeightsError
from azq.inference import native
from azq.inference.batching import buckets
from azq.inference.cuda import GraphForward
from azq.inference.forward import EagerForward, Flight, Forward, Outputs
from azq.inference.placement import Placement, place
from azq.nets import NetSpec, Network, WeightsMeta, build, from_bytes, load_into, unpack
from azq.nets.resnet import ResNet
from azq.wire.messages import WeightEvent

PROBE_SIZE = 8  # observations of the self-test
PROBE_TOLERANCE = 0.1  # mean difference of priors and values that low precision may cause

Fetch = Callable[[WeightEvent], bytes]


class Model:
    """One network with one set of weights at a time."""

    def __init__(self, spec: NetSpec, network: NetworkConfig, config: InferenceConfig, placement: Placement | None = None) -> None:
        self.spec = spec
        self.network = network
        self.version = 0
        self.meta: WeightsMeta | None = None
        self._placement = placement or place(config)
        self._reference = build(network, spec).eval()
        self._module, self._forward = _choose_forward(build(network, spec), self._placement, config)

    def load(self, data: bytes, version: int | None = None) -> None:
        """Takes weights over; `WeightsError` when they are damaged, do not fit or fail the self-test.

        The model is unusable after a failure, until weights are loaded that do.
        """
        self.version = 0
        state, self.meta = from_bytes(data)
        load_into(self._reference, state)
        load_into(self._module, {name: value.to(self._placement.device) for name, value in state.items()})
        self._forward.refresh()
        version = self.meta.version if version is None else version
        self._self_test(version)
        self.version = version

    def launch(self, packed: NDArray[np.uint8]) -> Flight:
        """Starts the evaluation of (B, P) observations."""
        return self._forward.launch(packed)

    def evaluate(self, packed: NDArray[np.uint8]) -> Outputs:
        """Logits (B, A) and values (B, V)."""
        return self.launch(packed).wait()

    def outcomes(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Probabilities (B, K) of the game's outcomes for the player to move, in float32; ConfigError for a game without outcomes."""
        with torch.inference_mode():
            return self._reference.outcomes(*unpack(torch.tensor(packed), self.spec)).numpy()

    def _self_test(self, version: int) -> None:
        """Compares the forward pass in use with the plain float32 one on fixed observations."""
        probe = np.random.default_rng(0).integers(0, 256, (PROBE_SIZE, self.spec.packed_size), np.uint8)
        probe[:, self.spec.plane_bytes :] %= 16
        logits, values = self.evaluate(probe)
        with torch.inference_mode():
            expected = self._reference(*unpack(torch.from_numpy(probe), self.spec))
        if not (np.isfinite(logits).all() and np.isfinite(values).all()):
            raise WeightsError(f"weights version {version} evaluate to NaN or infinity; the ones before stay in use")
        priors = torch.softmax(torch.from_numpy(logits).float(), 1) - torch.softmax(expected[0], 1)
        gap = max(float(priors.abs().sum(1).mean()) / 2, float((torch.from_numpy(values).float() - expected[1]).abs().mean()))
        if gap > PROBE_TOLERANCE:
            raise WeightsError(f"weights version {version} fail the self-test: off by {gap:.3f}; set inference.precision = 'float32'")


def network_of(meta: WeightsMeta) -> NetworkConfig:
    """The network that weights were made for; `WeightsError` when they do not say."""
    try:
        return NetworkConfig.model_validate(meta.network)
    except ValidationError:
        raise WeightsError(f"weights of {meta.game} describe no network that this azq knows: {meta.network}") from None


def verify(data: bytes, event: WeightEvent) -> bytes:
    """The bytes, when they are what the event announced; `WeightsError` otherwise."""
    found = hashlib.sha256(data).hexdigest()
    if found != event.sha256:
        raise WeightsError(
            f"weights version {event.version} of {event.run} hash to {found[:12]}, announced was {event.sha256[:12]}; refused"
        )
    return data


class ResidentModels:
    """The versions of one run's network held ready; the least recently used one is overwritten when a new one is needed."""

    def __init__(self, make: Callable[[], Model], fetch: Fetch, capacity: int) -> None:
        self._make = make
        self._fetch = fetch
        self._capacity = max(capacity, 2)  # the one in use and the one being loaded
        self._models: OrderedDict[int, Model] = OrderedDict()
        self._spares: list[Model] = []

    @property
    def versions(self) -> tuple[int, ...]:
        """Versions held, least recently used first."""
        return tuple(self._models)

    def get(self, event: WeightEvent, keep: int = 0) -> Model:
        """The model of an event's version, loaded if need be; version `keep` is not overwritten for it.

        Raises WeightsError or StoreError; whatever was resident before still is, except the version overwritten.
        """
        model = self._models.get(event.version)
        if model is None:
            data = verify(self._fetch(event), event)
            from_bytes(data)  # damaged bytes cost no resident version
            model = self._spare(keep)
            try:
                model.load(data, event.version)
            except WeightsError:
                self._spares.append(model)
                raise
            self._models[event.version] = model
        self._models.move_to_end(event.version)
        return model

    def _spare(self, keep: int) -> Model:
        if self._spares:
            return self._spares.pop()
        if len(self._models) < self._capacity:
            return self._make()
        victim = next(version for version in self._models if version != keep)
        return self._models.pop(victim)


def _choose_forward(module: Network, placement: Placement, config: InferenceConfig) -> tuple[Network, Forward]:
    """The fastest forward pass for a network on a device, and the module whose weights it takes."""
    module.eval().requires_grad_(False)
    if isinstance(module, ResNet) and native.suits(module, placement):
        return module, native.NativeForward(module, placement.threads)
    if placement.device.type == "cuda":
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    module = module.trunk_to(placement.dtype).to(placement.device)
    if placement.device.type == "cuda":
        return module, GraphForward(module, placement.device, buckets(config.max_batch, per_octave=4))
    return module, EagerForward(module, placement.device, buckets(config.max_batch, per_octave=8))
