"""Weights as safetensors bytes that say what they are; never pickle."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor, nn

from azq.config import NetworkConfig
from azq.errors import WeightsError

SCHEMA = 1
_META_KEY = "azq"
MOST_HEADER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WeightsMeta:
    """What a set of weights is: which game and network it belongs to and how old it is."""

    game: str
    version: int = 0  # 0: not published
    step: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)  # plain values of azq.config.NetworkConfig
    schema: int = SCHEMA


def to_bytes(module: nn.Module, meta: WeightsMeta) -> bytes:
    """The module's weights in float32 with their description."""
    return state_to_bytes(module.state_dict(), meta)


def state_to_bytes(state: Mapping[str, Tensor], meta: WeightsMeta, dtype: torch.dtype = torch.float32) -> bytes:
    """Weights with their description, in `dtype`: half precision where they are kept small, and are read as float32 again."""
    tensors = {name: value.detach().to("cpu", dtype).contiguous() for name, value in state.items()}
    return bytes(safetensors.torch.save(tensors, {_META_KEY: json.dumps(asdict(meta), sort_keys=True)}))


def from_bytes(data: bytes) -> tuple[dict[str, Tensor], WeightsMeta]:
    """State, in float32 where the bytes have half precision, and description.

    Raises `WeightsError` when damaged, truncated, of another schema or not finite.
    """
    try:
        state: dict[str, Tensor] = safetensors.torch.load(data)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise WeightsError(f"{len(data)} bytes are not whole safetensors weights: {error}; publish them again") from None
    meta = _read_meta(data)
    for name, value in state.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise WeightsError(f"weights version {meta.version} of {meta.game}: tensor {name} holds NaN or infinity; they are refused")
    return {name: value.float() if value.dtype == torch.float16 else value for name, value in state.items()}, meta


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within it, what goes wrong with the weights of a file is a `WeightsError` that names the file."""
    try:
        yield
    except OSError as error:
        raise WeightsError(f"weights file {path} cannot be read: {error.strerror}") from None
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from None


def describe(path: Path) -> WeightsMeta:
    """What the weights in a file say of themselves; `WeightsError` where that cannot be read."""
    with naming(path), path.open("rb") as file:
        head = file.read(8)
        return _read_meta(head + file.read(min(int.from_bytes(head, "little"), MOST_HEADER_BYTES)))


def network_of(meta: WeightsMeta) -> NetworkConfig:
    """The network that weights were made for; `WeightsError` when they do not say."""
    try:
        return NetworkConfig.model_validate(meta.network)
    except ValidationError:
        raise WeightsError(f"weights of {meta.game} describe no network that this azq knows: {meta.network}") from None


def load_into(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copies a state into a module; `WeightsError` names the first tensor that does not fit, and nothing is copied then."""
    wanted = module.state_dict()
    for name, value in wanted.items():
        if name not in state:
            raise WeightsError(f"weights do not fit the network: tensor {name} is missing; compare network.kind, blocks and channels")
        if state[name].shape != value.shape:
            have, need = tuple(state[name].shape), tuple(value.shape)
            raise WeightsError(
                f"weights do not fit the network: tensor {name} is {have}, the network has {need}; compare [network] and run.params"
            )
    extra = next((name for name in state if name not in wanted), None)
    if extra is not None:
        raise WeightsError(f"weights do not fit the network: it has no tensor {extra}; compare network.kind, blocks and channels")
    module.load_state_dict(dict(state))


def fitting(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors that have name and shape of one of `own`. Pure."""
    return {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}


def _read_meta(data: bytes) -> WeightsMeta:
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        fields = json.loads(header["__metadata__"][_META_KEY])
        if fields.get("schema") != SCHEMA:
            raise WeightsError(f"weights have schema {fields.get('schema')}, this azq reads {SCHEMA}; run one version of azq on all hosts")
        return WeightsMeta(**fields)
    except (KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise WeightsError(f"safetensors without azq's description ({error}); these weights were not written by azq") from None
