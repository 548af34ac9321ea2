"""The boards of all games in Node, over a document that only remembers: every move has a place, and no place knows a hidden hand."""

from __future__ import annotations

import json

import pytest
from nodejs import WEB, needs_node, node

from azq import games

pytestmark = needs_node

DOCUMENT = """
const element = () => ({
  children: [], at: {},
  setAttribute(name, value) { this.at[name] = String(value); },
  append(...all) { this.children.push(...all); },
});
globalThis.document = { createElement: element, createElementNS: element };
const told = (one) => (one.children ? { at: one.at, children: one.children.map(told) } : String(one));
const all = (one) => (one.children ? [one, ...one.children.flatMap(all)] : []);
"""
PLAY = f"""
import {{ readFileSync }} from "node:fs";
import {{ loadCore }} from "{WEB}/core.js";
import {{ Table }} from "{WEB}/play/table.js";
import {{ picture }} from "{WEB}/board.js";
{DOCUMENT}
const core = await loadCore(readFileSync("{WEB}/azq.wasm"));
"""
EVERYWHERE = """
const found = { plies: 0, unplaced: [], peeks: 0, forgotten: 0, told: 0 };
for (let game = 0; game < 3; game++) {
  const table = new Table(core.game(NAME));
  while (!table.over) {
    if (table.chance) { table.roll(); continue; }
    const seat = table.actor, actions = table.legal();
    const view = { game: NAME, before: "", seat, actions, actor: seat, names: ["You", "B", "C", "D"], hint: null, cursor: null };
    const draw = (text, from = null) => picture({ ...view, text, from });
    const marked = (name, from) => all(draw(table.text, from).stage).flatMap(({ at }) => (at[name] === undefined ? [] : [at[name]]));
    const from = [null, ...marked("data-from", null)];
    const buttons = (from) => draw(table.text, from).buttons.map(({ action }) => action);
    const placed = new Set(from.flatMap((from) => [...marked("data-action", from).map(Number), ...buttons(from)]));
    // two dice may do the same
    const texts = new Set(actions.filter(({ action }) => placed.has(action)).map(({ text }) => text));
    found.unplaced.push(...actions.map(({ text }) => text).filter((text) => !texts.has(text)));
    if (table.rules.hasHidden) {
      const other = table.state.resample(seat, BigInt(1 + found.plies));
      const asked = table.rules.parse(table.asked().position);
      found.forgotten += asked.informationState(seat) !== table.state.informationState(seat);
      found.told += asked.notation() === table.state.notation();
      asked.free();
      found.peeks += JSON.stringify(told(draw(table.text).stage)) !== JSON.stringify(told(draw(other.text()).stage));
      other.free();
    }
    table.play(actions[(7 * found.plies++ + game) % actions.length].action);
  }
}
console.log(JSON.stringify(found));
"""


@pytest.mark.parametrize("name", games.names())
def test_every_move_has_its_place_and_no_hand_is_seen(name: str) -> None:
    found = json.loads(node(PLAY + EVERYWHERE.replace("NAME", json.dumps(name))))
    assert found["plies"] > 10
    assert found["unplaced"] == []
    assert (found["peeks"], found["forgotten"]) == (0, 0)
    assert found["told"] < found["plies"] / 4  # near the end there is nothing left to hide


def test_a_move_is_taken_back_with_all_that_came_after_it() -> None:
    script = """
const table = new Table(core.game("backgammon"));
while (table.plies.length < 30 && !table.over) table.chance ? table.roll() : table.play(table.legal()[0].action);
const mine = table.plies.findLastIndex(({ player }) => player === 0);
const before = table.plies[mine].before;
const taken = table.takeBack(0), again = new Table(core.game("backgammon"), table.actions());
let refused = "";
try { new Table(core.game("connect_four"), [3, 9]); } catch (error) { refused = error.message; }
const nothing = new Table(core.game("hex")).takeBack(0);
console.log(JSON.stringify([taken, table.text === before, table.plies.length === mine, again.text === before, nothing, refused]));
"""
    *told, refused = json.loads(node(PLAY + script))
    assert told == [True, True, True, True, False]
    assert "action 9 is not legal after 1 plies" in refused
