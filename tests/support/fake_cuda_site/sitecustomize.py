"""For processes with this folder on their PYTHONPATH: the fake CUDA device takes torch's place as soon as torch is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

sys.path.append(str(Path(__file__).parent.parent))


def _fake_torch(_module: ModuleType) -> None:
    from fake_cuda import FakeCuda

    FakeCuda().install()


def _fake_network(module: ModuleType) -> None:
    from fake_cuda import unpack_bits

    vars(module)["unpack_bits"] = unpack_bits


class After(MetaPathFinder):
    """Has something done after a module was imported."""

    def __init__(self, todo: dict[str, Callable[[ModuleType], None]]) -> None:
        self._todo = todo

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in self._todo:
            return None
        then = self._todo.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_then(module: ModuleType) -> None:
            run(module)
            then(module)

        spec.loader.exec_module = run_then  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, After({"torch": _fake_torch, "azq.nets.network": _fake_network}))
