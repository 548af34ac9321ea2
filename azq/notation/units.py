"""What people count a game's result in: points of backgammon, points a round of Blob, the score of a game for one player."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from azq import _core
from azq.games.scores import ScoreScale, score_of

BACKGAMMON_SCALE = {"full": 3.0, "gammons": 2.0, "winloss": 1.0}  # points of a return of 1
BLOB_BONUS = 10  # a Blob score is at most 10 + cards
MILLI = 1000.0


@dataclass(frozen=True, slots=True)
class Unit:
    """One result unit a game: `scale` of it to a return of 1, losses in `loss_name`, `loss_scale` of it to a graded value of 1."""

    name: str = "result"
    scale: float = 1.0
    loss_name: str = "value"
    loss_scale: float = 1.0
    scores: ScoreScale | None = None  # of a game for one player: what a return means, in the place of `scale`

    @property
    def plain(self) -> bool:
        """Whether it gives returns as they are."""
        return self.scale == 1.0 and self.scores is None

    def convert(self, value: float) -> float:
        """A return, or a value, in this unit."""
        return self.scale * value if self.scores is None else score_of(value, self.scores)


def unit(game: _core.Game) -> Unit:
    """The unit of a game with its parameters."""
    if game.num_players() == 1 and (scores := game.scores()):
        return Unit("score", scores=scores)
    if game.name == "backgammon":
        return Unit("points", BACKGAMMON_SCALE.get(str(game.params.get("scoring", "full")), 1.0), "millipoints", MILLI)
    if game.name == "blob":
        return _blob(game.params)
    return Unit()


def _blob(params: Mapping[str, Any]) -> Unit:
    """A round scored by exact bids is worth at most 10 + cards; other forms stay in the game's own scale."""
    cards = params.get("cards")
    plain = params.get("scoring", "exact") == "exact" and params.get("returns", "own") == "own" and params.get("mode", "round") == "round"
    return Unit("points", float(BLOB_BONUS + cards)) if plain and isinstance(cards, int) else Unit()


def score_text(mean: float, half: float, sign: str = "") -> str:
    """A mean score with half of its interval, in whole numbers where scores are large; `sign="+"` for a difference. Pure."""
    digits = 0 if abs(mean) >= 100 else 3
    return f"{mean:{sign},.{digits}f} +-{half:,.{digits}f}"
