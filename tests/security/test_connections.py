"""Connections: one identity can neither take those of others nor more than its share for long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from nats.errors import Error
from structlog.testing import capture_logs

from libs.bus import connections, floods
from libs.bus.connections import NODES, SHARES, ConnectionMonitor
from libs.bus.nats.transport import ConnectFailed
from libs.bus.server_config import SPARE_CONNECTIONS
from libs.bus.sessions import Session
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.testing.sign_in import TokenSignIn
from libs.testing.simulation import make_env
from tests.security.identities import A_DRIVER, B_DRIVER, B_TELEMETRY, CTL, IDENTITIES, SCHEDULER
from tests.security.world import RawClient, World, world
from tests.support import eventually

MANY = 200


@asynccontextmanager
async def monitoring(world: World) -> AsyncGenerator[ConnectionMonitor]:
    monitor = ConnectionMonitor(bus=world.monitor, env=make_env())
    task = asyncio.create_task(monitor.run(), name="monitor")
    try:
        yield monitor
    finally:
        task.cancel()
        await asyncio.wait({task})


async def open_clients(world: World, identity: Identity, count: int) -> list[RawClient]:
    return [await world.raw_client(identity) for _ in range(count)]


def count_open(clients: list[RawClient]) -> int:
    return sum(each.client.is_connected for each in clients)


async def test_connections_beyond_the_share_are_cut_and_named(guarded: World) -> None:
    agent = await guarded.bus(A_DRIVER)
    with capture_logs() as logs:
        async with monitoring(guarded) as monitor:
            clients = await open_clients(guarded, A_DRIVER, MANY)
            await eventually(lambda: count_open(clients) <= SHARES[NODES])
            others = [await guarded.raw_client(each) for each in (B_DRIVER, B_TELEMETRY, CTL)]
            await eventually(lambda: monitor.cut.total() >= MANY - SHARES[NODES])
    assert count_open(others) == len(others)
    assert set(monitor.cut) == {str(A_DRIVER)}
    warned = [each for each in logs if "too many connections" in each["event"]]
    assert len(warned) == 1
    assert warned[0]["identity"] == str(A_DRIVER)
    assert warned[0]["users"] == [str(guarded.sign_in.session(A_DRIVER))]
    assert agent.identity == A_DRIVER


async def test_connections_from_before_the_monitor_are_cut(guarded: World) -> None:
    clients = await open_clients(guarded, A_DRIVER, 20)
    async with monitoring(guarded):
        await eventually(lambda: count_open(clients) == SHARES[NODES])
    assert all(each.client.is_connected for each in clients[-SHARES[NODES] :]), "the newest stay"


async def test_a_component_that_floods_is_cut_and_named(
    guarded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOOK_PERIOD", 0.2)
    monkeypatch.setattr(floods, "SHORTEST", 1.0)
    beat = str(subjects.Beat(cluster="default", node=A_DRIVER.node, component="driver"))
    flooding, other = await open_clients(guarded, A_DRIVER, 2)
    await flooding.listen(f"{subjects.inbox(A_DRIVER)}.>")  # as each component does
    honest = await guarded.raw_client(B_DRIVER)
    with capture_logs() as logs:
        async with monitoring(guarded) as monitor:
            while flooding.client.is_connected:
                with suppress(Error):  # it is cut in the midst of this
                    for _ in range(100):
                        await flooding.client.publish(beat, b"{}")
                await asyncio.sleep(0.01)
            await eventually(lambda: not other.client.is_connected)
            with suppress(ConnectFailed):  # it may be cut before it is established
                late = await guarded.raw_client(A_DRIVER)
                await eventually(lambda: not late.client.is_connected)
    assert honest.client.is_connected
    assert monitor.floods.total() == 1
    warned = [each for each in logs if "floods" in each["event"]]
    assert [each["identity"] for each in warned] == [str(A_DRIVER)]
    assert warned[0]["messages_per_second"] > floods.MOST_MESSAGES


async def test_only_what_exceeds_the_share_is_cut(guarded: World) -> None:
    clients = await open_clients(guarded, A_DRIVER, SHARES[NODES])
    async with monitoring(guarded) as monitor:
        for _ in range(5):
            for each in await open_clients(guarded, B_TELEMETRY, SHARES[NODES] // 2):
                await each.client.close()
        last = await guarded.raw_client(A_DRIVER)
        await eventually(lambda: count_open(clients) == SHARES[NODES] - 1)
        await eventually(lambda: monitor.cut.total() == 1)
        assert set(monitor.cut) == {str(A_DRIVER)}
    assert last.client.is_connected


async def test_nodes_cannot_take_the_connections_of_services(sign_in: TokenSignIn) -> None:
    """Without any monitor: the accounts have connections of their own."""
    limit = f"max_connections: {2 * len(IDENTITIES) + SPARE_CONNECTIONS}\n"
    config = sign_in.config()
    assert config.count(limit) == 1
    async with world(sign_in, config.replace(limit, "max_connections: 20\n")) as guarded:
        with pytest.raises(Exception, match="maximum account active connections"):
            await open_clients(guarded, A_DRIVER, 30)
        service = await guarded.raw_client(SCHEDULER)
        assert service.client.is_connected


async def test_only_the_monitor_may_list_and_close_connections(guarded: World) -> None:
    for identity in (A_DRIVER, CTL, SCHEDULER):
        raw = await guarded.raw_client(identity)
        await raw.send(subjects.list_connections(), b"{}")
        await raw.send(subjects.kick("ANY"), b"{}")
        await raw.listen(subjects.CONNECTIONS)
        assert len(raw.violations) == 3


async def test_the_sessions_of_an_identity_share_its_connections(guarded: World) -> None:
    """Two pods of one identity, as after a DaemonSet's update."""
    sign_in = guarded.sign_in
    clients = await open_clients(guarded, A_DRIVER, SHARES[NODES])
    sign_in.pods[sign_in.tokens[A_DRIVER]] = Session(A_DRIVER, "pod-of-the-successor")
    async with monitoring(guarded) as monitor:
        await eventually(lambda: monitor.count(A_DRIVER) == SHARES[NODES])
        clients += await open_clients(guarded, A_DRIVER, 1)
        await eventually(lambda: count_open(clients) == SHARES[NODES])
        assert monitor.count(A_DRIVER) == SHARES[NODES]
        await clients[-1].client.close()
        await eventually(lambda: monitor.count(A_DRIVER) == SHARES[NODES] - 1)
    assert not clients[0].client.is_connected, "the oldest of all was cut"


