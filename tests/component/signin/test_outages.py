"""While sign-in is away: who stays connected, how others wait, and how all come back."""

import asyncio
import base64
import json
import logging
import random
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from libs.bus.credentials import Credentials
from libs.bus.nats import base_connection
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.failures import REPEAT_SECONDS
from libs.bus.nats.renewal import MAX_PAUSE
from libs.bus.port import BusUnavailable
from libs.bus.token_renewal import LATEST
from libs.contracts.identities import Identity, Writer
from libs.kube.resources import NODES
from libs.policy.render.agents import TOKEN_SECONDS
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.sign_in import TokenSignIn, signed_nats
from libs.testing.simulation import make_env
from services.signin.claims import SESSION_GRACE
from tests.component.signin.world import Pod, World, metrics
from tests.security.identities import beat
from tests.support import eventually

AGENT = Identity(writer=Writer.DRIVER, node="gpu-1")
HOUR = 3600.0
STEP = 20.0
AGENTS = 12


class JumpingClock(SystemClock):
    """A clock that a sleep sets ahead instead of waiting, and a test too."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ahead += seconds
        await asyncio.sleep(0)


def waiting(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of those who wait for a connection."""
    messages = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [message for message in messages if "is waiting for NATS" in message]


async def hears(bus: NatsBus, listener: NatsBus) -> None:
    """Require that a heartbeat arrives."""
    arrived = asyncio.Event()

    def received(_subject: str, _data: bytes, _reply: str) -> None:
        arrived.set()

    subscription = await listener.subscribe(beat(bus.identity), received)
    await bus.publish(beat(bus.identity), b"x")
    await eventually(arrived.is_set)
    await subscription.close()


