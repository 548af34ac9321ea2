"""Packed observations to network inputs, on whatever device holds them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from azq.nets.spec import NetSpec

SCALAR_SCALE = 1.0 / 16.0  # scalars are small counts (checkers on a point, tricks won): this keeps them of the planes' order


def unpack(packed: Tensor, spec: NetSpec, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Planes (B, C, H, W) in {0, 1} and scalars (B, S), scaled, from packed observations uint8 (B, P).

    Raises ValueError when P is not the spec's.
    """
    if packed.shape[1] != spec.packed_size:
        raise ValueError(f"packed observations of {packed.shape[1]} bytes, the network takes {spec.packed_size}")
    planes = unpack_bits(packed[:, : spec.plane_bytes], spec.planes * spec.cells).to(dtype)
    scalars = packed[:, spec.plane_bytes :].contiguous().view(torch.int8).to(dtype) * SCALAR_SCALE
    return planes.view(len(packed), spec.planes, spec.rows, spec.cols), scalars


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """The first `count` bits of each row of bytes (B, M), lowest first, as uint8 (B, count)."""
    if packed.device.type == "cpu" and not torch.compiler.is_compiling():
        return torch.from_numpy(np.unpackbits(packed.numpy(), axis=1, count=count, bitorder="little"))  # several times as fast there
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & 1).flatten(1)[:, :count]
