"""Networks in whole numbers: what they evaluate to in tabs, and the hash of what shipped ones evaluate to wherever they run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from azq import games, pretrained
from azq.inference.device import native
from azq.inference.device.forward import EagerForward, buckets
from azq.inference.device.native import NativeForward, fastest_kernel
from azq.nets import Network, restore
from azq.nets.whole import has_whole_form, to_whole
from azq.parts.volunteers.model_maker import probe_positions
from azq.search.recomputation import Evaluate, Outputs

KERNELS = [kernel for kernel in (native.AVX512, native.AVX2, native.PLAIN) if kernel is not None and kernel.supported()]
POSITIONS = 400
GOLDEN = {
    "connect_four": "2be5238fc7bc6f0e89da63cefb0c0b6e4718bc02e64d4568ba04aa571e10cf66",  # a residual network that reads the parity
    "othello": "ae05e9625cb341620ad2581f665a784aad23d8213c36917188fb4602ada4a29a",  # without it
    "tic_tac_toe": "54a82ab93ae7deec220421e001dd9b5433cf14e08dbbb57468e2f5e94033324e",  # a perceptron
    "backgammon": "291b4e3a9ca8e910093999c9d1c1480bf21bbe6e0cd78ed4d41a038cad8f826e",  # with scalars and outcomes
}


def tab_forward(data: bytes, game: games.Game) -> Callable[[NDArray[np.uint8]], Outputs]:
    """What a tab evaluates packed observations (L, P) to by these weights; without a form in whole numbers in float32."""
    network = restore(data, game)
    if has_whole_form(network):
        whole = NativeForward(fastest_kernel(), network, lambda: 1)
        return lambda packed: whole.launch(packed).wait()
    eager = EagerForward(network, torch.device("cpu"), buckets(1024, per_octave=1, smallest=32))
    return lambda packed: eager.launch(packed).wait()


def evaluators(networks: Mapping[int, Network]) -> list[Evaluate]:
    """The evaluations of networks, by version, on each kernel that this machine has."""

    def on(kernel: Any) -> Evaluate:
        forwards = {version: NativeForward(kernel, network, lambda: 1) for version, network in networks.items()}
        return lambda version, packed: forwards[version].launch(packed).wait()

    return [on(kernel) for kernel in KERNELS]


def shipped(name: str) -> Network:
    """The network that azq ships for a game."""
    return restore(pretrained.verified(name).read_bytes(), games.load(name))


def positions_of(name: str) -> NDArray[np.uint8]:
    """Packed observations (POSITIONS, P)."""
    return probe_positions(games.load(name), POSITIONS)


def hash_of(outputs: Iterable[NDArray[Any]]) -> str:
    """Of logits (L, A), then values (L, V), as float32."""
    return hashlib.sha256(b"".join(output.astype("<f4").tobytes() for output in outputs)).hexdigest()


def write_whole(folder: Path) -> None:
    """Writes `<game>.whole` and `<game>.positions` of each game in `GOLDEN`."""
    for name in GOLDEN:
        (folder / f"{name}.whole").write_bytes(to_whole(shipped(name)))
        (folder / f"{name}.positions").write_bytes(positions_of(name).tobytes())
