"""What the models of one process share: the device, and how far down the ladder of ways to use it this process is."""

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
from azq.inference.device.compiling import Compilations, can_compile
from azq.inference.device.cuda import SLOTS, CudaStreams, GraphForward, Graphs
from azq.inference.device.forward import EagerForward, Failure, Forward, buckets, describe, gpu_buckets
from azq.inference.device.placement import Placement
from azq.inference.device.ways import COMPILED, Pass, ways
from azq.nets import NetSpec, Network
from azq.nets.device import explained
from azq.nets.residual import ResNet
from azq.waiting import Backoff

SMALLEST_BATCH = 64  # leaves below which a smaller batch saves no memory worth having


class Mode(IntEnum):
    """Ways to run a network, fastest first."""

    FAST = 0  # graphs on a CUDA device, compiled kernels on a CPU
    EAGER = 1  # op by op in the same precision
    EXACT = 2  # op by op in float32 on the same device
    PLAIN = 3  # the float32 reference on the CPU


LEARNT = frozenset({Failure.OUT_OF_MEMORY, Failure.CAPTURE})  # true of all versions of a network, as long as the device is as it is
AGAIN = Backoff(60.0, 600.0)  # until the next version of such a network begins at the top again


@dataclass(frozen=True, slots=True)
class Rung:
    """How networks are run: a mode, the leaves of the largest batch, and a way to make graphs of them that is faster than torch's own."""

    mode: Mode
    max_batch: int
    way: str = ""  # in `ways`

    def lower(self, other: Rung) -> Rung:
        """The more careful of each."""
        way = self.way if self.way == other.way else ""
        return Rung(max(self.mode, other.mode), min(self.max_batch, other.max_batch), way)

    def __str__(self) -> str:
        return f"{self.way or self.mode.name.lower()}, at most {self.max_batch} leaves"


def modes_on(device_type: str) -> tuple[Mode, ...]:
    """The modes that differ on a kind of device: on the CPU, exact is plain."""
    return (Mode.FAST, Mode.EAGER, Mode.PLAIN) if device_type == "cpu" else tuple(Mode)


