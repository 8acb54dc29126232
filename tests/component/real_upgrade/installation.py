"""A real control plane, a real nats-server, and Sluice installed on them.

Services act as the accounts that the installation creates, with tokens as in their pods; machines
act as nodes. The processes are those of the demo.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from demo.admin import MANAGER, USER, DemoAdmin, path_of
from demo.environment import SERVICES, SIGN_IN, DemoEnvironment
from demo.paths import NAMESPACE, DemoPaths, kubelet_users, service_account
from demo.process_group import ProcessGroup
from libs.contracts.identities import COMPONENTS, Identity, Writer
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.errors import NotFound, TooManyRequests
from libs.kube.resources import LEASES
from libs.policy.installation import installation_objects, service_account_of
from libs.policy.kinds import KINDS
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.realkube.binaries import Binaries
from libs.testing.realkube.cluster import RealKube
from libs.testing.sign_in import SignInKeys
from tests.support import eventually

OURS = f"system:serviceaccounts:{NAMESPACE}"
"""The group of all our service accounts."""

REPLICAS = ("scheduler-1", "scheduler-2")
"""One leads, the other is on standby."""

(_SCHEDULER,) = (part for part in SERVICES if part.writer is Writer.SCHEDULER)
_MASTERS = "system:masters"
_NODES = "system:nodes"


class Installation:
    def __init__(
        self, up: DemoEnvironment, *, kube: Kube, plane: RealKube, nodes: Sequence[str]
    ) -> None:
        self.up = up
        self.kube = kube
        self.person = DemoAdmin(kube)
        self.plane = plane
        self.nodes = nodes

    async def install(self) -> None:
        """Apply all installation objects, and create a kubeconfig for each of our services."""
        await self.person.install()
        for obj in installation_objects(NAMESPACE):
            await self.person.apply(obj)
        for kind in KINDS:
            await eventually(lambda kind=kind: self._is_served(kind), within=180)
        for part in (SIGN_IN, *SERVICES):
            await self._write_kubeconfig(part.writer)

    async def start(self) -> None:
        """Start sign-in, then two schedulers, then all other services and machines.

        The schedulers start first, because a scheduler starts no node before it has seen a
        heartbeat of its agent.
        """
        await self.up.start_sign_in(self.person)
        for name in REPLICAS:
            await self._start_scheduler(name)
        await self.up.processes.wait_ready(*REPLICAS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._serve(), name="serve")
            group.create_task(self._switch_on(), name="switch on")

    async def leader(self) -> str:
        """Return the identity of the scheduler that holds the lease, or an empty string."""
        name = service_account_of(Writer.SCHEDULER)
        return (await self.kube.get(LEASES, name, namespace=NAMESPACE)).spec.holder_identity or ""

    async def read(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object, or an empty dictionary if there is none."""
        path = path_of(KINDS[kind].api_version, kind, name=name)
        try:
            return msgspec.json.decode(await self.kube.request("GET", path))
        except NotFound:
            return {}

    async def until(self, condition: Callable[[], Awaitable[bool]], *, within: float) -> None:
        """Wait until the condition holds."""
        await self.finish(eventually(condition, within=2 * within, every=0.2), within=within)

    async def finish(self, coroutine: Coroutine[Any, Any, None], *, within: float) -> None:
        """Await the coroutine; a process that ends meanwhile is a failure."""
        task = asyncio.create_task(coroutine, name="what is waited for")
        watch = asyncio.create_task(self.up.processes.wait_failed(), name="watch")
        try:
            ended, _ = await asyncio.wait(
                {task, watch}, timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
            if watch in ended:
                raise watch.result()
            if not ended:
                pytest.fail(f"not done within {within:g} s{self.process_logs()}")
            await task
        finally:
            for each in (task, watch):
                each.cancel()
            await asyncio.wait({task, watch})

    def process_logs(self) -> str:
        """Return the last output of every process."""
        items = self.up.processes.processes.items()
        tails = (f"{name}, its last lines:\n{process.child.tail()}" for name, process in items)
        return "\n".join(("", *tails))

    async def _serve(self) -> None:
        for part in SERVICES:
            if part is not _SCHEDULER:
                await self.up.start_service(part)

    async def _switch_on(self) -> None:
        for node in self.nodes:
            await self.up.start_machine(node)

    async def _is_served(self, kind: str) -> bool:
        path = f"/apis/{KINDS[kind].api_version}/{KINDS[kind].plural}"
        try:
            await self.kube.request("GET", path)
        except (NotFound, TooManyRequests):  # the server still creates its storage
            return False
        return True

    async def _write_kubeconfig(self, writer: Writer) -> None:
        name = service_account_of(writer)
        response = await self.kube.request(
            "POST",
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token",
            body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        )
        token = msgspec.json.decode(response)["status"]["token"]
        config = json.loads(self.plane.kubeconfig().read_text())
        config["users"][0]["user"] = {"token": token}
        self.up.paths.kubeconfig(service_account(writer)).write_text(json.dumps(config))

    async def _start_scheduler(self, name: str) -> None:
        part, up = _SCHEDULER, self.up
        await up.processes.start(
            name,
            part.module,
            part.role,
            namespace=NAMESPACE,
            kubeconfig=str(up.paths.kubeconfig(service_account(part.writer))),
            pod_name=name,
            nats_url=up.nats.url,
            nats_token_file=str(up.paths.token(Identity(writer=part.writer))),
        )


def users(nodes: Sequence[str]) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {USER: [_MASTERS]}
    for node in nodes:
        own, shared = kubelet_users(node)
        # Each kubelet of ours sees all pods, which no real one does.
        found |= {own: [_NODES], shared: [_MASTERS]}
    return found


@asynccontextmanager
async def provision(binaries: Binaries, nodes: Sequence[str]) -> AsyncGenerator[Installation]:
    """Start control plane and bus, without installing anything; clean up at the end."""
    clock, groups_by_user = SystemClock(), users(nodes)
    async with AsyncExitStack() as stack:
        plane = await RealKube.start(binaries=binaries, users=groups_by_user, reads_of=[OURS])
        stack.push_async_callback(plane.stop)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-real-"))
        paths = DemoPaths(Path(folder))
        for name in ("users", "keys", "tokens", "machines", "incidents"):
            (paths.folder / name).mkdir()
        for user in groups_by_user:
            paths.kubeconfig(user).write_text(plane.kubeconfig(user).read_text())
        sign_in = SignInKeys(paths.keys)
        config = sign_in.config(identities=len(nodes) * len(COMPONENTS))
        nats = await stack.enter_async_context(NatsServer(config=config))
        processes = await stack.enter_async_context(ProcessGroup(os.environ))
        up = DemoEnvironment(
            paths, processes=processes, nats=nats, sign_in=sign_in, clock=clock, seed=1
        )
        transport = await open_transport(clock=clock, kubeconfig=paths.kubeconfig(USER))
        await stack.enter_async_context(transport)
        kube = Kube(transport, manager=MANAGER, clock=clock)
        yield Installation(up, kube=kube, plane=plane, nodes=nodes)
