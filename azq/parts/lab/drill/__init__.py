"""`azq drill`: failures rehearsed on a real system, with proof that nothing was lost."""

from azq.parts.lab.drill.chaos import ChaosPlan, run_chaos
from azq.parts.lab.drill.outcome import Outcome, Rehearsal, as_table
from azq.parts.lab.drill.rehearse import GAME, Intent, rehearse
from azq.parts.lab.drill.scenarios import Scenario, choose, load_all

__all__ = ["GAME", "ChaosPlan", "Intent", "Outcome", "Rehearsal", "Scenario", "as_table", "choose", "load_all", "rehearse", "run_chaos"]
