"""`azq replay`: a recorded game searched again with the weights and settings of its run; reads the run's folder, no broker is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.arena.searcher import evaluate
from azq.config import Config
from azq.console.grading import ProgressLine
from azq.console.move import folder_of, weights_file
from azq.console.table import tabled
from azq.errors import ConfigError, NotFound
from azq.host import rundir
from azq.host.game_files import load_game
from azq.inference.ask.local import LocalEvaluator
from azq.replay.readers import SegmentReader
from azq.search.evaluator import Evaluator, UniformEvaluator
from azq.search.recomputation import Outputs
from azq.search.replay import DIFFERS, EQUAL, ROUNDING, RecordedGame, ReplayedPly, replay
from azq.wire.arrays import unpack_record
from azq.wire.messages import BROWSER_PREFIX

SHOWN = 8  # actions of a ply


def replay_game(config: Config, run: str, uid: int, ply: int | None, tell: Callable[[str], None] = lambda _line: None) -> dict[str, Any]:
    """Everything `azq replay` tells; `tell` is given a line now and then while it searches.

    Raises `ConfigError` for a ply that was not searched, `NotFound` for what is not there any more.
    """
    folder = folder_of(config, None, run)
    recorded, worker = read_game(config, folder, uid)
    searched, versions = recorded.searched, recorded.arrays["weight_versions"]
    if ply is not None and ply not in searched:
        raise ConfigError(
            f"--ply {ply} was not searched; of game {uid} plies {searched[0]} to {searched[-1]} were, but for those of chance"
        )
    with ExitStack() as stack:

        @cache
        def network(version: int) -> Evaluator:
            return stack.enter_context(closing(_opened(config, folder, recorded, version)))

        plies: list[ReplayedPly] = []
        end, asked = searched[-1] if ply is None else ply, 0
        progress = ProgressLine(tell, lambda: f"ply {plies[-1].searched.ply if plies else 0} of {end} told, {asked:,} positions evaluated")

        def outputs(version: int, packed: NDArray[np.uint8]) -> Outputs:
            nonlocal asked
            asked += len(packed)
            progress()
            result = evaluate(network(version), packed)
            return result.logits, result.values

        for version in sorted({int(versions[each]) for each in searched if ply is None or each <= ply}):
            network(version)  # what is missing is told before anything was searched
        for each in replay(recorded, outputs, ply):
            plies.append(each)  # one by one, for `progress` to see
    shown = [_told(recorded, each, text) for each, text in zip(plies, _texts(recorded, plies), strict=True)]
    return {
        "run": run,
        "game": uid,
        "worker": worker,
        "seed": recorded.sections.run.seed,
        "counts": {verdict: sum(each["verdict"] == verdict for each in shown) for verdict in (EQUAL, ROUNDING, DIFFERS)},
        "first_difference": next((each["ply"] for each in shown if each["verdict"] != EQUAL), None),
        "plies": [each for each in shown if ply in (None, each["ply"])],
    }


def read_game(config: Config, folder: rundir.RunDir, uid: int) -> tuple[RecordedGame, str]:
    """A game of a run's folder, and who made it; `NotFound` where there is none of that number, or nothing of it was searched."""
    sections = folder.sections()
    rules = load_game(config, sections.run.game, sections.run.params, folder.settings)
    event = SegmentReader(folder.path / "segments").find(uid)
    arrays = unpack_record(event.record, rules.num_distinct_actions(), rules.value_size())
    keeps_trees = sections.search.reuse_subtree and not event.worker.startswith(BROWSER_PREFIX)
    recorded = RecordedGame(rules, sections, uid, arrays, keeps_trees)
    if not recorded.searched:
        raise NotFound(f"game {uid} of run {folder.name!r} has no searched ply: a safety cap ended it; name another game")
    return recorded, event.worker


def _opened(config: Config, folder: rundir.RunDir, recorded: RecordedGame, version: int) -> Evaluator:
    if recorded.sections.selfplay.evaluator == "uniform":
        return UniformEvaluator(recorded.game.num_distinct_actions(), recorded.game.value_size())
    try:
        return LocalEvaluator.from_file(recorded.game, weights_file(folder, str(version)), config.inference)
    except NotFound:
        raise NotFound(
            f"weights of version {version} are not in {folder.path / 'weights'} any more, and the game was searched with them; "
            "name a game of other versions, a --ply before that one, or put the file back"
        ) from None


def _texts(recorded: RecordedGame, plies: list[ReplayedPly]) -> Iterator[dict[int, str]]:
    """The names of the legal actions at each ply."""
    state, played = recorded.game.new_initial_state(), 0
    for each in plies:
        for action in recorded.arrays["actions"][played : each.searched.ply].tolist():
            state.apply_action(action)
        played = each.searched.ply
        yield {action: state.action_to_string(action) for action in state.legal_actions()}


def _told(recorded: RecordedGame, each: ReplayedPly, texts: dict[int, str]) -> dict[str, Any]:
    """A ply in plain values: what the record says and what comes out now, each legal action's policy and its visits now."""
    ply, arrays, now = each.searched.ply, recorded.arrays, each.searched
    action = int(arrays["actions"][ply])
    values = {
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
    return {"ply": ply, "recorded": values, "now": gives, **reason, "actions": actions}


def replay_text(told: dict[str, Any]) -> list[str]:
    """A line a ply; all actions where there is one ply alone."""
    rows = (
        (
            *(ply["ply"], ply["recorded"]["text"], ply["recorded"]["weight_version"], ply["recorded"]["simulations"]),
            *(f"{ply['recorded']['value']:+.4f}", f"{ply['now']['value']:+.4f}", f"{ply['difference']['policy']:.4f}"),
            ": ".join(filter(None, (ply["verdict"], ply["reason"]))),
        )
        for ply in told["plies"]
    )
    lines = tabled(rows, "#ply", "move", "#version", "#simulations", "#value", "#now", "#policy off by", "")
    if len(told["plies"]) == 1:
        actions = sorted(told["plies"][0]["actions"], key=lambda row: -row["recorded_policy"])
        cells = ((row["text"], f"{row['recorded_policy']:.4f}", f"{row['policy']:.4f}", row["visits"]) for row in actions)
        lines += ["", *tabled(cells, "action", "#policy", "#now", "#visits")]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in told["counts"].items() if count)
    first = told["first_difference"]
    return [
        *lines,
        f"game {told['game']} by {told['worker']}: {counts}" + ("" if first is None else f"; the first difference is at ply {first}"),
    ]
