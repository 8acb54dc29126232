"""Sign-in with a token: slow verdicts, refusals, sessions that the server ends, and renewal."""

import asyncio
import base64
import json
import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from libs.bus.credentials import Credentials
from libs.bus.nats import base_connection, pauses
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.client import PatchedClient
from libs.bus.port import BusUnavailable
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from tests.component.bus.fake_server import ACCEPT, REFUSE, FakeServer, running
from tests.component.bus.recorders import RecordingHandler
from tests.support import eventually

T = TypeVar("T")

AGENT = Identity(writer=Writer.DRIVER, node="a")
BEAT = str(subjects.Beat(cluster="default", node="a", component="driver"))
LIFE = 1000.0


class Impatient(random.Random):
    """Records the longest pause of each draw and waits a thousandth of it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.pauses: list[float] = []
        self.servers: list[int] = []

    def uniform(self, a: float, b: float) -> float:
        if a > 0.0:  # the part of a token's life
            return a
        if b > 0.0:
            self.pauses.append(b)
        return b / 1000.0

    def choice(self, seq: Sequence[T]) -> T:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.servers.append(len(seq))
        return seq[0]


class MovedClock(SystemClock):
    """The machine's clock, with a wall time that a test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


def jwt(issued: float, expires: float) -> str:
    """Return an unsigned token with these times."""
    claims = json.dumps({"iat": issued, "exp": expires}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.x"


class TokenFile:
    """A token that is replaced while it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("abc")

    def write(self, token: str) -> None:
        self.path.write_text(token)

    def remove(self) -> None:
        self.path.unlink()


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "SIGN_IN_RETURNS", 0.0)


class Client:
    """An agent with a token, which does not wait between its tries."""

    def __init__(self, token: TokenFile) -> None:
        self.token = token
        self.clock = MovedClock()
        self.impatient = Impatient()

    def connect(self, url: str, *, wait: float = 10.0) -> AbstractAsyncContextManager[NatsBus]:
        return connect(
            url=url,
            identity=AGENT,
            env=make_env(random=self.impatient, clock=self.clock),
            credentials=Credentials(token_file=str(self.token.path)),
            wait=wait,
        )

    @asynccontextmanager
    async def on(self, server: FakeServer | NatsServer) -> AsyncGenerator[NatsBus]:
        """Connect, with a guard that must not end."""
        async with self.connect(server.url) as bus:
            guard = asyncio.create_task(bus.guard())
            try:
                yield bus
                assert not guard.done()
            finally:
                guard.cancel()
                await asyncio.gather(guard, return_exceptions=True)

    @asynccontextmanager
    async def session(self, server: FakeServer) -> AsyncGenerator[tuple[FakeServer, NatsBus]]:
        """Run a server, and connect to it."""
        async with running(server), self.on(server) as bus:
            yield server, bus


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(TokenFile(tmp_path / "token"))


def warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    """Return the warnings that contain these words."""
    messages = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [message for message in messages if words in message]


async def test_pings_during_the_first_sign_in_are_answered(client: Client) -> None:
    async with client.session(FakeServer(ACCEPT, pings=3)) as (server, bus):
        assert bus.link.is_up
        assert (server.answered_pings, len(server.connects)) == (3, 1)
        assert server.connects[0]["auth_token"] == "abc"


async def test_what_a_server_says_before_the_verdict_is_passed_over(client: Client) -> None:
    async with client.session(FakeServer(b"+OK\r\nINFO {}\r\n" + ACCEPT)) as (server, bus):
        assert bus.link.is_up
        assert len(server.connects) == 1


async def test_a_server_of_another_kind_is_told_by_what_it_says(client: Client) -> None:
    async with running(FakeServer(b"HTTP/1.1 400 Bad Request\r\n")) as server:
        said = r"not the line of a NATS server: b'HTTP/1\.1 400 Bad Request"
        with pytest.raises(BusUnavailable, match=said):
            async with client.connect(server.url, wait=0.5):
                pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (b"", "is unreachable: nats: unexpected EOF"),
        (b"-ERR 'Maximum Connections Exceeded'\r\n", "ended the session: nats: 'maximum"),
    ],
)
async def test_a_connection_that_is_lost_is_told_with_its_cause_and_one_that_is_closed_is_not(
    client: Client,
    caplog: pytest.LogCaptureFixture,
    error: bytes,
    told: str,
) -> None:
    async with running(FakeServer(ACCEPT)) as server:
        async with client.on(server) as bus:
            server.end_sessions(error)
            await eventually(lambda: len(server.connects) == 2 and bus.link.is_up)
        assert [told in each for each in warnings(caplog, "NATS at")] == [True]


async def test_a_late_refusal_at_a_reconnect_is_tried_again(client: Client) -> None:
    verdicts = (ACCEPT, REFUSE, REFUSE, ACCEPT)
    async with client.session(FakeServer(*verdicts, pings=1)) as (server, bus):
        changes: list[bool] = []
        bus.link.watch(changes.append)
        server.end_sessions(b"")
        await eventually(lambda: len(server.connects) == 4 and bus.link.is_up)
        assert changes == [False, True]
        assert server.answered_pings == 4


async def test_a_refused_token_is_tried_again_and_told_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.session(FakeServer(*[REFUSE] * 5, ACCEPT)) as (server, _):
        assert len(server.connects) == 6
    told = warnings(caplog, "refused the token")
    assert len(told) == 1
    assert str(client.token.path) in told[0]
    assert "the sign-in service is away or slow" in told[0]
    assert "its log" in told[0]
    assert client.impatient.pauses[:5] == [1.0, 2.0, 4.0, 8.0, 10.0]


async def test_a_refusal_that_lasts_is_in_the_error_and_in_the_readiness(client: Client) -> None:
    async with client.session(FakeServer(ACCEPT, REFUSE)) as (server, bus):
        server.end_sessions(b"")
        await eventually(lambda: len(server.connects) > 3)
        assert "refused the token" in (bus.unready_reason() or "")
        with pytest.raises(BusUnavailable, match=r"within 0\.5 s: the server refused the token"):
            async with client.connect(server.url, wait=0.5):
                pass


@pytest.mark.parametrize(
    "error",
    [
        "User Authentication Expired",
        "Authorization Violation",
        "Authentication Revoked",
        "Maximum Connections Exceeded",
    ],
)
async def test_a_session_that_the_server_ends_is_followed_by_another(
    client: Client, error: str
) -> None:
    async with client.session(FakeServer(ACCEPT)) as (server, bus):
        client.token.write("renewed")
        server.end_sessions(f"-ERR '{error}'\r\n".encode())
        await eventually(lambda: len(server.connects) == 2 and bus.link.is_up)
        assert server.connects[1]["auth_token"] == "renewed"


async def test_sessions_that_are_ended_at_once_are_retried_ever_more_slowly(client: Client) -> None:
    async with client.session(FakeServer(ACCEPT)) as (server, bus):
        for number in range(1, 6):
            server.end_sessions(b"-ERR 'Maximum Subscriptions Exceeded'\r\n")
            await eventually(lambda n=number: len(server.connects) == n + 1 and bus.link.is_up)
        assert client.impatient.pauses == [1.0, 2.0, 4.0, 8.0, 16.0]


async def test_a_server_without_a_verdict_is_given_up_and_tried_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_connection, "CONNECT_SECONDS", 0.3)
    async with running(FakeServer(ACCEPT, pings=1)) as server:
        server.is_silent = True
        opening = client.on(server)
        connecting = asyncio.create_task(opening.__aenter__())
        await eventually(lambda: len(server.connects) == 3)
        server.is_silent = False
        bus = await connecting
        assert bus.link.is_up
        await opening.__aexit__(None, None, None)


async def test_servers_that_are_not_configured_get_no_token(client: Client) -> None:
    async with client.session(FakeServer(ACCEPT, connect_urls=["192.0.2.1:4222"])) as (server, bus):
        server.end_sessions(b"")
        await eventually(lambda: len(server.connects) == 2 and bus.link.is_up)
        assert client.impatient.servers == [1]


async def test_a_reload_that_ends_all_sessions_is_survived(client: Client) -> None:
    async with (
        NatsServer(config="authorization { token: abc }") as server,
        client.on(server) as bus,
    ):
        handler = RecordingHandler()
        await bus.subscribe(BEAT, handler)
        await server.reload("authorization { token: def }")
        await eventually(lambda: "refused the token" in (bus.unready_reason() or ""))
        client.token.write("def")
        await eventually(lambda: bus.link.is_up)
        await bus.publish(BEAT, b"after")
        await eventually(lambda: handler.received == [(BEAT, b"after")])


async def test_a_client_that_gave_up_ends_the_guard(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(base_connection, "WATCH_SECONDS", 0.1)
    async with running(FakeServer(ACCEPT)) as server, client.connect(server.url) as bus:
        monkeypatch.setattr(PatchedClient, "_connect_to_server", defect)
        server.end_sessions(b"")
        with pytest.raises(BusUnavailable, match="closed permanently: ValueError: a defect"):
            await asyncio.wait_for(bus.guard(), 30)


async def test_a_session_is_renewed_with_a_newer_token(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(base_connection, "WATCH_SECONDS", 0.02)
    reads = 0
    read = Credentials.token

    def counted(credentials: Credentials) -> str:
        nonlocal reads
        reads += 1
        return read(credentials)

    monkeypatch.setattr(Credentials, "token", counted)
    clock = client.clock
    began = clock.now()
    first, second = jwt(began, began + LIFE), jwt(began + 800, began + 800 + LIFE)
    client.token.write(first)
    async with client.session(FakeServer(ACCEPT)) as (server, bus):
        client.token.write(second)
        clock.ahead = 0.84 * LIFE
        await asyncio.sleep(0.1)
        assert (reads, len(server.connects)) == (1, 1)

        client.token.write(first)
        clock.ahead = 0.86 * LIFE
        await eventually(lambda: reads > 3)
        assert len(server.connects) == 1
        assert len(warnings(caplog, "no newer token")) == 1

        client.token.remove()
        await eventually(lambda: reads > 6)
        client.token.write(second)
        await eventually(lambda: len(server.connects) == 3 and bus.link.is_up)
        trial = second
        assert [each["auth_token"] for each in server.connects] == [first, trial, second]
        assert client.impatient.pauses == []
        assert warnings(caplog, "NATS at") == []
        await asyncio.sleep(0.1)
        assert (len(server.connects), server.sessions) == (3, 1)


async def test_what_was_published_before_a_renewal_arrives(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_connection, "WATCH_SECONDS", 0.02)
    clock = client.clock
    began = clock.now()
    client.token.write(jwt(began, began + LIFE))
    async with (
        NatsServer() as server,
        client.on(server) as bus,
        connect(url=server.url, identity=AGENT, env=make_env()) as other,
    ):
        handler = RecordingHandler()
        await other.subscribe(BEAT, handler)
        changes: list[bool] = []
        bus.link.watch(changes.append)
        client.token.write(jwt(began + 800, began + 800 + LIFE))
        clock.ahead = 0.9 * LIFE
        sent = 0
        while not changes:
            try:
                await bus.publish(BEAT, str(sent).encode())
            except BusUnavailable:
                break
            sent += 1
            await asyncio.sleep(0)
        await eventually(lambda: changes == [False, True])
        await bus.publish(BEAT, b"last")
        await eventually(lambda: handler.received[-1:] == [(BEAT, b"last")])
        assert [data for _, data in handler.received[:-1]] == [
            str(number).encode() for number in range(sent)
        ]
