"""Networks compiled by a process beside the worker, which then loads the kernels from the cache on disk, in seconds.

In the worker torch's compiler would hold the interpreter for minutes, beside the thread that serves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import msgspec

from azq import logs
from azq.config import InferenceConfig, NetworkConfig
from azq.errors import reason_of
from azq.inference.device.kernels import COMPILED
from azq.nets import NetSpec, build
from azq.process.start import PYTHON, bound_to_this, die_with_parent

COMMAND = (*PYTHON, "-m", __name__)


def can_compile() -> bool:
    """Whether torch's compiler works for GPUs here: it writes Triton, whose launchers a C compiler builds."""
    return find_spec("triton") is not None and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))


class Compilations:
    """Of shapes of networks, each by a process; used by one thread."""

    def __init__(self, config: InferenceConfig) -> None:
        self._config = config.model_copy(update={"compile": True})
        self._processes: dict[tuple[NetSpec, NetworkConfig], subprocess.Popen[bytes] | None] = {}

    def done(self, shape: tuple[NetSpec, NetworkConfig]) -> bool:
        """Whether the shape's kernels are in the cache; the first call begins with them. One that fails is not tried again."""
        if shape not in self._processes:
            try:
                self._processes[shape] = self._begin(shape)
            except OSError as error:  # no memory, no room for processes: nothing that serving needs
                self._processes[shape] = None
                logs.get(__name__).warning("not_compiled", network=shape[1].kind, reason=reason_of(error))
        process = self._processes[shape]
        return process is not None and process.poll() == 0

    def _begin(self, shape: tuple[NetSpec, NetworkConfig]) -> subprocess.Popen[bytes]:
        task = msgspec.json.encode((shape[0], shape[1].model_dump(mode="json"), self._config.model_dump(mode="json")))
        return subprocess.Popen([*COMMAND, task.decode()], **bound_to_this(os.environ))


def main() -> None:
    """The process: compiles what its one argument describes, as the worker would."""
    from azq.inference.device.engine import Engine, fastest_layout
    from azq.inference.device.placement import place

    logs.setup("compiling")
    die_with_parent()
    spec, network, settings = msgspec.json.decode(sys.argv[1], type=tuple[NetSpec, dict[str, object], dict[str, object]])
    shape, config = (spec, NetworkConfig.model_validate(network)), InferenceConfig.model_validate(settings)
    engine = Engine(config, place(config))
    reference = fastest_layout(build(shape[1], spec, seed=0).eval().requires_grad_(False))
    engine.forward(reference, replace(engine.execution, kernels=COMPILED), shape)[1].refresh()


if __name__ == "__main__":
    main()
