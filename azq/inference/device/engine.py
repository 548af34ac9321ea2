"""What the models of one process share: the device, how networks are executed on it, and the fallbacks where that fails."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import IntEnum
from weakref import WeakValueDictionary

import torch

from azq import logs
from azq.config import InferenceConfig, NetworkConfig
from azq.errors import DeviceError
from azq.inference.device import native
from azq.inference.device.cuda import SLOTS, CudaStreams, GraphForward, Graphs
from azq.inference.device.forward import EagerForward, Failure, Forward, buckets, describe, gpu_buckets
from azq.inference.device.kernels import COMPILED, Compilations, Pass, can_compile, kernel_choices
from azq.nets import NetSpec, Network
from azq.nets.device import Placement, explained, place
from azq.waiting import Backoff

SMALLEST_BATCH = 64  # leaves below which a smaller batch saves no memory worth having


class Mode(IntEnum):
    """Execution modes, fastest first."""

    FAST = 0  # graphs on a CUDA device, compiled kernels on a CPU
    EAGER = 1  # op by op in the same precision
    EXACT = 2  # op by op in float32 on the same device
    PLAIN = 3  # the float32 reference on the CPU


PERSISTENT = frozenset({Failure.OUT_OF_MEMORY, Failure.CAPTURE})  # true of all versions of a network, as long as the device is as it is
AGAIN = Backoff(60.0, 600.0)  # until the next version of such a network is executed the best way again


@dataclass(frozen=True, slots=True)
class Execution:
    """How networks are executed: a mode, the leaves of the largest batch, and the kernels of graphs, where they are not torch's own."""

    mode: Mode
    max_batch: int
    kernels: str = ""  # of `kernel_choices`

    def safer(self, other: Execution) -> Execution:
        """The more careful of each."""
        kernels = self.kernels if self.kernels == other.kernels else ""
        return Execution(max(self.mode, other.mode), min(self.max_batch, other.max_batch), kernels)

    def __str__(self) -> str:
        return f"{self.kernels or self.mode.name.lower()}, at most {self.max_batch} leaves"


def modes_on(device_type: str) -> tuple[Mode, ...]:
    """The modes that differ on a kind of device: on the CPU, exact is plain."""
    return (Mode.FAST, Mode.EAGER, Mode.PLAIN) if device_type == "cpu" else tuple(Mode)


