"""What a run takes of memory at worst, and which setting makes it fit. Pure; sizes in bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NODE_BYTES, EDGE_BYTES = 64, 24  # of trees whose search does not say: a header, and an action that is legal (docs/3-search.md)
PARAMETER_BYTES = 4 * 5  # weights, gradients, two moments of the optimizer, the average that is published
TIGHT = 0.8  # of what is there: above it a warning, for other programs want some too


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that takes memory; `value` is that of the setting it grows with, in proportion."""

    what: str
    amount: int
    setting: str = ""  # empty: none makes it smaller
    value: int = 0


def tree_bytes(num_simulations: int, num_actions: int) -> int:
    """A tree at its largest, where its search does not tell: twice as many nodes as simulations, every action legal."""
    return 2 * (num_simulations + 1) * (NODE_BYTES + EDGE_BYTES * num_actions)


def total(needs: Sequence[Need]) -> int:
    return sum(need.amount for need in needs)


def fits(needs: Sequence[Need], usable: int) -> bool:
    return total(needs) <= TIGHT * usable


def advice(needs: Sequence[Need], usable: int) -> str:
    """One setting that makes it fit and its largest value that does, the one that frees most first; empty where it fits already."""
    if fits(needs, usable):
        return ""
    over = total(needs) - TIGHT * usable
    said = f"at worst {gigabytes(total(needs))} of {gigabytes(usable)} that may be used"
    for need in sorted((need for need in needs if need.setting), key=lambda need: -need.amount):
        value = math.floor(need.value * (1 - over / need.amount)) if need.amount else 0
        if value >= 1:
            return f"{said}: {need.what} takes {gigabytes(need.amount)}; set {need.setting}={value} or less"
    names = ", ".join(need.setting for need in needs if need.setting)
    return f"{said}: no setting alone makes it fit; lower several of {names}, or take a machine with more memory"


def gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.1f} MB"
