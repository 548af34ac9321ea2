"""Evaluators follow what was promoted."""

from __future__ import annotations

import pytest
from inference_doubles import CONFIG, RUN, SPEC, Shelf, ask, make_server, observations, serving, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.clock import now_ms
from azq.inference.ask.client import StreamEvaluator
from azq.inference.ask.local import CatalogSource
from azq.inference.device.engine import Engine
from azq.inference.device.model import Model
from azq.inference.weights import WeightCatalog
from azq.wire import codec, keys
from azq.wire.messages import LATEST, PromotionEvent


@pytest.fixture
def bus():
    return MemoryBus()


def client_of(bus):
    return StreamEvaluator(bus, RUN, "c1", num_actions=SPEC.num_actions, value_size=SPEC.value_size)


def promote(bus, version, deed="promoted", at_ms=0):
    bus.publish(keys.promotions(RUN), codec.encode(PromotionEvent(version, deed, "", "", at_ms)))


def test_what_was_promoted_serves_and_not_the_newest(bus):
    shelf = Shelf(bus)
    for version in (1, 2, 3):
        shelf.publish(version, weights(version, version=version))
    server, client, packed = make_server(bus, bus, shelf), client_of(bus), observations(16)

    def serves(version):
        until(lambda: ask(client, packed).weight_version == version, f"version {version} serves")

    with serving(server):
        serves(3)
        promote(bus, 1, "pinned", now_ms())
        serves(1)
        assert server.stats.weight_switch_s < PATIENCE_S  # since the promotion, not since the publication
        shelf.publish(4, weights(4, version=4))
        assert ask(client, packed, 4).weight_version == 4
        assert ask(client, packed).weight_version == 1
        promote(bus, 9, "pinned")  # never published: what serves stays
        promote(bus, 9, "unpinned")
        serves(4)
        promote(bus, 2)
        serves(2)


def test_where_versions_are_promoted_the_first_serves_until_one_was(bus):
    shelf = Shelf(bus)
    catalog = WeightCatalog(bus, RUN, gated=True)
    source = CatalogSource(catalog, lambda network: Model(SPEC, network, Engine(CONFIG)), shelf.fetch(None), 2)
    for version in (1, 2, 3):
        shelf.publish(version, weights(version, version=version))
    assert source(LATEST).version == 1
    promote(bus, 3)
    catalog.refresh()
    assert (source(LATEST).version, catalog.find(LATEST).version, source(2).version) == (3, 3, 2)