def fallback_after(execution: Execution, failure: Failure, modes: Sequence[Mode]) -> Execution | str:
    """The fallback from an execution in which a forward pass failed, or why there is none."""
    if failure is Failure.DEVICE_LOST:
        return "the device is lost to this process"
    if failure is Failure.OUT_OF_MEMORY and execution.max_batch >= 2 * SMALLEST_BATCH:
        return replace(execution, max_batch=execution.max_batch // 2)
    if execution.kernels:
        return replace(execution, kernels="")
    lower = [mode for mode in modes if mode > execution.mode]
    if not lower:
        return f"even the plain forward pass failed ({describe(failure)})"
    return replace(execution, mode=min(lower))


@dataclass(frozen=True, slots=True)
class Demotion:
    """The fallback of networks of a shape until `until_s`, when the best execution is tried again; `times` it came to that."""

    execution: Execution
    times: int
    until_s: float

    def extended(self, execution: Execution, now_s: float) -> Demotion:
        """This one and a further fallback, which counts as another only after the time of this one."""
        if now_s < self.until_s:
            return replace(self, execution=self.execution.safer(execution))
        return Demotion(execution, self.times + 1, now_s + AGAIN.pause_s(self.times + 1))


Shape = tuple[NetSpec, NetworkConfig]  # of a network; all versions of a run's weights have one

CPU = torch.device("cpu")
LARGEST_ON_CPU = 4096  # leaves of a batch, above which a CPU gains nothing and all wait longer
SMALLEST_EXACT = 32  # leaves below which the kernels for float32 on a CPU, hence the last bits, depend on the size of the batch


class Engine:
    """Makes forward passes for a device; safe to share between threads."""

    def __init__(self, config: InferenceConfig, placement: Placement | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.placement = placement = placement or place(config)
        self._now_s = now_s
        on_cpu = placement.device.type == "cpu"
        self.execution = Execution(Mode.FAST, min(config.max_batch, LARGEST_ON_CPU) if on_cpu else config.max_batch)
        self.threads = placement.threads  # of the CPU, for one forward pass
        self.fallbacks = 0
        self._compilations: Compilations | None = None
        self._compiled: set[Shape] = set()  # whose kernels were measured with those of torch.compile
        self._exact = config.precision == "float32"  # asked for by name: equal bits whatever is evaluated together
        self._demotions: dict[Shape, Demotion] = {}
        self._fastest: dict[Shape, str] = {}  # of the kernels that were measured
        self._changing = threading.Lock()
        self._graphs: WeakValueDictionary[tuple[Shape, Execution], Graphs] = WeakValueDictionary()
        self._streams: CudaStreams | None = None
        # Held while the device is used: torch's MPS has one stream, which no two threads may use at a time.
        self.exclusive: AbstractContextManager[object] = threading.RLock() if placement.device.type == "mps" else nullcontext()
        if placement.device.type == "cuda":
            try:
                self._streams = CudaStreams(placement.device, search=not self._exact)  # what is found may differ from thread to thread
            except RuntimeError as error:
                raise DeviceError(f"inference on {placement.device} cannot begin: {explained(error)}") from None
            if config.compile == "auto" and can_compile():
                self._compilations = Compilations(config.model_copy(update={"device": str(placement.device)}))
            # For the whole process. Float32 is what a failed bfloat16 falls back to, so it is to be float32 and not 19 bits of it.
            torch.backends.cudnn.allow_tf32 = False
        self._log = logs.get(__name__)

    def forward(self, reference: Network, execution: Execution, shape: Shape) -> tuple[Network, Forward]:
        """A forward pass of a network (float32, on the CPU), and the module whose weights it takes. Raises what the device raises."""
        sizes = self.sizes(execution)
        if execution.mode is Mode.PLAIN:
            return reference, EagerForward(reference, CPU, sizes)
        module = copy.deepcopy(reference)
        if execution.mode is Mode.FAST and (kernel := native.kernel_for(module, self.placement)):
            return module, native.NativeForward(kernel, module, lambda: self.threads)
        # On CUDA torch frees and takes memory here, which is not to meet another thread's capture.
        with self._streams.capturing if self._streams is not None else self.exclusive:
            if self._streams is not None and execution != self._best(shape):
                torch.cuda.empty_cache()  # what a faster execution held
            module = module.trunk_to(torch.float32 if execution.mode is Mode.EXACT else self.placement.dtype).to(self.placement.device)
            if execution.mode is Mode.FAST and self._streams is not None:
                return module, self._graph_forward(module, execution, shape, self._streams)
            if execution.mode is Mode.FAST and self.config.compile is True:
                module.compile(dynamic=True)
            return module, EagerForward(module, self.placement.device, sizes, self.exclusive)

    def _graph_forward(self, module: Network, execution: Execution, shape: Shape, streams: CudaStreams) -> GraphForward:
        make = self._kernels(module, shape)[execution.kernels]
        if (graphs := self._graphs.get((shape, execution))) is None:
            graphs = Graphs(make(copy.deepcopy(module)), self.sizes(execution), streams, compiled=execution.kernels == COMPILED)
            self._graphs[shape, execution] = graphs
        return GraphForward(make(module), graphs)

    def _kernels(self, network: Network, shape: Shape) -> Mapping[str, Callable[[Network], Pass]]:
        compiled = self.config.compile is True or (self._compilations is not None and self._compilations.done(shape))
        return kernel_choices(network, self.placement.dtype, compiled=compiled, fused=self.config.fused)

    def to_measure(self, network: Network, execution: Execution, shape: Shape) -> Sequence[str]:
        """The kernels that an execution may have and of which none is chosen yet; nothing where there is but one choice."""
        if self._streams is None or execution.mode is not Mode.FAST or shape in self._fastest:
            return ()
        names = tuple(self._kernels(network, shape))
        if COMPILED in names:
            self._compiled.add(shape)
        return names if len(names) > 1 else ()

    def choose(self, shape: Shape, seconds: Mapping[str, float]) -> str:
        """The fastest of the kernels that did not fail, by the seconds of a batch; for all networks of the shape from now on."""
        if seconds:
            self._fastest[shape] = fastest = min(seconds, key=seconds.__getitem__)
            in_ms = {name or "plain": round(taken_s * 1e3, 3) for name, taken_s in seconds.items()}
            self._log.info("way_chosen", network=shape[1].kind, way=fastest or "plain", in_ms=in_ms)
        return self._fastest.get(shape, "")

    @property
    def in_flight(self) -> int:
        """Batches to keep under way, so that a device has the next one when it ends one; a CPU ends each before its launch returns."""
        return SLOTS if self._streams is not None else 1

    @property
    def device_s(self) -> float:
        """Seconds in which a GPU ran some batch, as it says itself; 0 on the CPU and op by op."""
        return self._streams.clock.busy_s if self._streams is not None else 0.0

    @property
    def doing(self) -> str:
        """What loading waits for: `recording graphs: 3 of 20`; mostly nothing."""
        return self._streams.progress if self._streams is not None else ""

    def sizes(self, execution: Execution) -> tuple[int, ...]:
        if execution.mode is not Mode.PLAIN and self.placement.device.type != "cpu":
            return gpu_buckets(execution.max_batch)
        return buckets(execution.max_batch, per_octave=8, smallest=SMALLEST_EXACT if self._exact else 1)

    def execution_for(self, shape: Shape) -> Execution:
        """The best execution for networks of a shape, or their fallback of not long ago."""
        demotion, best = self._demotions.get(shape), self._best(shape)
        return best.safer(demotion.execution) if demotion and self._now_s() < demotion.until_s else best

    def may_recover(self, execution: Execution, shape: Shape) -> bool:
        """Whether a network in a fallback waited long enough for the best execution to be tried again, or was compiled meanwhile."""
        if self._compilations is not None and shape not in self._compiled and self._compilations.done(shape):
            self._fastest.pop(shape, None)
            return True
        demotion = self._demotions.get(shape)
        return demotion is not None and self._now_s() >= demotion.until_s and execution != self._best(shape)

    def _best(self, shape: Shape) -> Execution:
        return replace(self.execution, kernels=self._fastest.get(shape, ""))

    def fall_back(self, execution: Execution, failure: Failure, what: str, shape: Shape, *, serving: bool) -> Execution:
        """The fallback for a network whose execution failed; DeviceError, naming `what`, where there is none.

        While others wait (`serving`), one that needs no graphs: to record them takes long.
        Out of memory and refused graphs demote networks of this shape alone, a run's enormous one is to slow no other down, and for a
        while: what else was on the device may be gone. The rest may be one version's own: the next has the best execution.
        """
        fallback = fallback_after(execution, failure, modes_on(self.placement.device.type))
        if isinstance(fallback, str):
            reason = f"{what} on {self.placement.device}: {fallback}; others take its requests over"
            raise DeviceError(f"{reason}. Look at the device (nvidia-smi, dmesg); a restart makes a new context")
        self._log.error("forward_pass_failed", what=what, failure=describe(failure), execution=str(execution), next=str(fallback))
        with self._changing:
            self.fallbacks += 1
            best = self._best(shape)
            demotion = self._demotions.get(shape, Demotion(best, 0, 0.0))
            self._demotions[shape] = demotion.extended(fallback if failure in PERSISTENT else best, self._now_s())
        return fallback.safer(Execution(Mode.EAGER, fallback.max_batch)) if serving and self._streams is not None else fallback


def fastest_layout(module: Network) -> Network:
    """The network with its convolutions' weights channels last: on CPUs a tenth to a half faster, on GPUs what tensor cores take."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module
