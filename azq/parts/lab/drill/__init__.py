"""`azq drill`: failures rehearsed on a real system, with proof that nothing was lost."""

from azq.parts.lab.drill.outcome import Outcome, Rehearsal, as_table
from azq.parts.lab.drill.rehearse import GAME, Intent, rehearse
from azq.parts.lab.drill.scenarios import Scenario, choose, load_all
from azq.parts.lab.drill.storm import Storm, weather

__all__ = ["GAME", "Intent", "Outcome", "Rehearsal", "Scenario", "Storm", "as_table", "choose", "load_all", "rehearse", "weather"]
