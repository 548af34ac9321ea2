"""What a tab's workers play, in self-play and in matches, is to the last bit what servers of every kind find when they search it again."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nodejs import WEB, needs_node, node
from numpy.typing import NDArray
from whole_networks import evaluators, shipped

from azq import games
from azq.config import RunSections
from azq.nets.whole import to_whole
from azq.parts.volunteers.handouts import Returned, Terms
from azq.parts.volunteers.hub import tab_search
from azq.parts.volunteers.matches import deal_match
from azq.parts.volunteers.plausibility import SearchOrder
from azq.parts.volunteers.verifier import Verification
from azq.search.recomputation import Outputs
from azq.search.replay import EQUAL, RecordedGame, replay
from azq.wire import tabs
from azq.wire.arrays import unpack_record
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, MatchSpec

pytestmark = needs_node

HEAD = """
    import {{ readFileSync }} from "node:fs";
    import {{ loadCore }} from "{web}/core.js";
    import {{ Table }} from "{web}/contribute/table.js";
    import {{ fromFrame, tabGame, toFrame }} from "{web}/contribute/wire.js";
    const core = await loadCore(readFileSync("{web}/azq.wasm"));
    const play = async (table, games, evaluate) => {{
      const ended = [];
      table.waiting.push(...games);
      for (let leaves; (leaves = table.collect()) || table.all.length; ended.push(...table.harvest())) if (leaves) await evaluate(leaves);
      return (tag) => Buffer.from(toFrame({{ tag, games: ended.map(tabGame) }})).toString("hex");
    }};
"""
# The networks of this test: the same answer everywhere, another one by version.
MATCH = """
    const {{ seed, search, networks, games }} = fromFrame(Uint8Array.from(Buffer.from("{frame}", "hex")));
    const game = core.game(networks[0].game, networks[0].params);
    const evaluated = {{}};
    const {{ packedSize, numActions, valueSize }} = game;
    const network = ({{ version }}) => ({{ version, network: {{ evaluate: async (packed, count) => {{
      if (packed.length !== count * packedSize) throw new Error("other leaves than were announced");
      evaluated[version] = (evaluated[version] ?? 0) + count;
      return {{
        logits: Float32Array.from({{ length: count * numActions }}, (_, i) => (((i % numActions) * 7 + version * 3) % 5) / 4),
        values: new Float32Array(count * valueSize).fill(version / 16),
      }};
    }} }} }});
    const table = new Table(game, {{ seed, search }}, 3);
    const messages = await play(table, games, (leaves) => table.evaluateByMover(networks.map(network), leaves));
    console.log(JSON.stringify([messages("EvalResult"), evaluated]));
"""


def answers(game: games.Game) -> Any:
    actions = np.arange(game.num_distinct_actions())

    def outputs(version: int, packed: NDArray[np.uint8]) -> Outputs:
        logits = np.tile((actions * 7 + version * 3) % 5 / 4, (len(packed), 1)).astype(np.float16)
        return logits, np.full((len(packed), game.value_size()), version / 16, np.float16)

    return outputs


SELFPLAY = """
    const {{ seed, search, version, games }} = fromFrame(Uint8Array.from(Buffer.from("{frame}", "hex")));
    const game = core.game("{name}"), memory = [];
    for (let round = 0; round < 16; round++) {{
      const network = core.network(readFileSync("{network}")), table = new Table(game, {{ seed, search }}, 2);
      const messages = await play(table, games, (leaves) => table.evaluate({{ network, version }}, leaves));
      if (!round) console.log(messages("GamesComplete"));
      table.free();
      await network.close();
      memory.push(core.memoryBytes());
    }}
    console.log(JSON.stringify(memory));
"""


@pytest.mark.parametrize(("name", "search"), [("connect_four", {}), ("connect_four", {"algorithm": "puct"}), ("backgammon", {})])
def test_a_tabs_game_is_replayed_to_the_last_bit_on_every_kind_of_machine(name: str, search: dict[str, Any], tmp_path: Path) -> None:
    module = shipped(name)
    values = {"run": {"game": name, "seed": 2**62 + 3}, "search": {"num_simulations": 16, **search}}
    sections = RunSections.model_validate(values | {"selfplay": {"random_opening_plies": 2}})
    game, settings, lucks = games.load(name), tab_search(sections), {7: 2**51 + 9, 8: 2**40 + 1, 9: 0}
    (tmp_path / "network").write_bytes(to_whole(module))
    ordered = settings.model_dump(exclude={"schedule"}) | {"random_opening_plies": 2}
    handed = tuple(tabs.Handed(uid, b"t", luck=luck) for uid, luck in lucks.items())
    frame = tabs.encode_tab(tabs.PlayGames("r", str(sections.run.seed), ordered, handed, version=5)).hex()
    found, memory = node((HEAD + SELFPLAY).format(web=WEB, frame=frame, name=name, network=tmp_path / "network")).splitlines()
    assert json.loads(memory)[3] == json.loads(memory)[-1], "bytes after four versions and their games, and after four times as many"
    brought = tabs.from_tab(bytes.fromhex(found))
    assert isinstance(brought, tabs.GamesComplete)
    returned = [Returned(each.record, GameRecord(each.uid), Terms(5, 16), lucks[each.uid]) for each in brought.games]
    order = SearchOrder.of(game, sections, settings, [5])
    for evaluate in evaluators({5: module}):
        judged = Verification(evaluate, random.Random(0)).judge(order, 1.0, returned)
        assert (judged.refused, judged.differed, judged.recomputed, len(judged.returns)) == ({}, 0, judged.plies, 3)
        for each in brought.games:
            arrays = unpack_record(each.record, game.num_distinct_actions(), game.value_size())
            recorded = RecordedGame(game, sections, each.uid, arrays, keeps_trees=False, luck=lucks[each.uid])
            assert {ply.verdict for ply in replay(recorded, evaluate)} == {EQUAL}


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "backgammon", "blob", "beasty_bar"])
def test_a_tabs_match_is_what_the_verifier_finds(name: str) -> None:
    game = games.load(name)
    sections = RunSections.model_validate({"run": {"game": name}, "search": {"leaves_per_step": 1 if game.is_hidden() else 2}})
    job = Job("r:3", "r", Kind.EVAL, "browser", payload=encode(MatchSpec("weights:5", "weights:2", 4, 8, 2, 2**62 + 3)))
    match = deal_match(job, sections, game, 5)
    networks = tuple(tabs.ModelUpdate("r", name, {}, version, "", 0, b"", b"", b"", 0.0) for version in match.order.versions)
    frame = tabs.encode_tab(match.message("r", networks, [(record, b"t") for record in match.records])).hex()
    result, evaluated = json.loads(node((HEAD + MATCH).format(web=WEB, frame=frame)))
    brought = tabs.from_tab(bytes.fromhex(result))
    assert isinstance(brought, tabs.EvalResult)
    assert evaluated.keys() == {"5", "2"}
    handed = {record.uid: record for record in match.records}
    order = SearchOrder.of_match(game, match.search, match.order)
    found = Verification(answers(game), random.Random(0)).judge(
        order, 1.0, [Returned(each.record, handed[each.uid]) for each in brought.games]
    )
    assert (found.refused, found.differed, found.recomputed) == ({}, 0, found.plies)
    assert found.returns.keys() == match.games.keys()
