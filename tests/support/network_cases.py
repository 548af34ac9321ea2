"""Networks with what they must answer, as files that Node and browsers read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sharp_nets import KINDS, sharp_bytes

from azq import games
from azq.nets import restore, unpack
from azq.nets.onnx import to_onnx
from azq.parts.volunteers.model_maker import TOLERANCE, probe_positions

POSITIONS = 24


def write_cases(folder: Path) -> list[dict[str, Any]]:
    """Writes `<kind>.onnx`, `<kind>.{positions,logits,values}` and `cases.json`, the list that is returned."""
    cases = []
    for kind, (name, _) in KINDS.items():
        game = games.load(name)
        module = restore(sharp_bytes(kind), game)
        positions = probe_positions(game, POSITIONS)
        with torch.inference_mode():
            logits, values = (output.numpy() for output in module(*unpack(torch.from_numpy(positions), module.spec)))
        files = {"onnx": to_onnx(module), "positions": positions.tobytes(), "logits": logits.tobytes(), "values": values.tobytes()}
        for suffix, data in files.items():
            (folder / f"{kind}.{suffix}").write_bytes(data)
        spec, scale = module.spec, float(np.abs(logits).max())
        shape = {"planes": [spec.planes, spec.rows, spec.cols], "scalars": spec.scalars, "packedSize": spec.packed_size}
        shape |= {"numActions": spec.num_actions, "valueSize": spec.value_size}
        cases.append({"kind": kind, "game": shape, "scale": scale, "tolerance": TOLERANCE * scale})
    (folder / "cases.json").write_text(json.dumps(cases))
    return cases
