"""Whether a provider takes this machine back, as its instance metadata tells (AWS: version 2, path `spot/instance-action`)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from azq import logs
from azq.errors import ConfigError, reason_of

TOKEN, ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"
TOKEN_LIFE, TOKEN_HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
LIFE_S = 21_600
TIMEOUT_S = 1.0
LONGEST = 4096  # bytes of an answer

log = logs.get(__name__)


class SpotNotice:
    """Asks at one address, never through a proxy. An address that does not answer is said once, and asked again."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"machine.metadata_url {url!r} is no http address; that of AWS is http://169.254.169.254")
        self._url = url.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token = ""
        self._away = False

    def ask(self) -> str:
        """What is announced, as `spot interruption: terminate at 2026-01-13T12:00:00Z`; empty where nothing is."""
        try:
            return self._said(self._look())
        except urllib.error.HTTPError as error:
            error.close()
            self._token = ""  # it may have run out
            self._missed("" if error.code == 404 else f"status {error.code}")
        except (OSError, ValueError) as error:
            self._missed(reason_of(error))
        return ""

    def _look(self) -> bytes:
        if not self._token:
            self._token = self._answer("PUT", TOKEN, {TOKEN_LIFE: str(LIFE_S)}).decode("ascii")
        return self._answer("GET", ACTION, {TOKEN_HEADER: self._token})

    def _answer(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(self._url + path, headers=headers, method=method)
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read(LONGEST))

    @staticmethod
    def _said(body: bytes) -> str:
        said = json.loads(body)
        known = isinstance(said, dict) and {"action", "time"} <= said.keys()
        return f"spot interruption: {said['action']} at {said['time']}" if known else ""

    def _missed(self, why: str) -> None:
        if why and not self._away:
            log.warning("metadata_away", url=self._url, reason=why, remedy="set machine.metadata_url, or leave it empty")
        self._away = bool(why)
