"""Digests of what the core computes, natively; parity.mjs has the same of azq.wasm, in Node and in a browser.

Equal digests are equal bits: observations, legal actions, texts, chance's probabilities, redrawn hands, records, root statistics, trees.
`python -m golden.parity` in `tests/` writes them anew: say in the commit why they moved.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference.config import Settings

from azq import games
from azq._core import Game, Search, State

SPREAD = np.float32(4.0)
PRIME = np.uint32(0x01000193)
NO_ACTIONS = np.zeros(0, np.uint16)
SEED = 2026
GUMBEL, PUCT = Settings("gumbel", 16, reuse_subtree=False), Settings("puct", 16)
CONSTANTS = Path(__file__).with_suffix(".json")
RECORD = ("actions", "policies", "root_values", "simulations", "weight_versions", "returns")
TREE = ("parent", "action", "actor", "visits", "raw_value", "mean", "lower", "upper", "child_visits", "prior", "q")


@dataclass(frozen=True)
class Parity:
    """One digest: of `positions`, `records` or `roots` in so many games."""

    name: str
    game: str
    kind: str
    games: int
    settings: Settings = GUMBEL
    slots: int = 32
    params: dict[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As parity.mjs reads it."""
        return {**dataclasses.asdict(self), "settings": self.settings.plain()}

    def native(self) -> str:
        """The digest of this machine's core."""
        rules = games.load(self.game, **self.params)
        of = {"positions": _positions, "records": _records, "roots": _roots}[self.kind]
        return hashlib.sha256(b"".join(of(rules, self))).hexdigest()


