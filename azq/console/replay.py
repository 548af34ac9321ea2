"""`azq replay`: a recorded game searched again with the weights and settings of its run; reads the run's folder, no broker is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq import games
from azq.arena.searcher import evaluate
from azq.config import Config
from azq.console.move import folder_of, weights_file
from azq.errors import ConfigError, NotFound
from azq.host import rundir
from azq.inference.ask.local import LocalEvaluator
from azq.replay.readers import SegmentReader
from azq.search.again import Outputs
from azq.search.evaluator import Evaluator, UniformEvaluator
from azq.search.replay import DIFFERS, EQUAL, ROUNDING, RecordedGame, ReplayedPly, replay
from azq.wire.arrays import unpack_record
from azq.wire.messages import BROWSER_PREFIX

SHOWN = 8  # actions of a ply


@dataclass(frozen=True, slots=True)
class Recorded:
    """A game of a run's folder."""

    folder: rundir.RunDir
    game: RecordedGame
    worker: str


def open_game(config: Config, run: str, uid: int) -> Recorded:
    """The game; `NotFound` where there is none of that number, or nothing of it was searched, `ConfigError` for rules that are gone."""
    folder = folder_of(config, None, run)
    sections = folder.sections()
    rules = games.GameFiles(config.worker.game_files).load(sections.run.game, sections.run.params)
    event = SegmentReader(folder.path / "segments").find(uid)
    arrays = unpack_record(event.record, rules.num_distinct_actions(), rules.value_size())
    recorded = RecordedGame(rules, sections, uid, arrays, sections.search.reuse_subtree and not event.worker.startswith(BROWSER_PREFIX))
    if not recorded.searched:
        raise NotFound(f"game {uid} of run {run!r} has no searched ply: a safety cap ended it; name another game")
    return Recorded(folder, recorded, event.worker)


def replay_game(config: Config, run: str, uid: int, ply: int | None) -> dict[str, Any]:
    """Everything `azq replay` tells. Raises `ConfigError` for a ply that was not searched, `NotFound` also for weights that are gone."""
    recorded = open_game(config, run, uid)
    searched, versions = recorded.game.searched, recorded.game.arrays["weight_versions"]
    if ply is not None and ply not in searched:
        raise ConfigError(f"--ply {ply} was not searched; {_ranges(searched)} of game {uid} were")
    with ExitStack() as stack:
        networks = _Networks(config, recorded, stack)
        for version in dict.fromkeys(int(versions[each]) for each in searched if ply is None or each <= ply):
            networks.of(version)  # what is missing is told before anything was searched
        plies = list(replay(recorded.game, networks, ply))
    shown = [_told(recorded.game, each, text) for each, text in zip(plies, _texts(recorded.game, plies), strict=True)]
    first = next((each["ply"] for each in shown if each["verdict"] != EQUAL), None)
    counts = {verdict: sum(each["verdict"] == verdict for each in shown) for verdict in (EQUAL, ROUNDING, DIFFERS)}
    return {
        "run": run,
        "game": uid,
        "worker": recorded.worker,
        "seed": recorded.game.sections.run.seed,
        "counts": counts,
        "first_difference": first,
        "plies": [each for each in shown if ply in (None, each["ply"])],
    }


class _Networks:
    """The run's weights by version, each opened once, evaluated as this machine does."""

    def __init__(self, config: Config, recorded: Recorded, stack: ExitStack) -> None:
        self._config, self._recorded, self._stack = config, recorded, stack
        self._open: dict[int, Evaluator] = {}

    def __call__(self, version: int, packed: NDArray[np.uint8]) -> Outputs:
        found = evaluate(self.of(version), packed)
        return found.logits, found.values

    def of(self, version: int) -> Evaluator:
        """Raises `NotFound` with the remedy where the weights are not there."""
        if version not in self._open:
            self._open[version] = self._stack.enter_context(closing(self._opened(version)))
        return self._open[version]

    def _opened(self, version: int) -> Evaluator:
        game = self._recorded.game.game
        if self._recorded.game.sections.selfplay.evaluator == "uniform":
            return UniformEvaluator(game.num_distinct_actions(), game.value_size())
        folder = self._recorded.folder
        try:
            return LocalEvaluator.from_file(game, weights_file(folder, str(version)), self._config.inference)
        except NotFound:
            raise NotFound(
                f"weights of version {version} are not in {folder.path / 'weights'} any more, and the game was searched with them; "
                f"name a game of other versions, a --ply before that one, or put the file back"
            ) from None


def _texts(recorded: RecordedGame, plies: list[ReplayedPly]) -> Iterator[dict[int, str]]:
    """The names of the legal actions at each ply."""
    state, played = recorded.game.new_initial_state(), 0
    for each in plies:
        for action in recorded.arrays["actions"][played : each.found.ply].tolist():
            state.apply_action(action)
        played = each.found.ply
        yield {action: state.action_to_string(action) for action in state.legal_actions()}


def _told(recorded: RecordedGame, each: ReplayedPly, texts: dict[int, str]) -> dict[str, Any]:
    """A ply in plain values: what the record says and what comes out now, each legal action's policy and its visits now."""
    ply, arrays, now = each.found.ply, recorded.arrays, each.found
    action = int(arrays["actions"][ply])
    said = {
        "action": action,
        "text": texts[action],
        "simulations": int(arrays["simulations"][ply]),
        "value": float(arrays["root_values"][ply][0]),
        "weight_version": int(arrays["weight_versions"][ply]),
    }
    best = int(now.result.action)
    gives = {"action": best, "text": texts[best], "simulations": now.simulations, "value": float(now.root_values[0])}
    actions = [
        {
            "action": one,
            "text": text,
            "recorded_policy": float(arrays["policies"][ply][one]),
            "policy": float(now.policy[one]),
            "visits": int(now.result.visit_counts[one]),
        }
        for one, text in texts.items()
    ]
    gap = {name: value for name, value in asdict(each.difference).items() if name in ("policy", "value")}
    reason = {"verdict": each.verdict, "reason": each.reason, "difference": gap}
    return {"ply": ply, "recorded": said, "now": gives, **reason, "actions": actions}


def replay_text(told: dict[str, Any]) -> list[str]:
    """A line a ply; all actions where there is one ply alone."""
    lines = [
        f"{each['ply']:>4}  {each['recorded']['text']:<10} version {each['recorded']['weight_version']:<5}"
        f"{each['recorded']['simulations']:>5} simulations  value {each['recorded']['value']:+.4f} now {each['now']['value']:+.4f}"
        f"  policy {each['difference']['policy']:.4f} off  {each['verdict']}" + (f": {each['reason']}" if each["reason"] else "")
        for each in told["plies"]
    ]
    if len(told["plies"]) == 1:
        rows = sorted(told["plies"][0]["actions"], key=lambda row: -row["recorded_policy"])
        lines += [
            f"      {row['text']:<10} policy {row['recorded_policy']:.4f} now {row['policy']:.4f}, {row['visits']} visits" for row in rows
        ]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in told["counts"].items() if count)
    first = told["first_difference"]
    return [
        *lines,
        f"game {told['game']} by {told['worker']}: {counts}" + ("" if first is None else f"; the first difference is at ply {first}"),
    ]


def _ranges(plies: list[int]) -> str:
    return f"plies {plies[0]} to {plies[-1]} that players chose" if len(plies) > 1 else f"ply {plies[0]}"
