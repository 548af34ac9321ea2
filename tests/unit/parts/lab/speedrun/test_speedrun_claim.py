"""A sound seed holds, and each planted cheat is refused by the sentence that names it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from replay_games import play_game

from azq import games, pretrained
from azq.config import dump_run
from azq.config.loading import to_toml
from azq.errors import EngineError
from azq.host.rundir import RunDir
from azq.nets.weights import describe
from azq.parts.lab.speedrun import claim as claims
from azq.parts.lab.speedrun.claim import digests
from azq.parts.lab.speedrun.exam import OWN, examine, sheet_of
from azq.parts.lab.speedrun.rules import ENTRY, LOG, RUN, Graded, SeedLog, SpeedrunEntry, SpeedrunRules, rules_of
from azq.parts.lab.validate.validate import play_alone
from azq.parts.lab.validate.versions import lockstep_sections
from azq.replay.samples import count_samples
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire.codec import encode

TRACKS = """
classes.here = { cores = 2, gpus = 0, measure = "cpu_s" }

[tracks.small]
title = "tic-tac-toe"
game = "tic_tac_toe"
exam = "solve"
target = 1.0
minutes = 1.0
num_simulations = 2
count = 300
"""
replace = msgspec.structs.replace
Sound = tuple[Path, SeedLog, SpeedrunRules]
Cheat = Callable[[Path, SeedLog], SeedLog]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """An entry of one seed, by the real search and learner; the weights of version 2 are claimed, at just what they lose."""
    folder = tmp_path_factory.mktemp("entry")
    (folder / "tracks.toml").write_text(TRACKS)
    place, tracks = folder / "seed-1", rules_of(folder / "tracks.toml")
    sections = lockstep_sections("tic_tac_toe", 1, "local")
    RunDir(place, RUN).create(sections)
    assert len(list(islice(play_alone(sections, place / RUN), 3))) == 3
    (weights,) = (path for path in (place / RUN / "weights").iterdir() if describe(path).version == 2)
    track = tracks.tracks["small"]
    losses = examine(track, weights, sheet_of(track), OWN)
    settings = dump_run(sections)
    settings["run"].pop("seed")
    entry, files = SpeedrunEntry("small", "here", "me", "2026-11-29", "all of it", settings=settings), digests(place / RUN)
    row = Graded(2, describe(weights).step, 15.0, 22.5, round(float(np.mean(losses)), 6))
    clock = [(0.0, 0.0), (10.0, 15.0), (20.0, 30.0)]
    log = SeedLog(entry, 1, "a processor", 2, [], "", clock, [row], losses, "", files).sealed()
    (folder / ENTRY).write_text(to_toml(msgspec.to_builtins(entry)))
    (place / LOG).write_bytes(msgspec.json.encode(log))
    return folder, log, replace(tracks, tracks={"small": replace(track, target=row.loss + 0.1)})


def judged(folder: Path, tracks: SpeedrunRules) -> dict[str, str]:
    """Whatever is not sound, by what it is of."""
    findings, values = claims.verify(folder, tracks, 5, 2, lambda line: None)
    assert not values["holds"]  # one seed is no entry
    return {finding.rule: finding.evidence for finding in findings if finding.severity == "fail"}


def test_a_sound_seed_holds_and_one_is_too_few(sound: Sound) -> None:
    assert judged(sound[0], sound[2]) == {"seeds": "5 or more from seed-1 on make an entry, none left out; there are seed-1"}


def claiming(log: SeedLog, **changes: Any) -> SeedLog:
    return replace(log, rows=[replace(log.rows[-1], **changes)])


def losing(log: SeedLog, one_in: int, loss: float) -> SeedLog:
    """Claims this loss of some positions, whatever became of them."""
    losses = [loss if number % one_in == 0 else real for number, real in enumerate(log.losses)]
    return claiming(replace(log, losses=losses), loss=float(np.mean(losses)))


def other_weights(place: Path, log: SeedLog) -> SeedLog:
    (claimed,) = (path for path in (place / RUN / "weights").iterdir() if describe(path).version == log.rows[-1].version)
    claimed.unlink()
    other = pretrained.verified("connect_four")
    shutil.copy(other, place / RUN / "weights")
    return claiming(replace(log, files=digests(place / RUN)), version=describe(other).version)


def other_games(place: Path, log: SeedLog, count: int = 8) -> SeedLog:
    shutil.rmtree(place / RUN / "segments")
    events = [play_game(games.load("tic_tac_toe"), uid, weight_version=2) for uid in range(1, 1 + count)]
    with closing(SegmentLog(place / RUN / "segments", "tic_tac_toe")) as segments:
        segments.append([LogEntry(event.record.uid, count_samples(event), encode(event)) for event in events])
    return replace(log, files=digests(place / RUN))


def other_settings(place: Path, log: SeedLog) -> SeedLog:
    path = RunDir(place, RUN).settings
    path.write_text(path.read_text().replace("num_simulations = 16", "num_simulations = 8", 1))
    return replace(log, files=digests(place / RUN))


CHEATS: dict[str, tuple[Cheat, str]] = {
    "a cost": (lambda place, log: claiming(log, cpu_s=12.5), "it claims 12 CPU-seconds, and its clock says 22"),
    "a clock": (lambda place, log: replace(log, clock=[(0.0, 0.0), (15.0, 22.5), (16.0, 90.0)]), "its clock is not one of 2 cores"),
    "an arm that diverged": (lambda place, log: replace(log, ended="training diverged at step 9"), "training diverged at step 9"),
    "a machine": (lambda place, log: replace(log, cores=16), "another class: a processor with 16 cores"),
    "another seed": (lambda place, log: replace(log, seed=2), "its log is of seed 2"),
    "a file": (lambda place, log: replace(log, files={**log.files, "run.toml": "0"}), "run.toml is not the file"),
    "weights of another game": (other_weights, "its weights are of connect_four"),
    "other settings": (other_settings, "it ran with search.num_simulations = 8, and its entry has 16"),
    "other games": (other_games, "games replay otherwise"),
    "no games": (lambda place, log: other_games(place, log, 0), "no recorded games in"),
    "worse weights": (lambda place, log: losing(log, 2, 0.0), "on its own sheet, worse than"),
    "better weights": (lambda place, log: losing(log, 12, 1.0), "on its own sheet, better than"),
    "too hard": (lambda place, log: losing(log, 2, 1.0), "by its log no version is at"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_named(sound: Sound, tmp_path: Path, name: str) -> None:
    folder, log, tracks = sound
    shutil.copytree(folder, tmp_path / "entry")
    cheat, sentence = CHEATS[name]
    place = tmp_path / "entry" / "seed-1"
    cheated = cheat(place, log)
    (place / LOG).write_bytes(msgspec.json.encode(cheated))
    if cheated != log:
        assert "its seal is not that of its lines" in judged(tmp_path / "entry", tracks)["seed-1"]
    (place / LOG).write_bytes(msgspec.json.encode(cheated.sealed()))
    assert sentence in judged(tmp_path / "entry", tracks)["seed-1"]


def test_weights_that_know_only_their_own_sheet_are_named(sound: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, log, tracks = sound
    monkeypatch.setattr(claims, "examine", lambda track, weights, sheet, seed: log.losses if seed == OWN else [1.0] * 300)
    assert "lose 1 on a fresh sheet, worse than" in judged(folder, tracks)["seed-1"]


def test_a_seed_that_is_left_out_is_missed_and_the_table_goes_on(sound: Sound, tmp_path: Path) -> None:
    shutil.copytree(sound[0], tmp_path / "entry")
    for number in (2, 3, 4, 6):
        (tmp_path / "entry" / f"seed-{number}").mkdir()
    refused = judged(tmp_path / "entry", sound[2])
    assert refused.keys() == {"seed-2", "seed-3", "seed-4", "seed-6", "seeds"}
    assert "there are seed-1, seed-2, seed-3, seed-4, seed-6" in refused["seeds"]


def test_a_claim_whose_opponent_is_not_here_is_not_judged(sound: Sound) -> None:
    folder, _, tracks = sound
    away = replace(tracks, tracks={"small": replace(tracks.tracks["small"], exam="gtp:no-such-engine")})
    with pytest.raises(EngineError, match="its opponent is not here; install no-such-engine"):
        claims.verify(folder, away, 5, 2, lambda line: None)
