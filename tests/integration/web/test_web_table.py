"""A tab's workers play the games of a match as the verifier searches them again: each ply by the network of its mover."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from nodejs import WEB, needs_node, node
from numpy.typing import NDArray

from azq import games
from azq.config import RunSections
from azq.parts.volunteers.handouts import Returned
from azq.parts.volunteers.matches import deal_match
from azq.parts.volunteers.plausibility import SearchOrder
from azq.parts.volunteers.verifier import Verification
from azq.search.recomputation import Outputs
from azq.wire import tabs
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec

pytestmark = needs_node

# The networks of this test: the same answer everywhere, another one by version.
STORY = """
    import {{ readFileSync }} from "node:fs";
    import {{ loadCore }} from "{web}/core.js";
    import {{ Table }} from "{web}/contribute/table.js";
    import {{ fromFrame, tabGame, toFrame }} from "{web}/contribute/wire.js";
    const {{ seed, search, networks, games }} = fromFrame(Uint8Array.from(Buffer.from("{frame}", "hex")));
    const core = await loadCore(readFileSync("{web}/azq.wasm"));
    const game = core.game(networks[0].game, networks[0].params);
    const asked = {{}};
    const {{ packedSize, numActions, valueSize }} = game;
    const network = ({{ version }}) => ({{ version, network: {{ evaluate: async (packed, count) => {{
      if (packed.length !== count * packedSize) throw new Error("other leaves than were said");
      asked[version] = (asked[version] ?? 0) + count;
      return {{
        logits: Float32Array.from({{ length: count * numActions }}, (_, i) => (((i % numActions) * 7 + version * 3) % 5) / 4),
        values: new Float32Array(count * valueSize).fill(version / 16),
      }};
    }} }} }});
    const table = new Table(game, {{ seed, search }}, 3);
    table.waiting.push(...games);
    const ended = [];
    for (let leaves; (leaves = table.collect()) || table.all.length; ended.push(...table.harvest())) {{
      if (leaves) await table.evaluateByMover(networks.map(network), leaves);
    }}
    console.log(JSON.stringify([Buffer.from(toFrame({{ tag: "EvalResult", games: ended.map(tabGame) }})).toString("hex"), asked]));
"""


def evaluate(game: games.Game) -> Any:
    actions = np.arange(game.num_distinct_actions())

    def outputs(version: int, packed: NDArray[np.uint8]) -> Outputs:
        logits = np.tile((actions * 7 + version * 3) % 5 / 4, (len(packed), 1)).astype(np.float16)
        return logits, np.full((len(packed), game.value_size()), version / 16, np.float16)

    return outputs


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "backgammon", "blob", "beasty_bar"])
def test_a_tabs_match_is_what_the_verifier_finds(name: str) -> None:
    game = games.load(name)
    sections = RunSections.model_validate({"run": {"game": name}, "search": {"leaves_per_step": 1 if game.is_hidden() else 2}})
    job = Job("r:3", "r", Kind.EVAL, "browser", payload=encode(MatchSpec("weights:5", "weights:2", 4, 8, 2, 2**62 + 3)))
    match = deal_match(job, sections, game, 5)
    networks = tuple(tabs.ModelUpdate("r", name, {}, version, "", 0, b"", b"", b"", 0.0) for version in match.order.versions)
    frame = tabs.encode_tab(match.message("r", networks, [(record, b"t") for record in match.records])).hex()
    said, asked = json.loads(node(STORY.format(web=WEB, frame=frame)))
    brought = tabs.from_tab(bytes.fromhex(said))
    assert isinstance(brought, tabs.EvalResult)
    assert asked.keys() == {"5", "2"}
    handed = {record.uid: record for record in match.records}
    order = SearchOrder.of_match(game, match.search, match.order)
    found = Verification(evaluate(game), random.Random(0)).judge(
        order, 1.0, [Returned(each.record, handed[each.uid], each.spent_ms) for each in brought.games]
    )
    assert (found.refused, found.differed, found.recomputed) == ({}, 0, found.plies)
    assert found.returns.keys() == match.games.keys()
