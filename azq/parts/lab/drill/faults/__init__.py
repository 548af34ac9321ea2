"""The faults that can be made: each module enters its own with `azq.parts.lab.drill.scenarios.fault`."""

from azq.parts.lab.drill.faults import brokers, deadly, newcomers, patience, ranks, signals
from azq.parts.lab.drill.scenarios import DEEDS

__all__ = ["DEEDS", "brokers", "deadly", "newcomers", "patience", "ranks", "signals"]
