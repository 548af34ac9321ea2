"""The forward pass of small residual networks on CPUs with AVX512-BF16 and AVX512-VNNI, compiled from `azq/nets/native`; `azq._nn_avx2` is
the same for CPUs with AVX2.

Letters: B batch, P bytes of a packed observation, A actions, V values per leaf.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def supported() -> bool:
    """True when this CPU has the instructions; nothing else of the module may be used otherwise."""

class ResNet:
    """azq.nets.residual.ResNet without scalars. Weights and activations in bfloat16 (AVX2: float32), sums in float32.

    Quantised, the blocks' convolutions multiply bytes (AVX2: 16 bits), scaled by each position's own largest activation.

    A position's evaluation does not depend on the batch it comes in. ValueError for shapes it does not take.
    """

    def __init__(
        self,
        *,
        planes: int,
        rows: int,
        cols: int,
        actions: int,
        values: int,
        blocks: int,
        channels: int,
        policy_channels: int,
        value_channels: int,
        value_hidden: int,
        quantised: bool = False,
        action_planes: int = 0,  # of global heads; 0: flat ones
        by_column: bool = False,
        parity: bool = False,
    ) -> None: ...
    def load(self, tensors: Sequence[NDArray[np.float32]]) -> None:
        """Weight and bias of stem, blocks' a and b, squeeze, policy, what is beyond its board, value_hidden, value.

        ValueError leaves the old ones in place.
        """
    def forward(self, packed: NDArray[np.uint8], logits: NDArray[np.uint16], values: NDArray[np.uint16], threads: int) -> None:
        """Evaluates packed (B, P) into the float16 bits of logits (B, A) and values (B, V); releases the GIL."""
