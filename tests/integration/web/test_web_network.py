"""network.js in Node: trained networks answer as in PyTorch, and one that answers otherwise is refused."""

from __future__ import annotations

import json

from network_cases import write_cases
from nodejs import SUPPORT, WEB, needs_node, node

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
