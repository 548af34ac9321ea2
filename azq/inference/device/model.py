"""Networks with weights, ready to evaluate: tested on known observations before they are used, and after each change of execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from azq import logs
from azq.config import NetworkConfig
from azq.errors import DeviceError, WeightsError, reason_of
from azq.inference.device.cuda import SLOTS, GraphForward
from azq.inference.device.engine import Engine, Execution, fastest_layout
from azq.inference.device.forward import CompletedBatch, Failure, Forward, InFlightBatch, Outputs, classify, describe
from azq.nets import NetSpec, Network, WeightsMeta, build, from_bytes, load_into, unpack

PROBE_SIZE = 8  # observations of the self-test
ROUNDS = 20  # batches of each choice of kernels
PROBE_TOLERANCE = 0.1  # mean difference of priors and values that low precision may cause

Packed = NDArray[np.uint8]


class Model:
    """One network with one set of weights at a time; loaded by one thread, and used by one thread once it is loaded.

    A forward pass that fails is repeated in a fallback, down to the float32 reference on the CPU: what is answered is finite,
    and comes from a forward pass that agreed with the reference on known observations.
    """

    def __init__(self, spec: NetSpec, network: NetworkConfig, engine: Engine) -> None:
        self.spec = spec
        self.network = network
        self.engine = engine
        self.version = 0
        self.meta: WeightsMeta | None = None
        self.reference = fastest_layout(build(network, spec).eval().requires_grad_(False))
        self._shape = spec, network
        self.execution = self.engine.execution_for(self._shape)
        self.built: tuple[Execution, Network, Forward] | None = None  # and the module whose weights that takes
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
        self.execution = self.engine.execution_for(self._shape)
        self._fall_back(self._try(), serving=False)
        self.version = version

    def copy(self) -> Model:
        """Another model of the same network, execution and weights, as a spare for the next ones."""
        copy = Model(self.spec, self.network, self.engine)
        if self.meta is not None:
            copy.take(self.reference.state_dict(), self.meta, self.version)
        return copy

    def recovered(self) -> Model | None:
        """A copy in a faster execution, where this one fell back and it is time to try again; else None."""
        if not self.engine.may_recover(self.execution, self._shape):
            return None
        copy = self.copy()
        slower = copy.execution.mode > self.execution.mode or copy.execution.max_batch < self.execution.max_batch
        return None if slower or copy.execution == self.execution else copy

    def launch(self, *parts: Packed) -> InFlightBatch:
        """Starts the evaluation of arrays (B_i, P), one after the other; what goes wrong shows when it is completed."""
        try:
            assert self.built is not None, "launched before weights were loaded"
            if sum(map(len, parts)) > self.execution.max_batch:
                return self._in_pieces(parts)
            return self.built[2].launch(*parts)
        except (RuntimeError, MemoryError) as error:
            return CompletedBatch(_without_frames(error))

    def complete(self, running: InFlightBatch, *parts: Packed) -> Outputs:
        """Waits for a batch of these parts; repeats it in fallbacks until its outputs are finite.

        Raises WeightsError where the reference is not finite either, DeviceError where no fallback is left.
        """
        while failure := _failure_of(running):
            if failure is Failure.NOT_FINITE and not _finite(self.plain(*parts)):
                raise WeightsError(f"weights version {self.version} evaluated to NaN or infinity")
            del running  # and with its last reference what it holds of the device's memory
            self._fall_back(failure, serving=True)
            running = self.launch(*parts)
        return running.wait()

    def evaluate(self, *parts: Packed) -> Outputs:
        """Logits (B, A) and values (B, V); raises as `complete` does."""
        return self.complete(self.launch(*parts), *parts)

    def outcomes(self, packed: Packed) -> NDArray[np.float32]:
        """Probabilities (B, K) of the game's outcomes for the player to move, in float32; ConfigError for a game without outcomes."""
        with torch.inference_mode():
            return self.reference.outcomes(*unpack(torch.tensor(packed), self.spec)).numpy()

    def _fall_back(self, failure: Failure | None, *, serving: bool) -> None:
        """Falls back until an execution passes the self-test."""
        while failure:
            what = f"the forward pass of {self.network.kind} weights"
            self.execution = self.engine.fall_back(self.execution, failure, what, self._shape, serving=serving)
            failure = self._try()

    def _try(self) -> Failure | None:
        """Builds what the execution asks for, gives it the weights and compares it with the reference on known observations."""
        try:
            if self.built is None or self.built[0] != self.execution:
                self.built = None  # frees its memory first
                candidates = self._candidates()
                if candidates is not None:
                    self.execution = replace(self.execution, kernels=self.engine.choose(self._shape, self._measured(candidates)))
                self.built = (self.execution, *self.engine.forward(self.reference, self.execution, self._shape))
            _, module, forward = self.built
            with self.engine.exclusive:
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

    def _differs(self, running: InFlightBatch) -> Failure | None:
        """What is wrong with an evaluation of the known observations, repeated as often as they fit."""
        if failure := _failure_of(running):
            return failure
        return None if _gap(running.wait(), self._expected) <= PROBE_TOLERANCE else Failure.WRONG  # as is NaN

    def _candidates(self) -> dict[str, GraphForward] | None:
        """By name of kernels, for the largest batch: those that pass the self-test; None where there is nothing to choose."""
        names = self.engine.to_measure(self.reference, self.execution, self._shape)
        return {name: forward for name in names if (forward := self._candidate(replace(self.execution, kernels=name)))} if names else None

    def _measured(self, candidates: Mapping[str, GraphForward]) -> dict[str, float]:
        """Seconds that the largest batch takes by each: the least of some, as others use the device, too."""
        packed = random_observations(self.spec, self.execution.max_batch)
        taken = [{name: forward.device_s(packed) for name, forward in candidates.items()} for _ in range(ROUNDS)]  # in turns
        return {name: min(times[name] for times in taken) for name in candidates}

    def _candidate(self, execution: Execution) -> GraphForward | None:
        """Its forward pass; None, and logged, where it fails the self-test."""
        try:
            _, forward = self.engine.forward(self.reference, execution, self._shape)
            assert isinstance(forward, GraphForward)
            forward.refresh(largest_only=True)
            if failure := self._test(forward):
                raise DeviceError(describe(failure))
            return forward
        except Exception as error:  # of a compiler, or of a torch that lacks it
            logs.get(__name__).warning("way_skipped", execution=str(execution), network=self.network.kind, reason=reason_of(error))
            return None

    def _in_pieces(self, parts: tuple[Packed, ...]) -> CompletedBatch:
        """Evaluates more than the execution's largest batch."""
        assert self.built is not None
        whole, step = np.concatenate(parts), self.execution.max_batch
        pieces = [self.built[2].launch(whole[start : start + step]).wait() for start in range(0, len(whole), step)]
        return CompletedBatch((np.concatenate([logits for logits, _ in pieces]), np.concatenate([values for _, values in pieces])))

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


def _failure_of(running: InFlightBatch) -> Failure | None:
    try:
        return None if running.finite() else Failure.NOT_FINITE
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
