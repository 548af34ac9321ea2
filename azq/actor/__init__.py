"""Makes games: steps groups of games in turn over an evaluator, under a lease of the ledger."""

from azq.actor.groups import Arenas
from azq.actor.progress import Progress
from azq.actor.selfplay import SelfPlay, SliceEnd
from azq.actor.slice import Slice, Stop

__all__ = ["Arenas", "Progress", "SelfPlay", "Slice", "SliceEnd", "Stop"]
