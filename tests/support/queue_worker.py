"""A Celery worker of its arguments, URL and queues, that completes whatever it takes."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import Popen


def start_worker(url: str, queues: str, log: Path) -> Popen[bytes]:
    with log.open("wb") as file:
        return Popen([sys.executable, str(Path(__file__)), url, queues], stdout=file, stderr=file)


def main(url: str, queues: str) -> None:
    from azq.ledger import Ledger
    from azq.queue import make_app
    from azq.wire.connect import connect

    def run(job_id: str, attempt: int) -> None:
        ledger = Ledger(connect(url))
        lease = ledger.claim(job_id, attempt, "worker", 30)
        if lease is not None:
            ledger.complete(lease, b"done")

    app = make_app(url, tags=("jarvis",))
    for kind in ("selfplay", "eval"):
        app.task(name=f"azq.{kind}")(run)
    app.worker_main(["worker", "-P", "solo", "-Q", queues, "--without-mingle", "--without-gossip", "--loglevel", "INFO"])


if __name__ == "__main__":
    main(*sys.argv[1:])
