"""The client's side of the sign-in, on a real server that asks a sign-in process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from libs.bus.nats.bus import NatsBus, connect
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.testing.nats import NatsServer
from libs.testing.sign_in import TokenSignIn, signed_nats
from libs.testing.simulation import make_env
from tests.component.bus.recorders import RecordingHandler
from tests.support import eventually

AGENTS = tuple(Identity(writer=Writer.DRIVER, node=f"n{number}") for number in range(20))
AGENT = AGENTS[0]
READER = Identity(writer=Writer.SCHEDULER)
BEAT = str(subjects.Beat(cluster="default", node=AGENT.node, component="driver"))


@pytest.fixture
def sign_in(tmp_path: Path) -> TokenSignIn:
    return TokenSignIn((*AGENTS, READER), tmp_path)


@asynccontextmanager
async def connected(url: str, sign_in: TokenSignIn, identity: Identity) -> AsyncGenerator[NatsBus]:
    """A connection whose guard does not end."""
    async with connect(
        url=url,
        identity=identity,
        env=make_env(),
        credentials=sign_in.credentials(identity),
        wait=60.0,
    ) as bus:
        guard = asyncio.create_task(bus.guard())
        try:
            yield bus
            assert not guard.done()
        finally:
            guard.cancel()
            await asyncio.gather(guard, return_exceptions=True)


async def test_a_verdict_after_the_servers_ping_is_awaited(sign_in: TokenSignIn) -> None:
    """The server pings a client two seconds after CONNECT, also while sign-in is asked."""
    sign_in.delay = 3.5
    async with (
        signed_nats(sign_in) as server,
        connected(server.url, sign_in, AGENT) as bus,
    ):
        assert len(sign_in.admitted) == 1
        changes: list[bool] = []
        bus.link.watch(changes.append)
        await server.reload(sign_in.config())
        await eventually(lambda: changes == [False, True])
        assert len(sign_in.admitted) == 2


async def test_a_client_waits_until_sign_in_answers(
    sign_in: TokenSignIn, caplog: pytest.LogCaptureFixture
) -> None:
    async with NatsServer(config=sign_in.config()) as server:
        connection = connected(server.url, sign_in, AGENT)
        connecting = asyncio.create_task(connection.__aenter__())
        await eventually(lambda: "refused the token" in caplog.text)
        async with sign_in.run(server.url):
            assert (await connecting).link.is_up
            await connection.__aexit__(None, None, None)
    told = [message for message in caplog.messages if "refused the token" in message]
    assert len(told) == 1


async def test_a_session_that_expires_is_followed_by_another(sign_in: TokenSignIn) -> None:
    sign_in.lifetime = 1
    async with (
        signed_nats(sign_in) as server,
        connected(server.url, sign_in, AGENT) as bus,
    ):
        changes: list[bool] = []
        bus.link.watch(changes.append)
        await eventually(lambda: changes[:4] == [False, True] * 2)


async def test_a_fleet_survives_a_reload_and_a_restart_of_the_server(sign_in: TokenSignIn) -> None:
    """A reload ends all sessions that began with a token, even if nothing was changed."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(signed_nats(sign_in))
        reader = await stack.enter_async_context(connected(server.url, sign_in, READER))
        fleet = [
            await stack.enter_async_context(connected(server.url, sign_in, agent))
            for agent in AGENTS
        ]
        handler = RecordingHandler()
        await reader.subscribe(subjects.cluster_pattern(subjects.Beat, "default"), handler)
        ended: list[bool] = []
        for bus in fleet:
            bus.link.watch(ended.append)

        await server.reload(sign_in.config())
        await eventually(lambda: ended.count(False) == len(fleet))
        await eventually(lambda: all(bus.link.is_up for bus in (*fleet, reader)))
        await fleet[0].publish(BEAT, b"after the reload")
        await eventually(lambda: handler.received == [(BEAT, b"after the reload")])

        await server.kill()
        await server.start()
        await eventually(lambda: ended.count(True) == 2 * len(fleet) and reader.link.is_up)
        await fleet[0].publish(BEAT, b"after the restart")
        await eventually(lambda: handler.received[1:] == [(BEAT, b"after the restart")])
        assert ended.count(False) == 2 * len(fleet)
        assert sign_in.unreadable == []
