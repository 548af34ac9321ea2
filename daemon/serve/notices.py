"""Posts notices to the operator's webhook, from a thread: the daemon never waits for the receiver."""

from __future__ import annotations

import queue
import threading
from dataclasses import asdict

import httpx2

from azq import logs
from azq.config import NoticesConfig
from azq.errors import ConfigError
from azq.process.network import open_web, way_to
from azq.waiting import Backoff
from daemon.decide.notices import Notice

WAITING = 100  # notices at most; beyond that new ones are dropped
ATTEMPTS = 5
TIMEOUT_S = 10.0
BACKOFF = Backoff(1.0, 30.0)
BUSY = frozenset({408, 425, 429})  # refusals that a later attempt may not meet

log = logs.get(__name__)


class Webhook(threading.Thread):
    """Sends notices in order, with so many attempts each. Its address is a secret and in no log."""

    def __init__(self, config: NoticesConfig, *, backoff: Backoff = BACKOFF) -> None:
        super().__init__(name="notices", daemon=True)
        self._url = config.webhook.get_secret_value()
        self._backoff = backoff
        self._waiting: queue.Queue[Notice] = queue.Queue(WAITING)
        self._over = threading.Event()

    def __enter__(self) -> Webhook:
        if self._url:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def send(self, notice: Notice) -> None:
        """Queues a notice; never waits. Nothing where no webhook is set."""
        if not self._url:
            return
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            log.warning("notice_dropped", kind=notice.kind, run=notice.run, reason=f"{WAITING} others wait for the webhook")

    def run(self) -> None:
        """Sends what is waiting until this process ends."""
        try:
            opened = open_web(self._url, timeout_s=TIMEOUT_S)
        except ConfigError as error:
            log.error("notices_off", reason=str(error))
            return
        with opened as http:
            while not self._over.is_set():
                notice = self._waiting.get()
                if reason := self._refusal(http, notice):
                    log.warning("notice_not_told", kind=notice.kind, run=notice.run, reason=reason, remedy="look at notices.webhook")

    def _refusal(self, http: httpx2.Client, notice: Notice) -> str:
        """Why a notice was not taken; empty where it was."""
        reason = "the daemon ends"
        for failures in range(ATTEMPTS):
            if self._over.wait(self._backoff.pause_s(failures)):
                break
            try:
                status = http.post(self._url, json=asdict(notice)).status_code
            except httpx2.HTTPError as error:
                reason = f"{type(error).__name__}{way_to(self._url)}"  # its words may name the address
                continue
            if status < 300:
                return ""
            reason = f"answered {status}"
            if status < 500 and status not in BUSY:
                break
        return reason
