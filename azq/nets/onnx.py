"""Networks as ONNX, as browsers and other runtimes take them: evaluation alone, the same bytes wherever they are made.

Inputs `planes` float32 (B, C, H, W) and, where the game has scalars, `scalars` float32 (B, S), both as `azq.nets.unpack` gives them;
outputs `logits` (B, A), unmasked, and `values` (B, V). Operators are those of version 17; B is open.
"""

from __future__ import annotations

import copy
import io
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from azq.nets.network import Network
from azq.nets.residual import ResNet

OPSET = 17
_TRACED_BATCH = 2
_LANES = 4  # channels that WebGPU reads at once


def to_onnx(network: Network) -> bytes:
    """A network with its weights, without its auxiliary heads."""
    spec = network.spec
    if isinstance(network, ResNet) and (read := network.stem.in_channels) > _LANES and read % _LANES:
        network = copy.deepcopy(network)
        network.stem = _WholeLanes(network.stem)  # type: ignore[assignment]
    inputs = {"planes": torch.zeros(_TRACED_BATCH, spec.planes, spec.rows, spec.cols)}
    if spec.scalars:
        inputs["scalars"] = torch.zeros(_TRACED_BATCH, spec.scalars)
    return _export(_Evaluation(network).eval(), inputs, ("logits", "values"))


class _Evaluation(nn.Module):
    """A network that is not given scalars where its game has none."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    def forward(self, planes: Tensor, scalars: Tensor | None = None) -> tuple[Tensor, Tensor]:
        none = planes.flatten(1)[:, :0]
        logits, values = self._network(planes, none if scalars is None else scalars)
        return logits, values


class _WholeLanes(nn.Module):
    """A convolution with channels of zeros up to whole lanes: on WebGPU ONNX Runtime 1.30 computes those of 6 and 9 channels wrongly."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self._more = -layer.in_channels % _LANES
        self._layer = nn.Conv2d(layer.in_channels + self._more, layer.out_channels, 3, padding=1)
        self._layer.weight.data = F.pad(layer.weight.data, (0, 0, 0, 0, 0, self._more))
        self._layer.bias = layer.bias
        self.weight = layer.weight

    def forward(self, planes: Tensor) -> Tensor:
        output: Tensor = self._layer(torch.cat((planes, torch.zeros_like(planes[:, : self._more])), 1))
        return output


def _export(module: nn.Module, inputs: dict[str, Tensor], outputs: tuple[str, ...]) -> bytes:
    """By tracing: PyTorch's newer exporter needs one package more and writes paths of the source into the file."""
    file = io.BytesIO()
    open_axes = {name: {0: "batch"} for name in (*inputs, *outputs)}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore", DeprecationWarning)  # the one that says so
        torch.onnx.export(
            module,
            (*inputs.values(),),
            file,  # type: ignore[arg-type]  # files are taken too
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=open_axes,
        )
    return file.getvalue()
