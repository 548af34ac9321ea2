"""The REST interface on its own thread."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from azq.errors import AzqError
from daemon.serve.conversation import Conversation
from daemon.serve.door import BACKLOG, Door

START_WITHIN_S = 15.0
STOP_WITHIN_S = 5.0
SWEEP_S = 1


class Server:
    """uvicorn in a thread; signals stay with the main thread."""

    def __init__(self, app: FastAPI, listener: Door, *, certificate: Path | None = None, key: Path | None = None) -> None:
        settings = uvicorn.Config(
            app,
            http=partial(Conversation, listener),  # type: ignore[arg-type]
            ws="none",
            loop="asyncio",  # which accepts through the listener's own method
            backlog=BACKLOG,
            callback_notify=listener.sweep,
            timeout_notify=SWEEP_S,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(settings)
        self._listener = listener
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, name="rest", daemon=True)

    def start(self) -> None:
        """Returns once it listens; `AzqError` when it does not get that far."""
        self._thread.start()
        deadline = time.monotonic() + START_WITHIN_S
        waiting = threading.Event()
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise AzqError("the REST interface did not start; see the lines above")
            waiting.wait(0.01)

    @property
    def alive(self) -> bool:
        """False once the thread died."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Lets open requests end, for a while."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_WITHIN_S)
        self._listener.close()
