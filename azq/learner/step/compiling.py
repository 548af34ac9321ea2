"""The network's passes compiled by torch where that is faster than op by op: measured on the spot, for it depends on device and network."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

from azq import logs
from azq.nets import Network, Outputs
from azq.process.liveness import patient

LONGEST_S = 120.0  # in which nothing else is done
WARM_UPS = 2  # in which kernels are compiled, or searched for
TIMED = 5

log = logs.get(__name__)


def compile_where_faster(module: Network, rows: int, dtype: torch.dtype | None, *, dynamic: bool) -> str:
    """Compiles `forward_all` where that makes passes of so many rows faster; returns a note for operators.

    `dynamic`: for batches of any size. Gradients are gone when this returns.
    """
    plain = module.forward_all
    try:
        torch._dynamo.reset()  # kernels of a smaller network are needed no more
        compiled = torch.compile(plain, dynamic=dynamic)
        with patient(LONGEST_S):
            op_by_op_s, compiled_s = _measured((plain, compiled), module, rows, dtype)
    except Exception as error:  # of torch, its compiler or the system's: training goes on without
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        log.warning("compile_failed", reason=reason, remedy="trains op by op; set learner.compile = false, or see that a compiler is there")
        return f"trains op by op: {reason}"
    finally:
        module.zero_grad(set_to_none=True)
    log.info("compiled", step_ms=round(1e3 * compiled_s, 2), op_by_op_ms=round(1e3 * op_by_op_s, 2), used=compiled_s < op_by_op_s)
    if compiled_s < op_by_op_s:
        module.forward_all = compiled  # type: ignore[method-assign]
    return ""


def _measured(ways: Sequence[Callable[[Tensor, Tensor], Outputs]], module: Network, rows: int, dtype: torch.dtype | None) -> list[float]:
    """Seconds of both passes by each way, in turns; medians."""
    device, spec = module.policy.weight.device, module.spec
    planes = torch.zeros(rows, spec.planes, spec.rows, spec.cols, device=device)
    scalars = torch.zeros(rows, spec.scalars, device=device)
    taken_s: list[list[float]] = [[] for _ in ways]
    for _ in range(WARM_UPS + TIMED):
        for way, times in zip(ways, taken_s, strict=True):
            start = time.perf_counter()
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                outputs = way(planes, scalars)
            loss = torch.stack([output.float().square().mean() for output in outputs if output is not None]).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()  # returns when the device is done
            times.append(time.perf_counter() - start)
    return [median(times[WARM_UPS:]) for times in taken_s]
