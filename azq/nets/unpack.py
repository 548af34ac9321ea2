"""Packed observations to network inputs, on whatever device holds them."""

from __future__ import annotations

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
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    bits = (packed[:, : spec.plane_bytes, None] >> shifts) & 1
    planes = bits.flatten(1)[:, : spec.planes * spec.cells].to(dtype)
    scalars = packed[:, spec.plane_bytes :].contiguous().view(torch.int8).to(dtype) * SCALAR_SCALE
    return planes.view(len(packed), spec.planes, spec.rows, spec.cols), scalars
