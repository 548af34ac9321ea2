"""network.js in Node: trained networks answer as in PyTorch, and one that answers otherwise is refused."""

from __future__ import annotations

import json

from network_cases import write_cases
from nodejs import SUPPORT, WEB, needs_node, node
from whole_networks import GOLDEN, write_whole

LOGITS_OFF = 2e-6  # of the largest logit
VALUES_OFF = 1e-5

pytestmark = needs_node


def test_trained_networks_answer_as_in_pytorch(tmp_path):
    cases = {case["kind"]: case for case in write_cases(tmp_path)}
    script = f"""
        import {{ readFile }} from "node:fs/promises";
        import * as network from "{WEB}/network.js";
        import {{ tryNetworks }} from "{SUPPORT}/try_networks.mjs";
        const read = async (name) => new Uint8Array(await readFile("{tmp_path}/" + name));
        console.log(JSON.stringify(await tryNetworks(network, read, {{}})));
    """
    rows = json.loads(node(script))
    assert [row["kind"] for row in rows] == list(cases)
    for row in rows:
        assert row["backend"] == "wasm"
        assert "WebGPU" in row["fallback"]
        assert row["logitsOff"] <= LOGITS_OFF * cases[row["kind"]]["scale"]
        assert row["valuesOff"] <= VALUES_OFF
        assert row["sameAlone"]
        assert "self-test on wasm: values are off" in row["refused"]


def test_networks_in_whole_numbers_evaluate_to_the_golden_bits(tmp_path):
    write_whole(tmp_path)
    script = f"""
        import {{ readFile }} from "node:fs/promises";
        import * as core from "{WEB}/core.js";
        import * as network from "{WEB}/network.js";
        import {{ hashWhole }} from "{SUPPORT}/try_networks.mjs";
        const read = async (name) => new Uint8Array(await readFile("{tmp_path}/" + name));
        const wasm = await readFile("{WEB}/azq.wasm");
        console.log(JSON.stringify(await hashWhole(core, network, wasm, read, {json.dumps(list(GOLDEN))})));
    """
    assert json.loads(node(script)) == GOLDEN


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
