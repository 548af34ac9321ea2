"""Makes games: steps groups of games in turn over an evaluator, under a lease of the ledger."""

from azq.actor.arenas import Arenas
from azq.actor.progress import Progress
from azq.actor.selfplay import SelfPlay, SliceEnd
from azq.actor.turn import Stop

__all__ = ["Arenas", "Progress", "SelfPlay", "SliceEnd", "Stop"]
