"""A small transformer over cards: one token a cell of the observation's planes, and one for the state as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from azq.errors import ConfigError
from azq.nets.network import Network
from azq.nets.spec import NetSpec

EXPANSION = 2  # hidden width of a feed-forward layer, in widths of the trunk
TOKEN_CHANNELS = 16  # of each token in the wide features


class AttentionLayer(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)) (pre-norm: Xiong et al., ICML 2020); both branches start at zero."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_a = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_b = nn.LayerNorm(width)
        self.up = nn.Linear(width, EXPANSION * width)
        self.down = nn.Linear(EXPANSION * width, width)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.kaiming_normal_(self.up.weight, nonlinearity="relu")
        for layer in (self.qkv, self.up):
            nn.init.zeros_(layer.bias)
        for layer in (self.out, self.down):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, K) to the same shape."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm_a(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        seen = _attention(*qkv.permute(2, 0, 3, 1, 4).unbind()).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.out(seen.to(x.dtype))
        fed: Tensor = self.down(F.relu(self.up(self.norm_b(x))))
        return x + fed


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention (B, heads, T, K / heads); in float32 on a CPU, whose bfloat16 kernel takes twice as long on so few tokens."""
    if q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float())


def check_heads(channels: int, heads: int) -> None:
    """Raises `ConfigError` where the channels cannot be shared out among the heads."""
    if channels % heads:
        raise ConfigError(f"network.channels = {channels} is no multiple of network.heads = {heads}; change one of them")


class Transformer(Network):
    """`blocks` layers of K = `channels` with `heads` attention heads over T = H * W + 1 tokens.

    Token 0 reads the scalars and says the value; token 1 + i reads the C bits of cell i, which is a card where a game's planes have a
    column per card. Every token has a learned embedding of its place, so nothing is assumed about neighbours.
    Raises ConfigError for a game whose planes have fewer than two cells, and for heads that do not divide the channels.
    """

    def __init__(self, spec: NetSpec, blocks: int, channels: int, heads: int, auxiliary: Sequence[str] = ()) -> None:
        super().__init__(spec, auxiliary)
        if spec.planes == 0 or spec.cells < 2:
            raise ConfigError("network.kind = 'transformer' needs a game with planes of at least two cells; set network.kind = 'mlp'")
        check_heads(channels, heads)
        self.cells = nn.Linear(spec.planes, channels, bias=False)
        self.scalars = nn.Linear(spec.scalars, channels, bias=False) if spec.scalars else None
        self.places = nn.Embedding(spec.cells + 1, channels)
        self.blocks = nn.ModuleList(AttentionLayer(channels, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(channels)
        self.squeeze = nn.Linear(channels, TOKEN_CHANNELS)
        nn.init.normal_(self.cells.weight, std=0.5)  # few bits of a cell are set, and each is to be seen beside its place
        nn.init.normal_(self.places.weight, std=0.5)
        self._make_heads(channels + TOKEN_CHANNELS * spec.cells, channels)

    def features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K + TOKEN_CHANNELS * H * W): the state's token beside some channels of all others; and the state's token alone (B, K)."""
        dtype = self.cells.weight.dtype
        cells = self.cells(planes.flatten(2).transpose(1, 2).to(dtype))
        state = cells.new_zeros(cells.shape[0], cells.shape[2]) if self.scalars is None else self.scalars(scalars.to(dtype))
        x = torch.cat((state[:, None].to(cells.dtype), cells), 1) + self.places.weight
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        state, cards = x[:, 0], F.relu(self.squeeze(x[:, 1:]))
        return torch.cat((state, cards.flatten(1).to(state.dtype)), 1), state
