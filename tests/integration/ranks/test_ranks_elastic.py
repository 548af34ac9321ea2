"""A leader and its followers over a real broker and a shared folder, forked so that none imports torch again: lost, replaced, slow."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from msgspec.structs import replace
from replay_games import play_game, samples_of_one

from azq import games
from azq.bus.redis import RedisBus
from azq.config import LearnerConfig, NetworkConfig, RunConfig, RunSections
from azq.learner.data.batches import Draws, Prefetcher
from azq.learner.rounds import TrainingRound
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, build
from azq.parts.ranks import leader as leader_module
from azq.parts.ranks.games import open_follower
from azq.parts.ranks.leader import Leader
from azq.parts.ranks.rules import RankPlace
from azq.replay.samples import count_samples
from azq.replay.segments import LogEntry, SegmentLog
from azq.replay.window import Window
from azq.wire.codec import encode
from azq.wire.connect import connect
from azq.wire.messages import SampleEvent

RUN = "ttt"
CPU = torch.device("cpu")
RANKS = 3
FORK = multiprocessing.get_context("fork")


def planted(game: games.Game, uid: int) -> SampleEvent:
    """A random game whose policy targets are the first legal action."""
    event = play_game(game, uid)
    _, legal, _, _ = game.replay(np.frombuffer(event.record.actions, "<u2"))
    policies = np.zeros(legal.shape, "<f2")
    policies[np.arange(len(legal)), legal.argmax(1)] = 1
    return replace(event, record=replace(event.record, policies=policies.tobytes()))


def sections_of(**learner: Any) -> RunSections:
    defaults: dict[str, Any] = {
        "device": "cpu",
        "precision": "float32",
        "batch_size": 48,
        "min_window": 60,
        "learning_rate": 1e-2,
        "symmetries": False,
        "warmup_steps": 2,
        "ranks": RANKS,
    }
    return RunSections(
        run=RunConfig(game="tic_tac_toe"), network=NetworkConfig(blocks=1, channels=8), learner=LearnerConfig(**{**defaults, **learner})
    )


def forked(body: Callable[..., None], *arguments: Any) -> Any:
    def run() -> None:
        torch.set_num_threads(1)
        try:
            body(*arguments)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)

    process = FORK.Process(target=run, daemon=True)
    process.start()
    return process


def follow(url: str, folder: Path, sections: RunSections, rank: int) -> None:
    game = games.load("tic_tac_toe")
    place = RankPlace(rank, RANKS, rank)
    follower = open_follower(RUN, folder, sections, game, bus=RedisBus(connect(url)), place=place)
    signal.signal(signal.SIGUSR1, cut_connections)
    follower.run(threading.Event())


def cut_connections(*_: Any) -> None:
    """Shuts every TCP connection of this process."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr:
            with socket.socket(fileno=os.dup(connection.fd)) as copy:
                copy.shutdown(socket.SHUT_RDWR)


def trainer_of(sections: RunSections) -> Trainer:
    spec = NetSpec.of(games.load("tic_tac_toe"))
    return Trainer(build(sections.network, spec, seed=0), spec, sections.learner, CPU)


def lead(url: str, folder: Path, sections: RunSections, door: Any) -> None:
    """Trains rounds for ever and says after each how it stands."""
    leader_module.POLL_S = leader_module.SETTLE_S = 0.2
    game = games.load("tic_tac_toe")
    config = sections.learner
    window = Window(game, 10_000)
    for uid in range(1, 61):
        window.add(samples_of_one(game, planted(game, uid), config.root_value_fraction))
    trainer = trainer_of(sections)
    feed = Prefetcher(window, Draws(0, trainer.num_symmetries), CPU, 1)
    leader = Leader(trainer, feed, RUN, RedisBus(connect(url)), config, RankPlace(0, RANKS))
    done = 0
    while True:
        leader.poll()
        done += leader.train(TrainingRound(trainer.step, 4, config.batch_size, len(window), 0.0))
        losses, figures = trainer.mean_losses(), leader.figures()
        trainer.reset_losses()
        door.send((trainer.step, done, losses.policy, figures))


