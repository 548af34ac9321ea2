"""A request that kills whoever evaluates it: it is found out, and costs nobody else an answer."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from pathlib import Path

import deadly_inference
import pytest
from deadly_inference import QUICK, SEGFAULT, poison, serve_for_ever
from inference_doubles import RUN, ask, observations, weights
from waiting import PATIENCE_S, until

from azq.errors import EvaluationRefused
from azq.search.evaluator import Evaluation
from azq.wire import codec, keys
from azq.wire.messages import DeadLetter

STREAM = keys.eval_stream(RUN)


class Workers:
    """Inference workers that are started again when they die."""

    def __init__(self, broker, count):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["deadly_inference"])
        self._arguments = broker.control_url, broker.data_url
        self._processes = [self._start() for _ in range(count)]
        self.deaths = 0

    def _start(self):
        process = self._context.Process(target=serve_for_ever, args=self._arguments, daemon=True)
        process.start()
        return process

    def revive(self):
        for place, process in enumerate(self._processes):
            if process.exitcode is not None:
                assert process.exitcode == SEGFAULT
                self.deaths += 1
                self._processes[place] = self._start()

    def kill(self):
        for process in self._processes:
            process.kill()
            process.join()


@pytest.fixture
def workers(broker, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(deadly_inference.__file__).parent))  # the server of forks imports once, for all
    started = []

    def start(count):
        started.append(Workers(broker, count))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def result_of(client, handle, workers, good):
    """The answer to one request, while workers are revived and others go on asking."""
    deadline_s = time.monotonic() + PATIENCE_S
    for number in itertools.count():
        assert time.monotonic() < deadline_s, "no answer"
        workers.revive()
        asked = good.submit(observations(4, seed=number))
        while (answer := good.result(asked, timeout_s=0.02)) is None:
            workers.revive()
            assert time.monotonic() < deadline_s, "another client is not answered"
        assert len(answer.logits) == 4
        if (found := client.result(handle, timeout_s=0.02)) is not None:
            return found
    return None


@pytest.mark.parametrize("count", [1, 3])
def test_it_is_refused_by_name_after_two_deaths_alone(workers, connect, shelf, count):
    shelf.publish(1, weights(1))
    fleet, good, data = workers(count), connect.client("good", resend_after_s=1.0), connect.data()
    bad = connect.client("bad", resend_after_s=1.0)  # sent again and again, under its id
    with pytest.raises(EvaluationRefused, match=r"9 leaves killed their inference worker 2 times while they were evaluated alone"):
        result_of(bad, bad.submit(poison(9)), fleet, good)
    fleet.revive()
    assert QUICK.deaths <= fleet.deaths <= QUICK.deaths + count  # one with others, or with each who met it afresh, and two alone
    assert len(ask(good, observations(4)).logits) == 4
    until(lambda: data.length(STREAM) == 0, "nothing is left pending")
    assert any(codec.decode(entry.frame, DeadLetter).stream == STREAM for entry in data.newest(keys.DEAD, 9))


def test_sent_again_under_another_id_it_kills_nobody_more(workers, connect, shelf):
    shelf.publish(1, weights(1))
    fleet, good, bad = workers(2), connect.client("good", resend_after_s=1.0), connect.client("bad", resend_after_s=1.0)
    with pytest.raises(EvaluationRefused):
        result_of(bad, bad.submit(poison(5)), fleet, good)
    fleet.revive()
    deaths = fleet.deaths
    moved = connect.client("moved", max_in_flight=0)
    again = moved.submit(poison(5))
    moved._outstanding[again].sends, moved.max_in_flight = 3, 1  # as where a client sends again over another broker
    with pytest.raises(EvaluationRefused):
        result_of(moved, again, fleet, good)
    fleet.revive()
    assert fleet.deaths == deaths


def test_what_shared_a_batch_with_it_is_answered(workers, connect, shelf):
    shelf.publish(1, weights(1))
    good, bad = connect.client("good", resend_after_s=60.0), connect.client("bad", resend_after_s=60.0, max_in_flight=1)
    handles = [good.submit(observations(3, seed=number)) for number in range(5)]
    poisoned = bad.submit(poison(2))
    fleet = workers(1)  # finds them all together
    answers: list[Evaluation] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(answers) < 5:
        fleet.revive()
        assert time.monotonic() < deadline_s
        if (answer := good.result(handles[len(answers)], timeout_s=0.05)) is not None:
            answers.append(answer)
    assert good.resent == 0
    with pytest.raises(EvaluationRefused):
        result_of(bad, poisoned, fleet, connect.client("other"))
