"""Fixtures for every test: a real broker, embedded, on unix sockets that live as long as the session."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from cpu_budget import MARGIN, over_budget, spent_s
from httpx2._config import DEFAULT_TIMEOUT_CONFIG as OF_A_REQUEST
from hypothesis import settings
from waiting import PATIENCE_S
from websockets.sync.client import connect as open_web_socket

from azq.bus.embedded import EmbeddedServer
from azq.wire.connect import connect

# What starts the tests (`nohup`, a shell's background job, a CI runner) may leave signals ignored or blocked, and new files private.
HANDLERS: dict[signal.Signals, Any] = dict.fromkeys((signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD), signal.SIG_DFL)
HANDLERS[signal.SIGINT] = signal.default_int_handler
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.umask(0o022)


def restore_handlers() -> None:
    for number, handler in HANDLERS.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


restore_handlers()
settings.register_profile("azq", deadline=None)  # a busy machine is no failure
if settings.get_current_profile_name() == "default":
    settings.load_profile("azq")
# The same of a request's usual five seconds.
OF_A_REQUEST.connect = OF_A_REQUEST.read = OF_A_REQUEST.write = OF_A_REQUEST.pool = PATIENCE_S
(open_web_socket.__kwdefaults__ or {})["open_timeout"] = PATIENCE_S


@pytest.fixture(autouse=True)
def restored_process() -> Iterator[None]:
    """Signal handlers and log settings of one test end with it."""
    yield
    restore_handlers()
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@dataclass(frozen=True)
class Broker:
    """Both planes of a broker."""

    control_url: str
    data_url: str
    control: EmbeddedServer
    data: EmbeddedServer


@pytest.fixture(scope="session")
def broker_servers() -> Iterator[Broker]:
    """Two embedded servers; they end with the session, and with its process."""
    with tempfile.TemporaryDirectory(prefix="azq-test-") as folder:
        control = EmbeddedServer("control", Path(folder) / "control")
        data = EmbeddedServer("data", Path(folder) / "data")
        try:
            control.start()
            data.start()
            yield Broker(control.url, data.url, control, data)
        finally:
            data.stop()
            control.stop()


@pytest.fixture
def broker(broker_servers: Broker) -> Broker:
    """Both planes, empty at the start of the test."""
    for url in (broker_servers.control_url, broker_servers.data_url):
        client = connect(url)
        client.flushall()
        client.close()
    return broker_servers


_spent_s = 0.0


def pytest_collection_finish() -> None:
    """What imports cost is no test's."""
    global _spent_s
    _spent_s = spent_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Each part of a test that runs by default carries its CPU seconds, from a worker of xdist too."""
    global _spent_s
    report, before, _spent_s = (yield), _spent_s, spent_s()
    if not any(item.get_closest_marker(name) for name in ("slow", "release", "drill", "gpu")):
        report.cpu_s = _spent_s - before  # type: ignore[attr-defined]
    return report


def spent_by(reporter: pytest.TerminalReporter) -> list[tuple[str, float]]:
    return [(report.nodeid, report.cpu_s) for reports in reporter.stats.values() for report in reports if hasattr(report, "cpu_s")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The unit tests that cost most, where they cost too much."""
    if lines := over_budget(spent_by(terminalreporter)):
        terminalreporter.section(f"unit tests over 2 s a case or 10 s a file of CPU time; {MARGIN:.0f} times as much fails")
        terminalreporter.write_line("\n".join(lines[:30]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.exitstatus == pytest.ExitCode.OK and reporter is not None and over_budget(spent_by(reporter), MARGIN):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
