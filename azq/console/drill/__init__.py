"""`azq drill`: failures rehearsed on a real system, with proof that nothing was lost."""

from azq.console.drill.rehearse import Outcome, as_table, rehearse
from azq.console.drill.scenarios import Scenario, choose, load_all

__all__ = ["Outcome", "Scenario", "as_table", "choose", "load_all", "rehearse"]