def evaluate(packed: NDArray[np.uint8], actions: int, values: int) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Logits (L, A) and values (L, V) from a hash of packed observations (L, P): float32 with 24 bits, rounded to float16."""
    key = np.full(len(packed), 0x811C9DC5, np.uint32)
    for byte in packed.T.astype(np.uint32, order="C"):
        np.multiply(np.bitwise_xor(key, byte, out=key), PRIME, out=key)
    bits = key[:, None] + np.arange(actions + values, dtype=np.uint32) * np.uint32(0x9E3779B9)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    numbers = ((bits ^ (bits >> np.uint32(16))) >> np.uint32(8)).astype(np.float32) / np.float32(8388608.0) - np.float32(1.0)
    return (numbers[:, :actions] * SPREAD).astype(np.float16), numbers[:, actions:].astype(np.float16)


def _digest(*items: object) -> bytes:
    """Of texts, arrays and, as four bytes, whole numbers."""
    whole = hashlib.sha256()
    for item in items:
        if isinstance(item, str):
            whole.update(item.encode())
        else:
            whole.update((np.int32(item) if isinstance(item, int) else np.asarray(item)).tobytes())
    return whole.digest()


def _positions(rules: Game, case: Parity) -> list[bytes]:
    return [_digest(*_walk(rules, uid)) for uid in range(case.games)]


def _walk(rules: Game, uid: int) -> list[object]:
    """Everything of the positions of a game whose actions a formula chooses."""
    state, ply, seen = rules.new_initial_state(), 0, list[object]()
    while not state.is_terminal():
        legal = state.legal_actions()
        seen += [state.current_player(), np.array(legal, np.int32), state.notation()]
        seen.append(np.array([probability for _, probability in state.chance_outcomes()], np.float32))
        seen += [state.packed_observation(player) for player in range(rules.num_players())]
        if ply % 8 == uid % 8:
            seen += _words(state, uid, uid % rules.num_players())
        state.apply_action(legal[(7 * ply + 3 * uid + (uid >> 3) * ply) % len(legal)])
        ply += 1
    return [*seen, state.notation(), np.array(state.returns(), np.float32)]


def _words(state: State, uid: int, player: int) -> list[object]:
    texts = [str(state), *(state.action_to_string(action) for action in state.legal_actions())]
    return [*texts, state.information_state_string(player), state.resample_from_infostate(player, uid).notation()]


def _step(search: Search, rules: Game, packed: NDArray[np.uint8], version: int) -> int:
    leaves = search.collect(packed, np.zeros(len(packed), np.int32))
    if leaves:
        search.apply(*evaluate(packed[:leaves], rules.num_distinct_actions(), rules.value_size()), weight_version=version)
    return leaves


def _records(rules: Game, case: Parity) -> list[bytes]:
    """Of games of self-play: their records, byte by byte."""
    search = Search(rules, case.settings.core(), num_slots=case.slots, seed=SEED)
    packed = np.zeros((case.slots * case.settings.leaves_per_step, rules.packed_size()), np.uint8)
    found: dict[int, bytes] = {}
    waiting, turn = iter(range(case.games)), 0
    for slot, uid in zip(range(case.slots), waiting, strict=False):
        search.start(slot, uid, NO_ACTIONS)
    while len(found) < case.games:
        turn += 1
        _step(search, rules, packed, turn % 5)
        for slot in search.finished_slots():
            record = search.record(slot)
            found[record.uid] = _digest(*(getattr(record, name) for name in RECORD))
            search.clear(slot)
            for uid in waiting:
                search.start(slot, uid, NO_ACTIONS)
                break
    return [found[uid] for uid in range(case.games)]


def _roots(rules: Game, case: Parity) -> list[bytes]:
    """Of searches played step by step: all that is known of a root, and the tree under it."""
    search = Search(rules, case.settings.core(), num_slots=1, seed=SEED, autoplay=False)
    packed = np.zeros((case.settings.leaves_per_step, rules.packed_size()), np.uint8)
    digests = []
    for uid in range(case.games):
        search.start(0, uid, NO_ACTIONS)
        seen: list[object] = []
        for ply in range(60):
            if search.finished_slots():
                break
            while _step(search, rules, packed, 7):
                pass
            if not search.idle_slots():
                outcomes = search.state(0).legal_actions()
                search.play(0, outcomes[(7 * ply + uid) % len(outcomes)])
                continue
            root, tree = search.result(0), search.tree(0)
            seen += [root.action, root.best_action, int(root.proven), np.float32(root.root_value)]
            seen += [root.policy, root.visit_counts, root.q_values, root.prior_logits, *(tree[name] for name in TREE)]
            search.play(0, root.action)
        digests.append(_digest(*seen))
    return digests


FULL = 1000
SHORT = {"tic_tac_toe", "connect_four"}  # of few plies


def of_game(game: str, count: int) -> list[Parity]:
    """What every game is compared in."""
    few = max(count // 50, 2)
    return [
        Parity(f"positions of {count} {game}", game, "positions", count),
        Parity(f"gumbel, records of {count} {game}", game, "records", count, GUMBEL),
        Parity(f"puct, records of {count} {game}", game, "records", count, PUCT),
        Parity(f"gumbel, roots of {few} {game}", game, "roots", few, Settings("gumbel", 24)),
        Parity(f"puct, roots of {few} {game}", game, "roots", few, Settings("puct", 24)),
    ]


OTHERS = [
    Parity("several leaves", "othello", "records", 20, Settings("gumbel", 40, leaves_per_step=4), params={"size": 6}),
    Parity("decisive moves", "othello", "records", 20, Settings("gumbel", 24, decisive_moves=True), params={"size": 6}),
    Parity("openings", "hex", "records", 20, Settings("puct", 24, random_opening_plies=6), params={"size": 5, "swap": True}),
    Parity("swap2", "gomoku", "records", 4, Settings("gumbel", 24), params={"size": 9, "swap2": True}),
    Parity("worlds", "beasty_bar", "records", 20, Settings("gumbel", 24, determinizations=3), params={"players": 4}),
    Parity("eight hands", "blob", "records", 10, Settings("puct", 16, dirichlet_alpha=0.3), params={"players": 8, "hook": False}),
    Parity("race", "backgammon", "records", 20, Settings("puct", 16, temperature=0.5, fpu_reduction=0.0), params={"start": "race"}),
]
FAST = [case for game in games.names() for case in of_game(game, FULL if game in SHORT else 20)] + OTHERS
SLOW = [case for game in games.names() if game not in SHORT for case in of_game(game, FULL)]


def constants() -> dict[str, str]:
    """The committed digests by the names of their cases."""
    found: dict[str, str] = json.loads(CONSTANTS.read_text("utf-8"))
    return found


if __name__ == "__main__":
    CONSTANTS.write_text(json.dumps({case.name: case.native() for case in FAST + SLOW}, indent=1) + "\n", "utf-8")
