"""Networks with weights, ready to evaluate: tried on known observations before they are used, and whenever they are run another way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from azq import logs
from azq.config import InferenceConfig, NetworkConfig
from azq.errors import DeviceError, WeightsError, reason_of
from azq.inference.device.cuda import SLOTS, GraphForward
from azq.inference.device.engine import Engine, Rung, fastest_layout
from azq.inference.device.forward import Failure, Flight, Forward, Landed, Outputs, classify, describe
from azq.inference.device.placement import Placement, place
from azq.nets import NetSpec, Network, WeightsMeta, build, from_bytes, load_into, unpack

PROBE_SIZE = 8  # observations of the self-test
TRIALS = 20  # batches of each way
PROBE_TOLERANCE = 0.1  # mean difference of priors and values that low precision may cause

Packed = NDArray[np.uint8]


class Model:
    """One network with one set of weights at a time; loaded by one thread, and used by one thread once it is loaded.

    A forward pass that fails is made again a rung lower, down to the float32 reference on the CPU: what is answered is
    finite, and comes from a forward pass that agreed with the reference on known observations.
    """

    def __init__(
        self,
        spec: NetSpec,
        network: NetworkConfig,
        config: InferenceConfig,
        placement: Placement | None = None,
        *,
        engine: Engine | None = None,
    ) -> None:
        self.spec = spec
        self.network = network
        self.version = 0
        self.meta: WeightsMeta | None = None
        self._config = config
        self._engine = engine or Engine(config, placement or place(config))
        self.reference = fastest_layout(build(network, spec).eval().requires_grad_(False))
        self._shape = spec, network
        self.rung = self._engine.rung_for(self._shape)
        self.built: tuple[Rung, Network, Forward] | None = None  # for a rung: the module whose weights its forward pass takes, and that
        self._probe = random_observations(spec, PROBE_SIZE)
        self._expected: tuple[torch.Tensor, torch.Tensor] = (torch.empty(0), torch.empty(0))

    def load(self, data: bytes, version: int | None = None) -> None:
        """Takes weights over; `WeightsError` when they are damaged or do not fit, `DeviceError` when nothing here can run them.

        The model is unusable after a failure, until weights are loaded that do.
        """
        self.take(*from_bytes(data), version)

    def take(self, state: dict[str, torch.Tensor], meta: WeightsMeta, version: int | None = None) -> None:
        """Takes weights over that were read already; raises as `load` does."""
        self.version, self.meta = 0, meta
        version = meta.version if version is None else version
        load_into(self.reference, state)
        self._expected = self.plain(self._probe)
        if not _finite(self._expected):
            raise WeightsError(f"weights version {version} evaluate to NaN or infinity; the ones before stay in use")
        self.rung = self._engine.rung_for(self._shape)
        self._settle(self._try(), serving=False)
        self.version = version

    def twin(self) -> Model:
        """Another model that runs the same network the same way and has these weights, as a spare for the next ones."""
        twin = Model(self.spec, self.network, self._config, engine=self._engine)
        if self.meta is not None:
            twin.take(self.reference.state_dict(), self.meta, self.version)
        return twin

    def risen(self) -> Model | None:
        """Another model with these weights that is run a faster way, where they fell and it is time to try that again."""
        if not self._engine.may_rise(self.rung, self._shape):
            return None
        twin = self.twin()
        lower = twin.rung.mode > self.rung.mode or twin.rung.max_batch < self.rung.max_batch
        return None if lower or twin.rung == self.rung else twin

    def launch(self, *parts: Packed) -> Flight:
        """Starts the evaluation of arrays (B_i, P), one after the other; what goes wrong shows when it lands."""
        try:
            assert self.built is not None, "launched before weights were loaded"
            if sum(map(len, parts)) > self.rung.max_batch:
                return self._in_pieces(parts)
            return self.built[2].launch(*parts)
        except (RuntimeError, MemoryError) as error:
            return Landed(_without_frames(error))

    def land(self, flight: Flight, *parts: Packed) -> Outputs:
        """The outputs of a flight of these parts, all finite; made again lower down as often as it takes.

        Raises WeightsError where the reference is not finite either, DeviceError where no rung is left.
        """
        while failure := _failure_of(flight):
            if failure is Failure.NOT_FINITE and not _finite(self.plain(*parts)):
                raise WeightsError(f"weights version {self.version} evaluated to NaN or infinity")
            del flight  # and with it, where nobody else has it, what it holds of the device's memory
            self._settle(failure, serving=True)
            flight = self.launch(*parts)
        return flight.wait()

    def evaluate(self, *parts: Packed) -> Outputs:
        """Logits (B, A) and values (B, V); raises as `land` does."""
        return self.land(self.launch(*parts), *parts)

    def outcomes(self, packed: Packed) -> NDArray[np.float32]:
        """Probabilities (B, K) of the game's outcomes for the player to move, in float32; ConfigError for a game without outcomes."""
        with torch.inference_mode():
            return self.reference.outcomes(*unpack(torch.tensor(packed), self.spec)).numpy()

    def _settle(self, failure: Failure | None, *, serving: bool) -> None:
        """Goes down until a rung passes the self-test."""
        while failure:
            what = f"the forward pass of {self.network.kind} weights"
            self.rung = self._engine.fall(self.rung, failure, what, self._shape, serving=serving)
            failure = self._try()

    def _try(self) -> Failure | None:
        """Builds what the rung asks for, gives it the weights and compares it with the reference on known observations."""
        try:
            if self.built is None or self.built[0] != self.rung:
                self.built = None  # frees its memory first
                trials = self._trials()
                if trials is not None:
                    self.rung = replace(self.rung, way=self._engine.choose(self._shape, self._measured(trials)))
                self.built = (self.rung, *self._engine.forward(self.reference, self.rung, self._shape))
            _, module, forward = self.built
            with self._engine.exclusive:
                if module is not self.reference:
                    module.load_state_dict(self.reference.state_dict())
                forward.refresh()
            return self._test(forward)
        except (RuntimeError, MemoryError) as error:
            return classify(error)

    def _test(self, forward: Forward) -> Failure | None:
        """What is wrong with evaluations of the known observations: in each graph, whose kernels are of its size alone, in all rows."""
        if not isinstance(forward, GraphForward):
            return self._differs(self.launch(self._probe))
        batches = [np.resize(self._probe, (size, self.spec.packed_size)) for size in forward.sizes]
        batches *= -(-SLOTS // len(batches))  # they take turns: so each slot has one
        failures = (self._differs(forward.launch(packed, poison=True)) for packed in batches)
        return next(filter(None, failures), None)

    def _differs(self, flight: Flight) -> Failure | None:
        """What is wrong with an evaluation of the known observations, repeated as often as they fit."""
        if failure := _failure_of(flight):
            return failure
        return None if _gap(flight.wait(), self._expected) <= PROBE_TOLERANCE else Failure.WRONG  # as is NaN

    def _trials(self) -> dict[str, GraphForward] | None:
        """By way, for the largest batch: those that pass the self-test; None where there is nothing to choose."""
        names = self._engine.to_measure(self.reference, self.rung, self._shape)
        return {way: forward for way in names if (forward := self._on_trial(replace(self.rung, way=way)))} if names else None

    def _measured(self, trials: Mapping[str, GraphForward]) -> dict[str, float]:
        """Seconds that the largest batch takes in each way: the least of some, as others use the device, too."""
        packed = random_observations(self.spec, self.rung.max_batch)
        taken = [{way: forward.device_s(packed) for way, forward in trials.items()} for _ in range(TRIALS)]  # in turns
        return {way: min(one[way] for one in taken) for way in trials}

    def _on_trial(self, rung: Rung) -> GraphForward | None:
        """None, and said, where it fails: it is not for its speed alone."""
        try:
            _, forward = self._engine.forward(self.reference, rung, self._shape)
            assert isinstance(forward, GraphForward)
            forward.refresh(largest_only=True)
            if failure := self._test(forward):
                raise DeviceError(describe(failure))
            return forward
        except Exception as error:  # of a compiler, or of a torch that lacks it
            logs.get(__name__).warning("way_skipped", rung=str(rung), network=self.network.kind, reason=reason_of(error))
            return None

    def _in_pieces(self, parts: tuple[Packed, ...]) -> Landed:
        """Evaluates more than the rung's largest batch."""
        assert self.built is not None
        whole, step = np.concatenate(parts), self.rung.max_batch
        pieces = [self.built[2].launch(whole[start : start + step]).wait() for start in range(0, len(whole), step)]
        return Landed((np.concatenate([logits for logits, _ in pieces]), np.concatenate([values for _, values in pieces])))

    def plain(self, *parts: Packed) -> tuple[torch.Tensor, torch.Tensor]:
        """What the reference says, in float32."""
        with torch.inference_mode():
            logits, values = self.reference(*unpack(torch.tensor(np.concatenate(parts)), self.spec))
        return logits, values


def random_observations(spec: NetSpec, count: int) -> Packed:
    """The same ones every time, (count, P)."""
    packed = np.random.default_rng(0).integers(0, 256, (count, spec.packed_size), np.uint8)
    packed[:, spec.plane_bytes :] %= 16
    return packed


def _failure_of(flight: Flight) -> Failure | None:
    try:
        return None if flight.finite() else Failure.NOT_FINITE
    except (RuntimeError, MemoryError) as error:
        return classify(error)


def _without_frames(error: Exception) -> Exception:
    """An error whose tracebacks, and those of what caused it, keep no buffers alive."""
    link: BaseException | None = error
    while link is not None:
        link = link.with_traceback(None).__cause__ or link.__context__
    return error


def _finite(outputs: tuple[torch.Tensor, torch.Tensor]) -> bool:
    """Whether the reference's own outputs can be sent at all, in the wire's precision."""
    return all(bool(torch.isfinite(output.to(torch.float16)).all()) for output in outputs)


def _gap(outputs: Outputs, expected: tuple[torch.Tensor, torch.Tensor]) -> float:
    """How far priors (total variation) and values are off: the worst mean of as many rows one after the other as are expected."""
    logits, values = (torch.from_numpy(output).float() for output in outputs)
    rows = torch.arange(len(logits)) % len(expected[0])
    priors = (torch.softmax(logits, 1) - torch.softmax(expected[0], 1)[rows]).abs().sum(1) / 2
    off = torch.stack((priors, (values - expected[1][rows]).abs().mean(1)))
    return float(F.avg_pool1d(off, len(expected[0]), ceil_mode=True).max())
