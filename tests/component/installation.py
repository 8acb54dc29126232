"""An installation on a simulated or a real API server, over HTTP and in real time.

On the real server the role has the account and the rights that an installation gives it.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from libs.contracts.identities import Writer
from libs.contracts.journal import Revision
from libs.kube.client import MERGE_PATCH
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.requests import Transport
from libs.kube.resources import LEASES, NODES, Resource
from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects, service_account_of
from libs.runtime.clock import SystemClock
from libs.runtime.env import Env
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.simulation import make_env
from tests.component.kube.sandbox import ADMIN, Sandbox, ServerUnderTest
from tests.component.kube.servers import RealServer
from tests.component.policy.strict_writes import apply, send
from tests.support import eventually
from tests.unit.policy.situations import cluster_policy

RBAC = "rbac.authorization.k8s.io"

RunRole = Callable[[Transport, Env, Service], Coroutine[Any, Any, None]]


class Installation:
    """One test's installation of one role; other tests do not see its objects."""

    def __init__(self, server: ServerUnderTest, sandbox: Sandbox, writer: Writer) -> None:
        self.server = server
        self.sandbox = sandbox
        self.namespace = sandbox.namespace
        self.writer = writer
        self._account = service_account_of(writer)
        self._user = f"system:serviceaccount:{self.namespace}:{self._account}"
        self._admin = server.wire(ADMIN)
        self.kube = sandbox.kube(manager="kubectl")
        self.clock = SystemClock()

    async def install(self, *, lease: str) -> None:
        """Install Sluice, an empty lease of this name, and a policy."""
        is_real = isinstance(self.server, RealServer)
        for obj in installation_objects(self.namespace):
            if is_real or not obj["apiVersion"].startswith(RBAC):
                await apply(self._admin, obj)
        body = {"metadata": {"name": lease, "labels": {"app": lease}}}
        await self.kube.create(LEASES, body, namespace=self.namespace)
        for definition in crd_manifests().values():
            await self.sandbox.install(definition)
        policy = cluster_policy()
        del policy["metadata"]["uid"]
        await apply(self._admin, policy)

    @asynccontextmanager
    async def role(self, run: RunRole) -> AsyncGenerator[Service]:
        """Run a process of the role until the end of the block; it stops as on SIGTERM."""
        service = Service(self.writer.value, clock=self.clock)
        env = make_env(clock=self.clock, metrics=Metrics(version="1"))
        async with self._transport() as transport:

            async def live() -> None:
                async with service:
                    await run(transport, env, service)

            task = asyncio.create_task(live(), name="role")
            try:
                yield service
            finally:
                service.stop("the test is over")
                await task

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[Transport]:
        """Connect as the role's account, with a token as in its pod."""
        if not isinstance(self.server, RealServer):
            yield self.server.wire(self._user)
            return
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self._account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        status, _, response = await send(self._admin, "POST", path, body)
        assert status == 201, response
        token = StaticToken(response["status"]["token"], tls=self.server.tls)
        async with HttpTransport(self.server.plane.url, credentials=token) as transport:
            yield transport

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        body: object,
        *,
        subresource: str = "",
        manager: str = "kubectl",
    ) -> None:
        await self.kube.request(
            "PATCH",
            resource.path(name=name, subresource=subresource),
            query={"fieldManager": manager},
            body=body,
            content_type=MERGE_PATCH,
        )

    async def label(
        self, name: str, labels: Mapping[str, str | None], *, manager: str = "kubectl"
    ) -> None:
        """Label a Node."""
        await self.patch(NODES, name, {"metadata": {"labels": labels}}, manager=manager)

    async def revisions(self) -> list[Revision]:
        """Return the role's attempted writes, except of its lease, once no more are logged.

        The audit log of a real server may lag.
        """
        found = await self._logged()

        async def is_quiet() -> bool:
            nonlocal found
            before, found = len(found), await self._logged()
            return len(found) == before

        await eventually(is_quiet, every=0.2)
        return found

    async def _logged(self) -> list[Revision]:
        return [
            revision
            for revision in await self.server.revisions()
            if revision.user == self._user and revision.kind != "Lease"
        ]


async def make_installation(server: ServerUnderTest, writer: Writer) -> AsyncIterator[Installation]:
    sandbox = Sandbox(server, token=secrets.token_hex(4))
    yield Installation(server, sandbox, writer)
    await sandbox.close()
