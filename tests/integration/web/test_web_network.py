"""network.js in Node: what is no network, or is damaged, is refused; a browser evaluates (tests/browser/test_browser_network.py)."""

from __future__ import annotations

import json

from nodejs import WEB, needs_node, node
from whole_networks import write_whole

pytestmark = needs_node


def test_a_network_in_whole_numbers_that_is_damaged_or_another_games_is_refused(tmp_path):
    write_whole(tmp_path)
    script = f"""
        import {{ readFile }} from "node:fs/promises";
        import {{ loadCore }} from "{WEB}/core.js";
        import {{ openNetwork }} from "{WEB}/network.js";
        const core = await loadCore(await readFile("{WEB}/azq.wasm"));
        const model = new Uint8Array(await readFile("{tmp_path}/tic_tac_toe.whole"));
        const said = (act) => act().then(() => "taken", (error) => error.message);
        const network = await openNetwork(model, {{ core }});
        const othello = core.game("othello"), own = core.game("tic_tac_toe");
        const positions = own.initialState().observe(), answer = await network.evaluate(positions, 1, own);
        const test = {{ positions, ...answer, tolerance: 0, game: own }};
        console.log(JSON.stringify([
          await said(() => openNetwork(model.subarray(0, 99), {{ core }})),
          await said(() => network.evaluate(othello.initialState().observe(), 1, othello)),
          await said(() => openNetwork(model, {{ core, test }})),
          await said(() => openNetwork(model, {{ core, test: {{ ...test, values: answer.values.map((value) => value + 0.001) }} }})),
        ]));
    """
    damaged, foreign, same, other = json.loads(node(script))
    assert "ends too early" in damaged
    assert "not another game's" in foreign
    assert same == "taken"
    assert "self-test" in other


def test_what_is_no_network_is_an_error():
    script = f"""
        import {{ openNetwork }} from "{WEB}/network.js";
        const said = (backend) => openNetwork(new Uint8Array(99), {{ backend }}).then(() => "opened", (error) => error.message);
        console.log(JSON.stringify([await said("wasm"), await said("webgpu"), await said("auto")]));
    """
    wasm, webgpu, auto = json.loads(node(script))
    assert wasm == auto
    assert "opened" not in (wasm, webgpu)
    assert "WebGPU" in webgpu
