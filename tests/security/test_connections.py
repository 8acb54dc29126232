"""Connections: one identity can neither take those of others nor more than its share for long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from libs.bus.connections import NODES, SHARES, ConnectionMonitor
from libs.bus.server_config import SPARE_CONNECTIONS, User, server_config
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.testing.simulation import make_env
from tests.security.identities import A_DRIVER, B_DRIVER, B_TELEMETRY, CTL, SCHEDULER
from tests.security.world import RawClient, World, world
from tests.support import eventually

MANY = 200


@asynccontextmanager
async def monitoring(world: World) -> AsyncGenerator[ConnectionMonitor]:
    monitor = ConnectionMonitor(bus=await world.bus(SCHEDULER), env=make_env())
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
    assert set(monitor.cut) <= {str(A_DRIVER), guarded.key_of(A_DRIVER).public}
    warned = [each for each in logs if "too many connections" in each["event"]]
    assert len(warned) == 1
    assert warned[0]["identity"] == str(A_DRIVER)
    assert warned[0]["key"] == guarded.key_of(A_DRIVER).public
    assert agent.identity == A_DRIVER


async def test_connections_from_before_the_monitor_are_cut(guarded: World) -> None:
    clients = await open_clients(guarded, A_DRIVER, 20)
    async with monitoring(guarded):
        await eventually(lambda: count_open(clients) == SHARES[NODES])
    assert all(each.client.is_connected for each in clients[-SHARES[NODES] :]), "the newest stay"


async def test_only_what_exceeds_the_share_is_cut(guarded: World) -> None:
    clients = await open_clients(guarded, A_DRIVER, SHARES[NODES])
    async with monitoring(guarded) as monitor:
        for _ in range(5):
            for each in await open_clients(guarded, B_TELEMETRY, SHARES[NODES] // 2):
                await each.client.close()
        last = await guarded.raw_client(A_DRIVER)
        await eventually(lambda: count_open(clients) == SHARES[NODES] - 1)
        assert monitor.cut == {guarded.key_of(A_DRIVER).public: 1}
    assert last.client.is_connected


async def test_nodes_cannot_take_the_connections_of_services() -> None:
    """Without any monitor: the accounts have connections of their own."""

    def few(users: list[User]) -> str:
        of_nodes = 2 * sum(bool(user.identity.node) for user in users) + SPARE_CONNECTIONS
        limit = f"max_connections: {of_nodes}\n"
        assert server_config(users).count(limit) == 1
        return server_config(users).replace(limit, "max_connections: 20\n")

    async with world(few) as guarded:
        with pytest.raises(Exception, match="maximum account active connections"):
            await open_clients(guarded, A_DRIVER, 30)
        service = await guarded.raw_client(SCHEDULER)
        assert service.client.is_connected


async def test_only_the_scheduler_may_list_and_close_connections(guarded: World) -> None:
    for identity in (A_DRIVER, CTL):
        raw = await guarded.raw_client(identity)
        await raw.send(subjects.LIST_CONNECTIONS, b"{}")
        await raw.send(subjects.kick("ANY"), b"{}")
        await raw.listen(subjects.CONNECTIONS)
        assert len(raw.violations) == 3
