"""The forward pass in whole numbers for CPUs with AVX512-VNNI, compiled from `azq/nets/native`; `azq._nn_avx2` is the same for CPUs with
AVX2, `azq._nn_plain` for any. All give the same bits.

Letters: B batch, P bytes of a packed observation, A actions, V values per leaf.
"""

import numpy as np
from numpy.typing import NDArray

def supported() -> bool:
    """True when this CPU has the instructions; nothing else of the module may be used otherwise."""

def multiply(rounds: int) -> int:
    """Multiplies and adds whole numbers in registers for so many rounds, as fast as this CPU does; how many products that is."""

class Network:
    """A network that `azq.nets.whole.to_whole` describes; ValueError says what is wrong with a description.

    A position's evaluation does not depend on the batch it comes in.
    """

    def __init__(self, description: bytes) -> None: ...
    def forward(self, packed: NDArray[np.uint8], logits: NDArray[np.uint16], values: NDArray[np.uint16], threads: int) -> None:
        """Evaluates packed (B, P) into the float16 bits of logits (B, A) and values (B, V); releases the GIL."""
