"""The faults that can be made: each module enters its own with `azq.drill.scenarios.fault`."""

from azq.drill.faults import brokers, deadly, newcomers, patience, ranks, signals
from azq.drill.scenarios import DEEDS

__all__ = ["DEEDS", "brokers", "deadly", "newcomers", "patience", "ranks", "signals"]