class Crew:
    """A leader and its followers, and what the leader said last."""

    def __init__(self, url: str, folder: Path, sections: RunSections) -> None:
        self.url, self.folder, self.sections = url, folder, sections
        game = games.load("tic_tac_toe")
        log = SegmentLog(folder / "segments", "tic_tac_toe")
        events = [planted(game, uid) for uid in range(1, 61)]
        log.append([LogEntry(event.record.uid, count_samples(event), encode(event)) for event in events])
        log.close()
        self.door, inner = FORK.Pipe()
        self.ranks = {rank: forked(follow, url, folder, sections, rank) for rank in range(1, RANKS)}
        self.leader = forked(lead, url, folder, sections, inner)
        self.losses: list[float] = []  # of each round
        self.said: tuple[int, int, float, Any] = (0, 0, 0.0, None)

    def until(self, wanted: Callable[[Any], bool], what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            assert self.door.poll(max(0.0, deadline - time.monotonic())), f"not within {seconds} s: {what}; {self.said}"
            self.said = self.door.recv()
            self.losses += [self.said[2]] if self.said[2] else []  # none of a round that was undone
            if wanted(self.said[3]):
                return

    def steps(self, count: int) -> None:
        begun = self.said[0]
        self.until(lambda _: self.said[0] >= begun + count, f"{count} steps more")

    def close(self) -> None:
        for process in (self.leader, *self.ranks.values()):
            process.kill()
            process.join()


@pytest.fixture
def crew(broker: Any, tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    crews: list[Crew] = []

    def make(**learner: Any) -> Crew:
        crews.append(Crew(broker.control_url, tmp_path, sections_of(**learner)))
        return crews[-1]

    yield make
    for one in crews:
        one.close()


def test_a_killed_rank_is_dropped_training_goes_on_and_another_takes_its_place(crew):
    team = crew()
    team.until(lambda figures: figures.healthy == 3, "three ranks train")
    assert team.said[1] % 4 in (1, 2)  # the first step of each epoch, of one or of two, is taken by itself
    team.steps(20)
    os.kill(team.ranks[2].pid, signal.SIGKILL)
    team.until(lambda figures: figures.failures >= 1 and figures.healthy < 3, "the loss is noticed")
    team.until(lambda figures: figures.healthy == 2, "the other one stays")
    team.steps(20)
    team.ranks[2] = forked(follow, team.url, team.folder, team.sections, 2)
    team.until(lambda figures: figures.healthy == 3, "it is back")
    team.steps(100)
    step, done, _, figures = team.said
    assert step == done  # a round that a loss undid is counted nowhere
    assert sum(team.losses[-5:]) < 0.8 * sum(team.losses[:5])
    assert (figures.ranks, sum(figures.shares)) == (3, 48)
    assert 0 < figures.sync_s < figures.batch_s
    assert 0 < figures.efficiency < 1.5
    assert [(row.rank, row.state) for row in figures.by_rank] == [(0, "trains"), (1, "trains"), (2, "trains")]
    none, _, killed = [(row.errors, bool(row.reason)) for row in figures.by_rank]  # rank 1 may have fallen silent on a busy machine
    assert (none, killed) == ((0, False), (1, True))
    assert sum(row.rows for row in figures.by_rank) == 48
    assert all(row.memory_bytes > 0 and row.batch_s > 0 and row.host and row.device == "cpu" for row in figures.by_rank)


def test_ranks_whose_connections_are_cut_join_again(crew):
    team = crew()
    team.until(lambda figures: figures.healthy == 3, "three ranks train")
    team.steps(20)
    os.kill(team.ranks[2].pid, signal.SIGUSR1)
    team.until(lambda figures: figures.failures >= 1, "the loss is noticed")
    team.until(lambda figures: figures.healthy == 3, "all train again")
    assert team.said[0] == team.said[1]  # a round that a loss undid is counted nowhere
    assert all(process.is_alive() for process in team.ranks.values())


@pytest.mark.slow
def test_a_rank_that_hangs_is_dropped_and_training_goes_on_down_to_one(crew):
    team = crew(rank_timeout_s=1.0)
    team.until(lambda figures: figures.healthy == 3, "three ranks train")
    for rank in (1, 2):
        os.kill(team.ranks[rank].pid, signal.SIGSTOP)
    team.until(lambda figures: figures.failures >= 1 and figures.healthy == 1, "it trains alone")
    team.steps(20)
    for rank in (1, 2):
        os.kill(team.ranks[rank].pid, signal.SIGCONT)
    team.until(lambda figures: figures.healthy == 3, "both are back")
    team.steps(8)
    assert team.said[0] == team.said[1]
