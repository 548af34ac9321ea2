"""What `azq bench selfplay` takes of the settings, and the share of the CPU's peak that `azq bench inference` says."""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from azq.config import Config, NetworkConfig, RunSections, load
from azq.inference.device.native import fastest_kernel
from azq.parts.lab.bench import inference, selfplay


def test_network_and_simulations_are_the_benchmarks_unless_they_are_set() -> None:
    usual = selfplay.sections_for(load(overrides=["search.c_puct=2.0"]), "othello")
    assert (usual.run.game, usual.search.num_simulations, usual.search.c_puct) == ("othello", selfplay.SIMULATIONS, 2.0)
    assert usual.network == selfplay.NETWORK
    wanted = ["search.num_simulations=90", 'network.kind="mlp"', "run.params.players=4"]
    chosen = selfplay.sections_for(load(overrides=wanted), "blob")
    assert (chosen.search.num_simulations, chosen.network.kind, chosen.run.params) == (90, "mlp", {"players": 4})


def test_the_share_of_the_peak_is_products_over_products(monkeypatch: pytest.MonkeyPatch) -> None:
    network = NetworkConfig(kind="mlp", blocks=1, channels=8)
    machine: Any = SimpleNamespace(
        sections=RunSections.model_validate({"run": {"game": "tic_tac_toe"}, "network": network}), config=Config()
    )
    monkeypatch.setattr(inference, "kernel_for", lambda *_: SimpleNamespace(multiply=lambda rounds: 1000 * rounds))
    monkeypatch.setattr(time, "thread_time", count(0.0, 2.0).__next__)  # each try takes two seconds
    figures = inference.share_of_peak(machine, 1e9)
    peak = 500 * inference.PEAK_ROUNDS
    assert figures["peak_products_per_cpu_s"] == peak
    assert figures["share_of_integer_peak"] == round(figures["products_an_evaluation"] * 1e9 / peak, 3) > 0
    monkeypatch.setattr(inference, "kernel_for", lambda *_: None)  # torch evaluates
    assert inference.share_of_peak(machine, 1e5) == {}


def test_the_kernel_counts_what_it_multiplies() -> None:
    few, many = (fastest_kernel().multiply(rounds) for rounds in (10, 30))
    assert many == 3 * few > 0
