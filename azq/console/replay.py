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


def replay_game(config: Config, run: str, uid: int, ply: int | None, report: Callable[[str], None] = lambda _line: None) -> dict[str, Any]:
    """Everything `azq replay` shows; `report` gets a line now and then while it searches.

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
            return stack.enter_context(closing(_opened(config, folder, recorded, version, by_tab=worker.startswith(BROWSER_PREFIX))))

        plies: list[ReplayedPly] = []
        end, evaluated = searched[-1] if ply is None else ply, 0
        progress = ProgressLine(report, lambda: f"ply {plies[-1].searched.ply if plies else 0} of {end}, {evaluated:,} positions evaluated")

        def outputs(version: int, packed: NDArray[np.uint8]) -> Outputs:
            nonlocal evaluated
            evaluated += len(packed)
            progress()
            result = evaluate(network(version), packed)
            return result.logits, result.values

        for version in sorted({int(versions[at]) for at in searched if ply is None or at <= ply}):
            network(version)  # what is missing is named before the search
        for replayed in replay(recorded, outputs, ply):
            plies.append(replayed)  # one by one, for `progress` to see
    shown = [_values(recorded, replayed, text) for replayed, text in zip(plies, _texts(recorded, plies), strict=True)]
    return {
        "run": run,
        "game": uid,
        "worker": worker,
        "seed": recorded.sections.run.seed,
        "counts": {verdict: sum(row["verdict"] == verdict for row in shown) for verdict in (EQUAL, ROUNDING, DIFFERS)},
        "first_difference": next((row["ply"] for row in shown if row["verdict"] != EQUAL), None),
        "plies": [row for row in shown if ply in (None, row["ply"])],
    }


def read_game(config: Config, folder: rundir.RunDir, uid: int) -> tuple[RecordedGame, str]:
    """A game of a run's folder, and who made it; `NotFound` where there is none of that number, or nothing of it was searched."""
    sections = folder.sections()
    rules = load_game(config, sections.run.game, sections.run.params, folder.settings)
    event = SegmentReader(folder.path / "segments").find(uid)
    arrays = unpack_record(event.record, rules.num_distinct_actions(), rules.value_size())
    keeps_trees = sections.search.reuse_subtree and not event.worker.startswith(BROWSER_PREFIX)
    recorded = RecordedGame(rules, sections, uid, arrays, keeps_trees, event.luck)
    if not recorded.searched:
        raise NotFound(f"game {uid} of run {folder.name!r} has no searched ply: a safety cap ended it; name another game")
    return recorded, event.worker


def _opened(config: Config, folder: rundir.RunDir, recorded: RecordedGame, version: int, *, by_tab: bool) -> Evaluator:
    if recorded.sections.selfplay.evaluator == "uniform":
        return UniformEvaluator(recorded.game.num_distinct_actions(), recorded.game.value_size())
    try:
        return LocalEvaluator.from_file(recorded.game, weights_file(folder, str(version)), config.inference, whole=by_tab)
    except NotFound:
        raise NotFound(
            f"weights of version {version} are not in {folder.path / 'weights'} any more, and the game was searched with them; "
            "name a game of other versions, a --ply before that one, or put the file back"
        ) from None


def _texts(recorded: RecordedGame, plies: list[ReplayedPly]) -> Iterator[dict[int, str]]:
    """The names of the legal actions at each ply."""
    state, played = recorded.game.new_initial_state(), 0
    for ply in plies:
        for action in recorded.arrays["actions"][played : ply.searched.ply].tolist():
            state.apply_action(action)
        played = ply.searched.ply
        yield {action: state.action_to_string(action) for action in state.legal_actions()}


def _values(recorded: RecordedGame, replayed: ReplayedPly, texts: dict[int, str]) -> dict[str, Any]:
    """A ply in plain values: what the record says and what comes out now, each legal action's policy and its visits now."""
    ply, arrays, now = replayed.searched.ply, recorded.arrays, replayed.searched
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
            "action": legal,
            "text": text,
            "recorded_policy": float(arrays["policies"][ply][legal]),
            "policy": float(now.policy[legal]),
            "visits": int(now.result.visit_counts[legal]),
        }
        for legal, text in texts.items()
    ]
    gap = {name: value for name, value in asdict(replayed.difference).items() if name in ("policy", "value")}
    reason = {"verdict": replayed.verdict, "reason": replayed.reason, "difference": gap}
    return {"ply": ply, "recorded": values, "now": gives, **reason, "actions": actions}


def replay_text(result: dict[str, Any]) -> list[str]:
    """A line a ply; all actions where there is one ply alone."""
    rows = (
        (
            *(ply["ply"], ply["recorded"]["text"], ply["recorded"]["weight_version"], ply["recorded"]["simulations"]),
            *(f"{ply['recorded']['value']:+.4f}", f"{ply['now']['value']:+.4f}", f"{ply['difference']['policy']:.4f}"),
            ": ".join(filter(None, (ply["verdict"], ply["reason"]))),
        )
        for ply in result["plies"]
    )
    lines = tabled(rows, "#ply", "move", "#version", "#simulations", "#value", "#now", "#policy off by", "")
    if len(result["plies"]) == 1:
        actions = sorted(result["plies"][0]["actions"], key=lambda row: -row["recorded_policy"])
        cells = ((row["text"], f"{row['recorded_policy']:.4f}", f"{row['policy']:.4f}", row["visits"]) for row in actions)
        lines += ["", *tabled(cells, "action", "#policy", "#now", "#visits")]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in result["counts"].items() if count)
    first = result["first_difference"]
    return [
        *lines,
        f"game {result['game']} by {result['worker']}: {counts}" + ("" if first is None else f"; the first difference is at ply {first}"),
    ]
