"""Networks: packed observations in, policy logits and values out; their weights as safetensors."""

from azq.nets.build import build
from azq.nets.network import Network, Outputs
from azq.nets.spec import NetSpec
from azq.nets.unpack import unpack, unpack_bits
from azq.nets.weights import WeightsMeta, from_bytes, load_into, to_bytes

__all__ = ["NetSpec", "Network", "Outputs", "WeightsMeta", "build", "from_bytes", "load_into", "to_bytes", "unpack", "unpack_bits"]
