"""The faults that can be made: each module registers its own with `azq.parts.lab.drill.scenarios.fault`."""

from azq.parts.lab.drill.faults import brokers, pauses, signals
from azq.parts.lab.drill.scenarios import INJECTORS

__all__ = ["INJECTORS", "brokers", "pauses", "signals"]
