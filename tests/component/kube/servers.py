"""The two servers under test: the real control plane, and a simulated one."""

import random
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from libs.contracts.journal import Revision
from libs.kube.auditlog import AuditLogConverter
from libs.kube.client import Kube
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.requests import Transport
from libs.kube.resources import NAMESPACES
from libs.policy.crds import CEL_RULES
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.realkube.cluster import RealKube
from libs.testing.simulation import make_env
from libs.testing.stage.worlds import SteadyWorld
from tests.component.kube import widgets
from tests.component.kube.sandbox import ADMIN, KUBELET, ServerUnderTest

AT_ONCE = SteadyWorld(pull_seconds=0, init_seconds=0, ready_seconds=0, stop_seconds=0)
"""A world model without delays."""


class RealServer:
    """The real control plane, shared by the whole session."""

    name = "real"

    def __init__(self, plane: RealKube, connections: AsyncExitStack) -> None:
        self.plane = plane
        self.tls = ssl.create_default_context(cafile=plane.ca_file)
        self._wires = Connections(plane.url, plane.token, connections, tls=self.tls)
        self._read = plane.audit_log.stat().st_size
        self._converter = AuditLogConverter(str(plane.audit_log))
        self._journal: list[Revision] = []

    def wire(self, user: str) -> Transport:
        return self._wires.connection(user)

    def token(self, user: str) -> str:
        return self.plane.token(user)

    async def revisions(self) -> list[Revision]:
        with self.plane.audit_log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        self._read += len(text)
        self._journal += self._converter.feed(text) + self._converter.flush()
        return self._journal

    async def compact(self) -> None:
        kube = Kube(self.wire(ADMIN), manager="test-set-up", clock=SystemClock())
        now = (await kube.list_page(NAMESPACES, limit=1)).resource_version
        await self.plane.compact(int(now))
        # What was read before is in the memory of the API server too.
        await self.plane.restart_apiserver()

    async def restart(self) -> None:
        await self.plane.restart_apiserver()

    @asynccontextmanager
    async def machines(self) -> AsyncGenerator[KubeletFleet]:
        clock = SystemClock()

        def kube_for(_user: str, manager: str) -> Kube:
            return Kube(self.wire(KUBELET), manager=manager, clock=clock)

        async with SimulatedCluster(
            kube_for,
            model=AT_ONCE,
            env=make_env(clock=clock, ids=SeededIds(random.Random(3)), random=random.Random(4)),
            controllers=False,
        ) as cluster:
            yield cluster.fleet


class SimulatedServer:
    """A simulated server of one test, with the controllers of a real one."""

    name = "simulated"

    def __init__(
        self,
        server: ApiServer,
        url: str,
        connections: AsyncExitStack,
        *,
        fleet: KubeletFleet,
    ) -> None:
        self._server = server
        self._fleet = fleet
        self._wires = Connections(url, server.token_of, connections)

    def wire(self, user: str) -> Transport:
        return self._wires.connection(user)

    def token(self, user: str) -> str:
        return self._server.token_of(user)

    async def revisions(self) -> list[Revision]:
        return list(self._server.journal.revisions)

    async def compact(self) -> None:
        await self._server.compact()

    async def restart(self) -> None:
        await self._server.restart()

    @asynccontextmanager
    async def machines(self) -> AsyncGenerator[KubeletFleet]:
        yield self._fleet


class Connections:
    """One connection for each user, closed at the end of the test."""

    def __init__(
        self,
        url: str,
        token: Callable[[str], str],
        connections: AsyncExitStack,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._token = token
        self._connections = connections
        self._tls = tls
        self._wires: dict[str, HttpTransport] = {}

    def connection(self, user: str) -> HttpTransport:
        if user not in self._wires:
            token = StaticToken(self._token(user), tls=self._tls)
            self._wires[user] = HttpTransport(self._url, credentials=token)
            self._connections.push_async_callback(self._wires[user].close)
        return self._wires[user]


@asynccontextmanager
async def real(plane: RealKube) -> AsyncGenerator[ServerUnderTest]:
    """Yield the control plane of this session."""
    async with AsyncExitStack() as connections:
        yield RealServer(plane, connections)


@asynccontextmanager
async def simulated() -> AsyncGenerator[ServerUnderTest]:
    """Yield a simulated server over HTTP; its controllers call it in memory."""
    clock, source = SystemClock(), random.Random(1)
    server = ApiServer(
        clock=clock,
        ids=SeededIds(random.Random(2)),
        random=source,
        rules={widgets.IMMUTABLE: widgets.pool_stays, **CEL_RULES},
    )

    def kube_for(user: str, manager: str) -> Kube:
        return Kube(server.transport(user=user), manager=manager, clock=clock)

    cluster = SimulatedCluster(
        kube_for,
        model=AT_ONCE,
        env=make_env(clock=clock, ids=SeededIds(random.Random(3)), random=source),
    )
    async with AsyncExitStack() as stack:
        frontend = await stack.enter_async_context(serve_http(server))
        await stack.enter_async_context(cluster)
        connections = await stack.enter_async_context(AsyncExitStack())
        yield SimulatedServer(server, frontend.url, connections, fleet=cluster.fleet)
