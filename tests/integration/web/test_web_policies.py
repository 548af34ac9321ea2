"""policies.js against the core's packing: a tab sends what a worker writes, and reads what it wrote."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from nodejs import WEB, needs_node, node

from azq import games
from azq._core import Search
from azq.config import SearchConfig
from azq.search.search import exploring
from azq.wire.arrays import pack_record

pytestmark = needs_node


@pytest.mark.parametrize("game", ["connect_four", "blob", "backgammon"])
def test_policies_travel_from_a_tab_as_from_a_worker(game):
    search = Search(games.load(game), exploring(SearchConfig(num_simulations=4)), num_slots=1, seed=1)
    search.run_uniform(100)
    record = search.record(0)
    whole = np.ascontiguousarray(record.policies, "<f2").tobytes()
    plies, num_actions = record.policies.shape
    script = f"""
        import {{ whole, withoutZeros }} from "{WEB}/policies.js";
        const given = new Uint8Array(Buffer.from("{base64.b64encode(whole).decode()}", "base64"));
        const {{ policies, support }} = withoutZeros(given, {num_actions});
        const again = support.length ? whole(policies, support, {plies}, {num_actions}) : policies;
        console.log(JSON.stringify([policies, support, again].map((bytes) => Buffer.from(bytes).toString("base64"))));
    """
    policies, support, again = (base64.b64decode(each) for each in json.loads(node(script)))
    packed = pack_record(record)
    assert plies > 1
    assert (policies, support, again) == (packed.policies, packed.support, whole)


def test_what_does_not_fit_is_said():
    script = f"""
        import {{ whole }} from "{WEB}/policies.js";
        const said = (...given) => {{ try {{ whole(...given); return "nothing"; }} catch (error) {{ return error.message; }} }};
        const entry = Uint8Array.of(0, 60);
        console.log(JSON.stringify([said(entry, Uint8Array.of(1), 2, 8), said(entry, Uint8Array.of(3), 1, 8)]));
    """
    assert json.loads(node(script)) == ["support of 1 bytes does not fit 2 plies", "policies have 2 bytes, their support names 2 entries"]