async def test_sessions_stay_and_new_ones_wait(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.nats.restart(world.config().replace("timeout: 10", "timeout: 1"))
    child = await world.start()
    agent, scheduler = await world.pod(Writer.DRIVER, "gpu-1"), await world.pod(Writer.SCHEDULER)
    late = await world.pod(Writer.TELEMETRY, "gpu-2")
    async with world.connect(agent) as bus, world.connect(scheduler) as service:
        changes: list[bool] = []
        for each in (bus, service):
            each.link.watch(changes.append)
        await child.end(signal.SIGKILL, code=-signal.SIGKILL)
        tries = len(_closed_by_timeout(world.nats))
        connecting = asyncio.create_task(_connected(world, late))
        await eventually(lambda: len(_closed_by_timeout(world.nats)) >= tries + 3, within=60.0)
        await hears(bus, service)
        assert not connecting.done()
        (line,) = waiting(caplog)
        assert "the sign-in service is away or slow" in line
        await world.start()
        await connecting
        assert changes == []


def _closed_by_timeout(server: NatsServer) -> list[str]:
    return [line for line in server.log.splitlines() if "authentication error" in line.lower()]


async def _connected(world: World, pod: Pod) -> None:
    async with world.connect(pod, wait=60.0):
        pass


@asynccontextmanager
async def refusing(folder: Path) -> AsyncGenerator[tuple[NatsServer, TokenSignIn]]:
    """Run a sign-in that knows no token: to a client it is the same as none, but without delay."""
    sign_in = TokenSignIn([AGENT], folder)
    sign_in.pods.clear()
    async with signed_nats(sign_in) as server:
        yield server, sign_in


@pytest.mark.dear("an hour of sign-ins at a real server, one after another")
async def test_an_hour_of_waiting_is_a_line_every_ten_minutes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("a")
    clock = JumpingClock()
    async with refusing(tmp_path) as (server, sign_in):
        with pytest.raises(BusUnavailable, match="within 3600 s: the server refused the token"):
            async with connect(
                url=server.url,
                identity=AGENT,
                env=make_env(clock=clock, random=random.Random(1)),
                credentials=Credentials(token_file=str(token)),
                wait=HOUR,
            ):
                pass
        # Pauses are up to 10 s; a missing sign-in adds the 10 s of the server to each.
        assert HOUR / 10 < len(sign_in.refused) < HOUR / 4
    assert [bool(re.search(r" for \d+ s: ", line)) for line in waiting(caplog)] == [
        False,
        *[True] * 5,
    ]


def lasting_token(clock: SystemClock) -> str:
    """Return an unsigned token that lasts as those of agents do."""
    claims = json.dumps({"iat": clock.now(), "exp": clock.now() + TOKEN_SECONDS}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.x"


class Session:
    """A session of an agent, its token's file, and a sign-in that knows some tokens only."""

    def __init__(self, server: NatsServer, sign_in: TokenSignIn, file: Path) -> None:
        self.clock = JumpingClock()
        self.changes: list[bool] = []
        self.sign_in = sign_in
        self._server = server
        self._file = file
        self._pod = sign_in.pods[sign_in.tokens[AGENT]]
        sign_in.pods.clear()

    def write_token(self, *, known: bool) -> None:
        """Replace the token, as the kubelet does; sign-in refuses an unknown one, as if away."""
        token = lasting_token(self.clock)
        self._file.write_text(token)
        if known:
            self.sign_in.pods[token] = self._pod

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        async with connect(
            url=self._server.url,
            identity=AGENT,
            env=make_env(clock=self.clock, random=random.Random(1)),
            credentials=Credentials(token_file=str(self._file)),
        ) as bus:
            bus.link.watch(self.changes.append)
            guard = asyncio.create_task(bus.guard())
            yield
            guard.cancel()
            await asyncio.wait({guard})


@pytest.fixture
async def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Session]:
    monkeypatch.setattr(base_connection, "WATCH_SECONDS", 0.01)
    sign_in = TokenSignIn([AGENT], tmp_path)
    async with signed_nats(sign_in) as server:
        yield Session(server, sign_in, tmp_path / "token")


async def test_a_renewal_that_would_be_refused_leaves_the_session(session: Session) -> None:
    session.write_token(known=True)
    async with session.run():
        session.clock.ahead = 0.96 * TOKEN_SECONDS
        session.write_token(known=False)
        await eventually(lambda: bool(session.sign_in.refused))
        await asyncio.sleep(0.2)
        assert session.changes == []


async def test_a_session_outlives_an_hour_without_sign_in(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """The hour begins at the worst moment: the session was about to be renewed."""
    session.write_token(known=True)
    ends = session.clock.now() + TOKEN_SECONDS + SESSION_GRACE
    async with session.run():
        session.clock.ahead = LATEST * TOKEN_SECONDS
        session.write_token(known=False)
        returns = session.clock.ahead + HOUR
        while session.clock.ahead < returns:
            session.clock.ahead += STEP
            await asyncio.sleep(0.015)
        refused = len(session.sign_in.refused)
        assert HOUR / MAX_PAUSE < refused < HOUR / 30
        assert session.changes == []

        session.write_token(known=True)
        while not session.changes:
            session.clock.ahead += STEP
            await asyncio.sleep(0.015)
        assert session.clock.now() < ends
        await eventually(lambda: session.changes == [False, True])
        one_was_under_way = 1
        assert len(session.sign_in.refused) <= refused + one_was_under_way
    messages = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    lines = [message for message in messages if "cannot renew its session" in message]
    assert lines == messages
    assert 1 < len(lines) <= HOUR / REPEAT_SECONDS
    assert "the sign-in service is away or slow" in lines[0]


async def test_all_come_back_after_a_reload(world: World) -> None:
    child = await world.start()
    pods = [await world.pod(Writer.DRIVER, "gpu-0")]
    for number in range(1, AGENTS):
        await world.kube.create(NODES, {"metadata": {"name": f"gpu-{number}"}})
        pods.append(await world.pod(Writer.DRIVER, f"gpu-{number}", exists=True))
    async with AsyncExitStack() as stack:
        changes: dict[str, list[bool]] = {}
        buses: list[NatsBus] = []
        for pod in pods:
            bus = await stack.enter_async_context(world.connect(pod))
            bus.link.watch(partial(_note, changes.setdefault(pod.name, [])))
            buses.append(bus)
        for round_ in (1, 2):
            await world.nats.reload(world.config())
            expected = [False, True] * round_
            await eventually(
                lambda now=expected: all(each == now for each in changes.values()), within=60.0
            )
        assert all(bus.link.is_up for bus in buses)
        counted = await metrics(child)
    assert counted['answers_total{result="granted"}'] == 3 * AGENTS
    assert sum(value for name, value in counted.items() if name.startswith("dropped")) == 0


def _note(changes: list[bool], up: bool) -> None:
    changes.append(up)
