"""A tab's Web Workers, in Node: what they play when versions follow each other."""

from __future__ import annotations

import json

from nodejs import WEB, needs_node, node

from azq.config import RunSections
from azq.parts.volunteers.hub import tab_search
from azq.wire import tabs

pytestmark = needs_node

# One slot, and a game for each of two versions, whose network is the uniform one; a rest is over at once and counted.
WORKER = """
    import {{ readFileSync }} from "node:fs";
    import {{ fromFrame }} from "{web}/contribute/wire.js";
    let rests = 0;
    globalThis.setTimeout = (call) => (rests++, setImmediate(call));
    globalThis.onmessage = null;
    const finished = [];
    globalThis.postMessage = (message) => {{
      if (message.unfit || message.failed) throw new Error(JSON.stringify(message));
      if (message.finished) finished.push(message.finished.uid);
      if (finished.length < 2) return;
      console.log(JSON.stringify({{ finished, rests }}));
      process.exit();
    }};
    await import("{web}/contribute/worker.js");
    const {{ seed, search, games }} = fromFrame(Uint8Array.from(Buffer.from("{frame}", "hex")));
    onmessage({{ data: {{ setup: {{ bytes: readFileSync("{web}/azq.wasm"), backend: "wasm" }} }} }});
    games.forEach((game, i) => {{
      const version = i + 1;
      onmessage({{ data: {{ model: {{ name: "connect_four", params: {{}}, version, bytes: null }} }} }});
      onmessage({{ data: {{ game: {{ ...game, plan: {{ seed, search, version }}, slots: 1 }} }} }});
    }});
"""


def test_a_game_of_a_new_version_that_waits_for_a_slot_does_not_slow_the_old_one() -> None:
    sections = RunSections.model_validate({"run": {"game": "connect_four"}, "search": {"num_simulations": 16}})
    ordered = tab_search(sections).model_dump(exclude={"schedule"}) | {"random_opening_plies": 0}
    games = tuple(tabs.Handed(uid, b"t", luck=uid) for uid in (7, 8))
    frame = tabs.encode_tab(tabs.PlayGames("r", "5", ordered, games, version=1)).hex()
    played = json.loads(node(WORKER.format(web=WEB, frame=frame)))
    assert sorted(played["finished"]) == [7, 8]
    assert played["rests"] < 3  # while it reads its messages; not one for each leaf of the game that has the slot


CREW = """
    const {{ Crew }} = await import("{web}/contribute/crew.js"), workers = [];
    globalThis.Worker = class {{ constructor() {{ workers.push(this); }} postMessage() {{}} }};
    const crew = new Crew(new Uint8Array(), {{ unfit() {{}} }});
    crew.start({{ workers: 1, games: 2, backend: "wasm" }});
    for (const version of [1, 2]) crew.use({{ version, sha256: `${{version}}` }});
    crew.hand([{{ uid: 7, plan: {{ version: 1 }} }}, {{ uid: 8, plan: {{ version: 2 }} }}]);
    workers[0].onmessage({{ data: {{ unfit: {{ version: 2, reason: "values are off" }} }} }});
    console.log(JSON.stringify([crew.playing, crew.versions]));
"""


def test_games_of_a_network_that_fails_its_test_are_given_back() -> None:
    assert json.loads(node(CREW.format(web=WEB))) == [[7], [1]]