async def test_closed_sessions_are_cut(guarded: World) -> None:
    """Those that are known, and those that are admitted a moment later; no others."""
    sign_in = guarded.sign_in
    old = await open_clients(guarded, A_DRIVER, 2)
    pod = sign_in.session(A_DRIVER)
    others = [await guarded.raw_client(each) for each in (B_DRIVER, CTL)]
    async with monitoring(guarded) as monitor:
        await eventually(lambda: monitor.count(A_DRIVER) == 2)

        assert monitor.close(lambda session: session == pod) == 2

        await eventually(lambda: count_open(old) == 0)
        late = await guarded.raw_client(A_DRIVER)
        await eventually(lambda: not late.client.is_connected)
        sign_in.pods[sign_in.tokens[A_DRIVER]] = Session(A_DRIVER, "another-pod")
        others.append(await guarded.raw_client(A_DRIVER))
        await eventually(lambda: monitor.count(A_DRIVER) == 1)
        assert monitor.close(lambda session: session == pod) == 0
        assert monitor.cut.total() == 0
    assert count_open(others) == len(others)


async def test_sessions_that_no_notice_announced_are_cut(guarded: World) -> None:
    pod = guarded.sign_in.session(A_DRIVER)
    clients = await open_clients(guarded, A_DRIVER, 2)
    async with monitoring(guarded) as monitor:
        assert monitor.close(lambda session: session == pod) == 0, "nothing was listed yet"
        await eventually(lambda: count_open(clients) == 0)
