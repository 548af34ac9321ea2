"""`azq balance`: whether the game of a run is fair, from the games in its folder."""

from __future__ import annotations

from collections.abc import Sequence

from azq.config import Config
from azq.console.move import folder_of
from azq.host.game_files import load_game
from azq.replay.readers import SegmentReader
from azq.status.balance import QUANTILES, Balance, ResultShare, balance

SHOWN = 20  # actions in a line


def read_balance(config: Config, run: str, most: int) -> Balance:
    """The figures of a run's newest games. Raises `NotFound` for no such run and for one without games here."""
    folder = folder_of(config, None, run)
    settings = folder.sections().run
    rules = load_game(config, settings.game, settings.params, folder.settings)
    return balance(rules, SegmentReader(folder.path / "segments").last(most))


def balance_text(found: Balance) -> str:
    """A line a figure, the trend last."""
    told = ", ".join(f"{share:.0%} {plies}" for share, plies in zip(QUANTILES, found.length, strict=True))
    whose = f" of the {found.first.games:,} games that no random plies began" if found.first.games < found.games else ""
    results = [
        f"first player         {_share(found.first)}{whose}; fair is {found.even:.3f}",
        *(f"seat {number:<16}{_share(seat)}" for number, seat in enumerate(found.seats)),
        f"without a winner     {found.draws:.1%}",
    ]
    trend = ["first player, from the oldest games to the newest", *(f"  {part.games:<19,}{_share(part)}" for part in found.trend)]
    if found.scores:
        scores = ", ".join(f"{share:.0%} {score:,.6g}" for share, score in zip(QUANTILES, found.scores, strict=True))
        results = ["fair                 does not apply: one player", f"score                {scores}"]
        means = zip(found.trend, found.mean_scores, strict=True)
        trend = ["mean score, from the oldest games to the newest", *(f"  {part.games:<19,}{mean:,.6g}" for part, mean in means)]
    lines = [
        f"games                {found.games:,}",
        *results,
        f"plies                {told}",
        f"one legal action     {found.forced:.1%} of decisions",
        f"never legal          {_actions(found.never_legal)}",
        f"legal, never played  {_actions(found.never_played)}",
        f"openings             {found.openings:,}",
        *(f"  {' '.join(map(str, each.actions)):<19}{each.share:.1%}" for each in found.commonest),
        *trend,
    ]
    return "\n".join(lines)


def _share(share: ResultShare) -> str:
    return f"{share.share:.3f} ({share.low:.3f} to {share.high:.3f})"


def _actions(actions: Sequence[int]) -> str:
    more = f" and {len(actions) - SHOWN} more: --json" if len(actions) > SHOWN else ""
    return (" ".join(map(str, actions[:SHOWN])) or "none") + more
