"""What training asks of `torch.cuda`, without a GPU: refused where torch refuses, tensors on the device are tensors of the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

FACTORIES = ("zeros", "empty", "empty_like", "arange", "tensor", "as_tensor")
QUERIES = 2  # that an event answers with no


class FakeEvent:
    """A mark on the queue of the device that its thread has chosen."""

    def __init__(self, *, enable_timing: bool = False, blocking: bool = False) -> None:
        self.is_timed, self.stream, self.queries = enable_timing, "", 0

    def record(self, stream: str = "") -> None:
        self.stream, self.queries = stream or CHOSEN.stream, 0

    def query(self) -> bool:
        self.queries += 1
        return self.queries > QUERIES

    def synchronize(self) -> None:
        self.queries = QUERIES

    def elapsed_time(self, end: FakeEvent) -> float:
        if not (self.is_timed and end.is_timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.stream and self.stream == end.stream):
            raise RuntimeError("CUDA error: invalid resource handle")  # not recorded, or on two devices
        if end.queries < QUERIES:
            raise RuntimeError("CUDA error: device not ready")
        return 1.0


class _Chosen(threading.local):
    stream = "stream of cuda:0"


CHOSEN = _Chosen()


class FakeCuda:
    """Some GPUs; `asked` names what was called with a device."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.asked: list[tuple[str, torch.device]] = []

    def _checked(self, what: str, device: Any) -> torch.device:
        if not isinstance(device, torch.device) or device.index is None:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        if device.index >= self.devices:
            raise RuntimeError("CUDA error: invalid device ordinal")
        self.asked.append((what, device))
        return device

    def set_device(self, device: Any) -> None:
        CHOSEN.stream = f"stream of {self._checked('set_device', device)}"

    def current_stream(self, device: Any) -> str:
        return f"stream of {self._checked('current_stream', device)}"

    def synchronize(self, device: Any) -> None:
        self._checked("synchronize", device)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name, double in {
            "is_available": lambda: True,
            "device_count": lambda: self.devices,
            "is_bf16_supported": lambda: True,
            "set_device": self.set_device,
            "current_stream": self.current_stream,
            "synchronize": self.synchronize,
            "Event": FakeEvent,
        }.items():
            patch.setattr(torch.cuda, name, double)
        for name in FACTORIES:
            patch.setattr(torch, name, self._made(getattr(torch, name)))
        patch.setattr(torch.Tensor, "to", self._moved(torch.Tensor.to))
        patch.setattr(CHOSEN, "stream", CHOSEN.stream)

    def _made(self, make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*args: Any, device: Any = None, pin_memory: bool = False, **named: Any) -> torch.Tensor:
            return make(*args, **named, **({} if device is None else {"device": self._there(device)}))

        return made

    def _moved(self, to: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def moved(tensor: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
            named = {name: self._there(value) for name, value in named.items()}
            return to(tensor, *(self._there(value) for value in args), **named)

        return moved

    def _there(self, value: Any) -> Any:
        is_cuda = isinstance(value, torch.device | str) and str(value).startswith("cuda")
        if is_cuda:
            self._checked("memory", torch.device(value))
        return torch.device("cpu") if is_cuda else value
