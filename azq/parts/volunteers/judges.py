"""The judge of a gateway: asks what each contributor's standing asks, of a process that searches plies again, and keeps what came of it."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Protocol

import msgspec

from azq import logs
from azq.errors import EvaluationTimeout, EvaluatorFailure, NotFound
from azq.parts.volunteers.backing import GamesBatch, GamesVerdict, Judge
from azq.parts.volunteers.standing import ContributorStanding, Judgement, TrackRecord, after_batch, standing_of
from azq.parts.volunteers.verifier import Answer, Failed, JudgeRequest
from azq.process.start import PYTHON, bound_to_this
from azq.waiting import AwakeClock

COMMAND = (*PYTHON, "-m", "azq.parts.volunteers.verifier")
ANSWER_AFTER_S = 300.0
LOOK_S = 1.0
TRIES = 3  # of a batch, by a process each that died over it

log = logs.get(__name__)


class Histories(Protocol):
    """Where histories of contributors are kept; `azq.parts.volunteers.contributors.Contributors` fulfils it."""

    def history(self, contributor: str) -> TrackRecord: ...
    def change(self, contributor: str, change: Callable[[TrackRecord], TrackRecord]) -> TrackRecord: ...
    def refusal(self, contributor: str, games: int) -> str:
        """Why so many more games of his are too many now; empty where they are not."""


class VerifyingJudge(Judge):
    """Judges by recomputation: a batch of which two plies differ is refused as a whole."""

    def __init__(self, histories: Histories, verifier: VerifierProcess) -> None:
        self._histories = histories
        self._verifier = verifier

    def standing(self, contributor: str) -> ContributorStanding:
        """What is asked of a contributor now."""
        return standing_of(self._histories.history(contributor))

    def batch_games(self, contributor: str) -> int:
        """As many games as hold the plies of a full batch, by the length of his games so far."""
        history = self._histories.history(contributor)
        return max(1, round(standing_of(history).batch_plies / history.mean_plies))

    def judge(self, batch: GamesBatch) -> GamesVerdict:
        """The verdict; the contributor's history has it. Raises `EvaluatorFailure` or `EvaluationTimeout` where there can be none now."""
        standing = self.standing(batch.contributor)
        if reason := standing.reason or self._histories.refusal(batch.contributor, len(batch.games)):
            return GamesVerdict({}, {each.record.uid: reason for each in batch.games})
        search = batch.search.model_dump_json().encode()
        found = self._verifier.judge(JudgeRequest(batch.run, search, standing.share, batch.games, batch.match))
        try:
            self._histories.change(batch.contributor, lambda history: after_batch(history, found))
        except NotFound:
            return GamesVerdict({}, {each.record.uid: "this device was forgotten; load the page again" for each in batch.games})
        if found.fault:
            log.warning(
                "contributor_refused", contributor=batch.contributor, games=len(found.refused), reason=next(iter(found.refused.values()))
            )
        return GamesVerdict(found.returns, found.refused)


class VerifierProcess:
    """The process that searches plies again, started when it is asked first and whenever it died; what it had is asked anew."""

    def __init__(self, command: Sequence[str] = COMMAND, *, answer_after_s: float = ANSWER_AFTER_S) -> None:
        self._command = tuple(command)  # the number of its end of the pipe follows
        self._answer_after_s = answer_after_s
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def pid(self) -> int:
        """Of the process; 0 where there is none."""
        return self._running[0].pid if self._running else 0

    def judge(self, request: JudgeRequest) -> Judgement:
        """The judgement. Raises `EvaluatorFailure` where the process has none or died `TRIES` times over it, `EvaluationTimeout`."""
        question = msgspec.msgpack.encode(request)
        with self._one_at_a_time:
            for _ in range(TRIES):
                try:
                    answer = self._ask(question)
                    break
                except (EOFError, OSError):
                    log.warning("verifier_died", games=len(request.games))
                    self._end()
            else:
                raise EvaluatorFailure(f"the verifier died {TRIES} times over {len(request.games)} games; its log says why")
        if isinstance(answer, Failed):
            raise EvaluatorFailure(answer.reason)
        return answer.judgement

    def close(self) -> None:
        """Ends the process."""
        with self._one_at_a_time:
            self._end()

    def _ask(self, question: bytes) -> Answer:
        pipe = (self._running or self._start())[1]
        pipe.send_bytes(question)
        awake_s = AwakeClock()
        while not pipe.poll(min(LOOK_S, self._answer_after_s)):
            if awake_s() >= self._answer_after_s:
                self._end()
                raise EvaluationTimeout(f"the verifier gave no answer within {self._answer_after_s:g} s; it is started again")
        answer: Answer = msgspec.msgpack.decode(pipe.recv_bytes(), type=Answer)
        return answer

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = socket.socketpair()
        with theirs:
            command, fds = [*self._command, str(theirs.fileno())], (theirs.fileno(),)
            process = subprocess.Popen(command, pass_fds=fds, start_new_session=True, **bound_to_this(os.environ))
        self._running = process, Connection(ours.detach())
        return self._running

    def _end(self) -> None:
        if self._running is not None:
            process, pipe = self._running
            self._running = None
            pipe.close()
            process.kill()
            process.wait()
