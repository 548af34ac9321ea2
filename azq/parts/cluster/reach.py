"""The way to the machines of a cluster: an order goes over ssh, or whatever command the file names, and comes back answered."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import msgspec

from azq import __version__
from azq.errors import AzqError, HostError
from azq.host.join.member import MemberOrder, MemberReport, answer
from azq.parts.cluster.description import Reaching
from azq.parts.cluster.members import Member, Seen
from azq.process.start import foreign_environment

PATIENCE_S = 30.0  # beyond what an order itself may take: connecting, starting Python
AT_ONCE = 16
OURS = "azq: "  # what azq says of an error begins so


class OrderRefused(HostError):
    """A machine was reached, and azq there says why it cannot."""


def words_for(reaching: Reaching, host: str) -> list[str]:
    """The command that has azq answer an order on a host."""
    user, _, address = host.rpartition("@")
    output = {"{host}": host, "{user}": user, "{address}": address}
    wanted = [*reaching.azq, "cluster", "member"]
    words = [output.get(word, word) for word in reaching.command]
    if "{command}" not in words:
        return [*words, *wanted]
    return [shlex.join(wanted) if word == "{command}" else word for word in words]


class Reach:
    """Every machine of a cluster; what is on its way ends with the context."""

    def __init__(self, reaching: Reaching) -> None:
        self._reaching = reaching
        self._under_way: set[subprocess.Popen[str]] = set()
        self._lock = Lock()

    def ask(self, member: Member, order: MemberOrder) -> MemberReport:
        """The answer. Raises `OrderRefused` where azq there says no, `HostError` without an answer."""
        if not member.host:
            return _here(order)
        words, within_s = words_for(self._reaching, member.host), order.within_s + PATIENCE_S
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=foreign_environment(),
                start_new_session=True,  # Ctrl-C is for this process, which says what is left
            )
        except OSError as error:
            raise HostError(f"{words[0]!r} cannot be started here: {error.strerror}; mend ssh.command") from None
        with self._lock:
            self._under_way.add(process)
        try:
            output, complaint = process.communicate(msgspec.json.encode(order).decode(), within_s)
        except subprocess.TimeoutExpired:
            raise HostError(f"no answer within {within_s:g} s") from None
        finally:
            with process, self._lock:
                process.kill()  # where it did not end by itself
                self._under_way.discard(process)
        return _report(process.returncode, output, complaint)

    def ask_all(
        self, orders: Mapping[str, tuple[Member, MemberOrder]], hear: Callable[[str, Seen], object] | None = None
    ) -> dict[str, Seen]:
        """The answers of several at once, by name, or why there is none; `hear` is called with each as it comes."""

        def ask_one(name: str) -> Seen:
            try:
                seen: Seen = self.ask(*orders[name])
            except HostError as error:
                seen = str(error)
            if hear is not None:
                hear(name, seen)
            return seen

        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            return dict(zip(orders, pool.map(ask_one, orders), strict=True))
        finally:
            self.close()
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Ends what is on its way."""
        with self._lock:
            for process in self._under_way:
                process.kill()


def _here(order: MemberOrder) -> MemberReport:
    """What this machine answers itself."""
    try:
        return answer(order)
    except AzqError as error:
        raise OrderRefused(str(error)) from None


def _report(code: int, output: str, complaint: str) -> MemberReport:
    lines = [line for line in complaint.strip().splitlines() if line]
    if code != 0:
        own = [line.removeprefix(OURS) for line in lines if line.startswith(OURS)]
        if own:
            raise OrderRefused(own[-1])
        raise HostError(f"{lines[-1] if lines else 'it said nothing'} (exit code {code})")
    with contextlib.suppress(msgspec.DecodeError):
        report = msgspec.json.decode(output, type=MemberReport)
        if report.version != __version__:
            raise OrderRefused(f"azq {report.version} is installed there and {__version__} here; install one version on all hosts")
        return report
    raise HostError(f"what answers there is no azq of this version: {output[:80]!r}")
