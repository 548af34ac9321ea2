"""Small transformers over tokens: one a cell of the observation's planes, or those of each group that a game declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


class Encoder(nn.Module):
    """Attention among a group's tokens alone; `places` (T, b) says which bits of the planes each of its T tokens reads, in order."""

    places: Tensor

    def __init__(self, places: Sequence[Sequence[int]], layers: int, channels: int, heads: int) -> None:
        super().__init__()
        self.register_buffer("places", torch.tensor(places), persistent=False)
        self.bits = nn.Linear(self.places.shape[1], channels, bias=False)
        self.tokens = nn.Embedding(self.places.shape[0], channels)  # what tells one from another, which is all that is known of order
        self.layers = nn.ModuleList(AttentionLayer(channels, heads) for _ in range(layers))
        for table in (self.bits, self.tokens):
            nn.init.normal_(table.weight, std=0.5)  # as a transformer's cells and places

    def forward(self, bits: Tensor) -> Tensor:
        """All bits of the planes (B, C * H * W) to this group's tokens (B, T, K)."""
        x: Tensor = self.bits(bits[:, self.places]) + self.tokens.weight
        for layer in self.layers:
            x = layer(x)
        return x


class Structured(Network):
    """An `Encoder` for each group of tokens that the game declares, then `blocks` fusion layers of K = `channels` over all tokens.

    `encoders` says how many layers each group's has; one that it does not name has none, and its tokens begin with the fusion. The state's
    token, which says the value, comes to the fusion with the scalars and whatever bits lie in no group.
    Raises ConfigError for a game without groups, layers of a group that it does not declare, and heads that do not divide the channels.
    """

    _loose: Tensor

    def __init__(
        self, spec: NetSpec, blocks: int, channels: int, heads: int, encoders: Mapping[str, int], auxiliary: Sequence[str] = ()
    ) -> None:
        super().__init__(spec, auxiliary)
        _check_groups(spec, encoders)
        check_heads(channels, heads)
        grouped = {place for _, places in spec.token_groups for token in places for place in token}
        loose = [place for place in range(spec.planes * spec.cells) if place not in grouped]
        self.register_buffer("_loose", torch.tensor(loose, dtype=torch.int64), persistent=False)
        made = {f"of_{name}": Encoder(places, encoders.get(name, 0), channels, heads) for name, places in spec.token_groups}
        self.encoders = nn.ModuleDict(made)
        self.start = nn.Embedding(1, channels)
        others = len(loose) + spec.scalars
        self.others = nn.Linear(others, channels, bias=False) if others else None
        nn.init.normal_(self.start.weight, std=0.5)
        self.blocks = nn.ModuleList(AttentionLayer(channels, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(channels)
        self.squeeze = nn.Linear(channels, TOKEN_CHANNELS)
        tokens = sum(len(places) for _, places in spec.token_groups)
        self._make_heads(channels + TOKEN_CHANNELS * tokens, channels)

    def features(self, planes: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K + TOKEN_CHANNELS * T): the state's token beside some channels of all T others; and the state's token alone (B, K)."""
        dtype = self.start.weight.dtype
        bits = planes.flatten(1).to(dtype)
        state = self.start.weight.expand(bits.shape[0], -1)
        if self.others is not None:
            state = state + self.others(torch.cat((bits[:, self._loose], scalars.to(dtype)), 1))
        groups = [encoder(bits) for encoder in self.encoders.values()]
        x = torch.cat((state[:, None].to(groups[0].dtype), *groups), 1)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        state, tokens = x[:, 0], F.relu(self.squeeze(x[:, 1:]))
        return torch.cat((state, tokens.flatten(1).to(state.dtype)), 1), state


def _check_groups(spec: NetSpec, encoders: Mapping[str, int]) -> None:
    names = [name for name, _ in spec.token_groups]
    if not names:
        raise ConfigError(
            "network.kind = 'structured' needs a game that declares token groups, and this one declares none; "
            "declare them (docs/games/your-own.md), or set network.kind = 'transformer' or 'mlp'"
        )
    if unknown := [name for name in encoders if name not in names]:
        raise ConfigError(f"network.encoders names {unknown[0]!r}, which is no token group of the game; it declares {', '.join(names)}")
