"""The TLS front before a real server: what goes through, who is kept out, and what happens when either side goes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from front_doubles import FrontProcess
from waiting import PATIENCE_S

from azq.bus import certificate, tls_proxy
from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.bus.tls_proxy import TlsProxy, listen
from azq.config.host import trusting
from azq.errors import BrokerRefused, BrokerUnavailable, ConfigError
from azq.host.fronts import free_port
from azq.wire import tls
from azq.wire.codec import MAX_FRAME_BYTES
from azq.wire.connect import connect, open_client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def fronted(server: EmbeddedServer, tmp_path: Path) -> Iterator[FrontProcess]:
    process = FrontProcess(server, tmp_path, free_port())
    yield process
    process.stop()


class Inside:
    """A front in a thread of this process, whose bounds a test may set."""

    def __init__(self, server: Path, folder: Path, max_clients: int) -> None:
        listener = listen("127.0.0.1", 0)
        self.address = listener.getsockname()
        self.certificate, key = certificate.ensure(folder / "tls", "127.0.0.1")
        self.front = TlsProxy(listener, server, self.certificate, key, max_clients=max_clients)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=tls_proxy.serve, args=(self.front, lambda: None, self._stop.is_set))
        self._thread.start()

    def shake_hands(self) -> ssl.SSLSocket:
        return tls.context_for(str(self.certificate)).wrap_socket(socket.create_connection(self.address, timeout=PATIENCE_S))

    def close(self) -> None:
        self._stop.set()
        with contextlib.suppress(OSError):
            socket.create_connection(self.address, timeout=1.0).close()  # ends its wait
        self._thread.join(PATIENCE_S)
        self.front.close()


def test_everything_that_brokers_carry_goes_through(fronted: FrontProcess) -> None:
    bus = RedisBus(connect(fronted.url, blocking=True))
    with contextlib.closing(connect(fronted.url, blocking=True)) as client:
        client.set("wide", bytes(range(256)) * (MAX_FRAME_BYTES // 256))
        assert client.get("wide") == bytes(range(256)) * (MAX_FRAME_BYTES // 256)
        client.xgroup_create("stream", "group", mkstream=True)
        answers: list[object] = []
        readers = [
            threading.Thread(target=lambda: answers.append(client.xreadgroup("group", "me", {"stream": ">"}, block=5000))),
            threading.Thread(target=lambda: answers.append(client.blpop(["list"], timeout=5))),
        ]
        for reader in readers:
            reader.start()
        with connect(fronted.url) as other, other.pipeline(transaction=False) as pipe:
            for number in range(1000):
                pipe.set(f"k{number}", b"x" * number)
            assert pipe.execute() == [True] * 1000
            other.xadd("stream", {"f": b"y" * 300_000})
            other.rpush("list", b"z" * 300_000)
        for reader in readers:
            reader.join(PATIENCE_S)
        assert len(answers) == 2
    bus.close()


def test_a_client_that_does_not_read_holds_up_nobody_else(fronted: FrontProcess) -> None:
    with connect(fronted.url) as client:
        client.set("wide", bytes(4_000_000))
        lazy = connect(fronted.url).connection_pool.get_connection()
        for _ in range(16):
            lazy.send_command("GET", "wide")
        for _ in range(100):
            assert client.ping()
        for _ in range(16):
            assert len(lazy.read_response()) == 4_000_000
        lazy.disconnect()


def test_another_certificate_is_refused_before_the_password_leaves(server: EmbeddedServer, fronted: FrontProcess, tmp_path: Path) -> None:
    stranger = certificate.ensure(tmp_path / "stranger", "127.0.0.1")[0]
    with pytest.raises(BrokerUnavailable, match=r"certificate is not the one that broker\.tls_ca vouches for"):
        connect(trusting(fronted.plain_url, str(stranger)))
    with pytest.raises(BrokerUnavailable, match="certificate"):
        connect(fronted.plain_url)  # the system's authorities do not know it
    with pytest.raises(BrokerRefused, match="the token was not sent"):
        tls.fetch_certificate(fronted.url, "0" * 64)
    own = fronted.certificate.read_text()
    assert tls.fetch_certificate(fronted.url, tls.fingerprint(own)) == own
    with connect(server.url) as client:
        assert client.info("stats")["total_connections_received"] <= 6  # none of these reached the server


def test_the_systems_authorities_do_not_weaken_a_pin(fronted: FrontProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = certificate.ensure(tmp_path / "other", "127.0.0.1")[0]
    monkeypatch.setenv("SSL_CERT_FILE", str(fronted.certificate))  # now the system vouches for it
    connect(fronted.plain_url).close()
    with pytest.raises(BrokerUnavailable, match="certificate"):
        connect(trusting(fronted.plain_url, str(other)))


def test_plaintext_and_tls_that_meet_each_other_are_told_so(fronted: FrontProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "FETCH_TIMEOUT_S", 0.5)
    with pytest.raises(BrokerRefused, match="speaks TLS only: use a rediss://"):
        connect(fronted.url.partition("?")[0].replace("rediss://", "redis://"))
    assert '"event": "plaintext_refused"' in fronted.log
    bare = EmbeddedServer("data", tmp_path / "bare", listen=("127.0.0.1", free_port()))
    bare.start()
    try:
        port = redis.Redis.from_url(bare.url).info("server")["tcp_port"]
        with pytest.raises(BrokerUnavailable, match="speak TLS"):
            connect(trusting(f"rediss://127.0.0.1:{port}/0", str(fronted.certificate)), timeout_s=0.5)
        with pytest.raises(BrokerUnavailable, match="speak TLS"):
            tls.fetch_certificate(f"rediss://127.0.0.1:{port}/0", "0" * 64)
    finally:
        bare.stop()


def test_clients_come_back_after_the_front_was_killed(fronted: FrontProcess) -> None:
    with contextlib.closing(open_client(fronted.url)) as client:
        bus = RedisBus(client)
        assert bus.ping() < 5
        fronted.kill()
        with pytest.raises(BrokerUnavailable):
            bus.ping()
        fronted.start()
        assert bus.ping() < 5
    assert fronted.stop() == 0


def test_clients_hear_that_the_server_went_and_come_back_with_it(server: EmbeddedServer, fronted: FrontProcess) -> None:
    with contextlib.closing(open_client(fronted.url)) as client:
        client.set("kept", "here")
        server.stop()
        bus = RedisBus(client)
        for _ in range(2):  # the connection that there was, and a new one
            with pytest.raises(BrokerUnavailable):
                bus.ping()
        server.start()
        assert client.get("kept") == b"here"


def test_a_client_that_only_closes_its_sending_half_gets_what_it_is_owed(server: EmbeddedServer, tmp_path: Path) -> None:
    inside = Inside(server.socket, tmp_path, 10)
    with contextlib.closing(inside), inside.shake_hands() as client:
        client.sendall(f"AUTH {server.password}\r\nPING\r\n".encode())
        client.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            client.unwrap()  # says that nothing more comes, and does not wait for the same from there
        client.setblocking(True)
        said = b""
        with contextlib.suppress(ssl.SSLZeroReturnError):
            while part := client.recv(1024):
                said += part
        assert said == b"+OK\r\n+PONG\r\n"


def test_who_shows_no_password_is_sent_away(server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Inside(server.socket, tmp_path, 10)
    with contextlib.closing(inside):
        with inside.shake_hands() as client:
            client.sendall(b"PING\r\nPING\r\n")
            said = b""
            while part := client.recv(1024):
                said += part
            assert said.startswith(b"-NOAUTH")
        known = inside.shake_hands()
        known.sendall(f"AUTH {server.password}\r\n".encode())
        assert known.recv(100) == b"+OK\r\n"
        monkeypatch.setattr(tls_proxy, "LOGIN_S", 0.05)
        with inside.shake_hands() as silent, socket.create_connection(inside.address, timeout=PATIENCE_S) as mute:
            assert silent.recv(1) == b""
            assert mute.recv(1) == b""
        known.sendall(b"PING\r\n")
        assert known.recv(100) == b"+PONG\r\n"
        known.close()


def test_a_full_house_drops_strangers_first(server: EmbeddedServer, tmp_path: Path) -> None:
    inside = Inside(server.socket, tmp_path, 2)
    with contextlib.closing(inside), contextlib.ExitStack() as stack:

        def enter() -> ssl.SSLSocket:
            client = stack.enter_context(inside.shake_hands())
            client.sendall(f"AUTH {server.password}\r\n".encode())
            assert client.recv(100) == b"+OK\r\n"
            return client

        first = enter()
        stranger = stack.enter_context(inside.shake_hands())
        second = enter()
        assert stranger.recv(1) == b""
        with pytest.raises((OSError, AssertionError)):
            enter()
        for client in (first, second):
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PONG\r\n"


def test_a_front_that_cannot_serve_says_why(server: EmbeddedServer, tmp_path: Path) -> None:
    files = certificate.ensure(tmp_path / "tls", "127.0.0.1")
    with contextlib.closing(listen("127.0.0.1", 0)) as taken:
        with pytest.raises(BrokerUnavailable, match="cannot be listened on"):
            listen("127.0.0.1", taken.getsockname()[1])
        files[1].write_text("no key")
        with pytest.raises(ConfigError, match="delete both"):
            TlsProxy(taken, server.socket, *files)