def after(rung: Rung, failure: Failure, modes: Sequence[Mode]) -> Rung | str:
    """Where to go from a rung on which a forward pass failed, one down, or why there is none left."""
    if failure is Failure.DEVICE_LOST:
        return "the device is lost to this process"
    if failure is Failure.OUT_OF_MEMORY and rung.max_batch >= 2 * SMALLEST_BATCH:
        return replace(rung, max_batch=rung.max_batch // 2)
    if rung.way:
        return replace(rung, way="")
    lower = [mode for mode in modes if mode > rung.mode]
    if not lower:
        return f"even the plain forward pass failed ({describe(failure)})"
    return replace(rung, mode=min(lower))


@dataclass(frozen=True, slots=True)
class Demotion:
    """Where networks of a shape begin until `until_s`, when one that fell is tried at the top again; `times` it came to that."""

    rung: Rung
    times: int
    until_s: float

    def lowered(self, rung: Rung, now_s: float) -> Demotion:
        """This one and a further fall, which counts as another only after the time of this one."""
        if now_s < self.until_s:
            return replace(self, rung=self.rung.lower(rung))
        return Demotion(rung, self.times + 1, now_s + AGAIN.pause_s(self.times + 1))


Shape = tuple[NetSpec, NetworkConfig]  # of a network; all versions of a run's weights have one, until it grows

CPU = torch.device("cpu")
LARGEST_ON_CPU = 4096  # leaves of a batch, above which a CPU gains nothing and all wait longer
SMALLEST_EXACT = 32  # leaves below which the kernels for float32 on a CPU, hence the last bits, depend on the size of the batch


class Engine:
    """Makes forward passes for a device; safe to share between threads."""

    def __init__(self, config: InferenceConfig, placement: Placement, now_s: Callable[[], float] = time.monotonic) -> None:
        self.placement = placement
        self._now_s = now_s
        on_cpu = placement.device.type == "cpu"
        self.rung = Rung(Mode.FAST, min(config.max_batch, LARGEST_ON_CPU) if on_cpu else config.max_batch)
        self.threads = placement.threads  # of the CPU, for one forward pass
        self.falls = 0
        self._compile, self._fused = config.compile is True, config.fused
        self._compilations: Compilations | None = None
        self._compiled: set[Shape] = set()  # whose ways were measured with that of torch.compile
        self._exact = config.precision == "float32"  # asked for by name: equal bits whatever is evaluated together
        self._learnt: dict[Shape, Demotion] = {}
        self._fastest: dict[Shape, str] = {}  # of the ways that were measured
        self._changing = threading.Lock()
        self._graphs: WeakValueDictionary[tuple[Shape, Rung], Graphs] = WeakValueDictionary()
        self._streams: CudaStreams | None = None
        # Held by whoever uses the device: torch's MPS has one stream, which no two threads may use at a time.
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

    def forward(self, reference: Network, rung: Rung, shape: Shape) -> tuple[Network, Forward]:
        """A forward pass of a network (float32, on the CPU), and the module whose weights it takes. Raises what the device raises."""
        sizes = self.sizes(rung)
        if rung.mode is Mode.PLAIN:
            return reference, EagerForward(reference, CPU, sizes)
        module = copy.deepcopy(reference)
        if rung.mode is Mode.FAST and isinstance(module, ResNet) and (kernel := native.kernel_for(module, self.placement)):
            return module, native.NativeForward(kernel, module, lambda: self.threads, quantised=bool(self.placement.whole))
        # On CUDA torch frees and takes memory here, which is not to meet another thread's capture.
        with self._streams.capturing if self._streams is not None else self.exclusive:
            if self._streams is not None and rung != self._top(shape):
                torch.cuda.empty_cache()  # what a higher rung held
            module = module.trunk_to(torch.float32 if rung.mode is Mode.EXACT else self.placement.dtype).to(self.placement.device)
            if rung.mode is Mode.FAST and self._streams is not None:
                return module, self._graph_forward(module, rung, shape, self._streams)
            if rung.mode is Mode.FAST and self._compile:
                module.compile(dynamic=True)
            return module, EagerForward(module, self.placement.device, sizes, self.exclusive)

    def _graph_forward(self, module: Network, rung: Rung, shape: Shape, streams: CudaStreams) -> GraphForward:
        make = self._ways(module, shape)[rung.way]
        if (graphs := self._graphs.get((shape, rung))) is None:
            graphs = Graphs(make(copy.deepcopy(module)), self.sizes(rung), streams, compiled=rung.way == COMPILED)
            self._graphs[shape, rung] = graphs
        return GraphForward(make(module), graphs)

    def _ways(self, network: Network, shape: Shape) -> Mapping[str, Callable[[Network], Pass]]:
        compiled = self._compile or (self._compilations is not None and self._compilations.done(shape))
        return ways(network, self.placement.dtype, compiled=compiled, fused=self._fused)

    def to_measure(self, network: Network, rung: Rung, shape: Shape) -> Sequence[str]:
        """The ways of a rung among which is still to be chosen; none where there is but one."""
        if self._streams is None or rung.mode is not Mode.FAST or shape in self._fastest:
            return ()
        names = tuple(self._ways(network, shape))
        if COMPILED in names:
            self._compiled.add(shape)
        return names if len(names) > 1 else ()

    def choose(self, shape: Shape, seconds: Mapping[str, float]) -> str:
        """The fastest of the ways that did not fail, by what each takes; for all networks of the shape from now on."""
        if seconds:
            self._fastest[shape] = fastest = min(seconds, key=seconds.__getitem__)
            in_ms = {way or "plain": round(taken_s * 1e3, 3) for way, taken_s in seconds.items()}
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

    def sizes(self, rung: Rung) -> tuple[int, ...]:
        if rung.mode is not Mode.PLAIN and self.placement.device.type != "cpu":
            return gpu_buckets(rung.max_batch)
        return buckets(rung.max_batch, per_octave=8, smallest=SMALLEST_EXACT if self._exact else 1)

    def rung_for(self, shape: Shape) -> Rung:
        """Where networks of a shape begin: at the top, or where they fell to not long ago."""
        learnt, top = self._learnt.get(shape), self._top(shape)
        return top.lower(learnt.rung) if learnt and self._now_s() < learnt.until_s else top

    def may_rise(self, rung: Rung, shape: Shape) -> bool:
        """Whether a network that fell to a rung waited long enough to be tried at the top again, or was compiled meanwhile."""
        if self._compilations is not None and shape not in self._compiled and self._compilations.done(shape):
            self._fastest.pop(shape, None)
            return True
        learnt = self._learnt.get(shape)
        return learnt is not None and self._now_s() >= learnt.until_s and rung != self._top(shape)

    def _top(self, shape: Shape) -> Rung:
        return replace(self.rung, way=self._fastest.get(shape, ""))

    def fall(self, rung: Rung, failure: Failure, what: str, shape: Shape, *, serving: bool) -> Rung:
        """The rung below, for a network that failed on this one; DeviceError, naming `what`, where there is none.

        While others wait (`serving`), one that needs no graphs: to record them takes long.
        Memory and graphs are learnt for networks of this shape alone, a run's enormous one is to slow no other down, and for a while:
        what else was on the device may be gone. The rest may be one version's own, and the next begins at the top.
        """
        lower = after(rung, failure, modes_on(self.placement.device.type))
        if isinstance(lower, str):
            reason = f"{what} on {self.placement.device}: {lower}; others take its requests over"
            raise DeviceError(f"{reason}. Look at the device (nvidia-smi, dmesg); a restart makes a new context")
        self._log.error("forward_pass_failed", what=what, failure=describe(failure), rung=str(rung), next=str(lower))
        with self._changing:
            self.falls += 1
            top = self._top(shape)
            learnt = self._learnt.get(shape, Demotion(top, 0, 0.0))
            self._learnt[shape] = learnt.lowered(lower if failure in LEARNT else top, self._now_s())
        return lower.lower(Rung(Mode.EAGER, lower.max_batch)) if serving and self._streams is not None else lower


def fastest_layout(module: Network) -> Network:
    """The network with its convolutions' weights channels last: on CPUs a tenth to a half faster, on GPUs what tensor cores take."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module
