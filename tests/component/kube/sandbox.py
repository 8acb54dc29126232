"""The part of a server that one test uses; the server is simulated or real."""

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from libs.contracts.journal import Revision
from libs.kube import client, views
from libs.kube.errors import AlreadyExists, NotFound, TooManyRequests
from libs.kube.reads import Page
from libs.kube.requests import JSON, Request, Transport
from libs.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
)
from libs.runtime.clock import SystemClock
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from tests.component.kube.builders import SINCE, condition
from tests.support import eventually

V = TypeVar("V", bound=views.Object)

ADMIN = "admin"
ALICE = "alice"
"""A user with all rights."""
NOBODY = "nobody"
"""An authenticated user without any right."""
KUBELET = "kubelet"
"""One user for all machines; a real kubelet has a user of its own."""
USERS: dict[str, Sequence[str]] = {
    ALICE: ["system:masters"],
    KUBELET: ["system:masters"],
    NOBODY: [],
}

DEFAULT_MANAGER = "sluice-scheduler"
"""The default field manager of the tests."""


class ServerUnderTest(Protocol):
    """The operations that differ between the simulated and the real server."""

    name: str

    def wire(self, user: str) -> Transport: ...

    def token(self, user: str) -> str: ...

    async def revisions(self) -> list[Revision]: ...

    async def compact(self) -> None: ...

    async def restart(self) -> None: ...

    def machines(self) -> AbstractAsyncContextManager[KubeletFleet]: ...


class Kube(client.Kube):
    """The client, in the namespace of a test: there is what a call names without a namespace."""

    def __init__(self, wire: Transport, *, manager: str, namespace: str) -> None:
        super().__init__(wire, manager=manager, clock=SystemClock())
        self.namespace = namespace

    def path(self, resource: Resource[Any], name: str, *, subresource: str = "") -> str:
        here = self.namespace if resource.namespaced else ""
        return resource.path(namespace=here, name=name, subresource=subresource)

    def _here(self, resource: Resource[Any], options: dict[str, Any]) -> dict[str, Any]:
        return {"namespace": self.namespace, **options} if resource.namespaced else options

    async def get(self, resource: Resource[V], name: str, **options: Any) -> V:
        return await super().get(resource, name, **self._here(resource, options))

    async def list_page(self, resource: Resource[V], **options: Any) -> Page[V]:
        return await super().list_page(resource, **self._here(resource, options))

    async def create(self, resource: Resource[V], wanted: Mapping[str, Any], **options: Any) -> V:
        return await super().create(resource, wanted, **self._here(resource, options))

    async def replace(self, resource: Resource[V], wanted: Mapping[str, Any], **options: Any) -> V:
        return await super().replace(resource, wanted, **self._here(resource, options))

    async def merge(
        self, resource: Resource[V], name: str, change: Mapping[str, Any], **options: Any
    ) -> V:
        return await super().merge(resource, name, change, **self._here(resource, options))

    async def apply(self, resource: Resource[V], wanted: Mapping[str, Any], **options: Any) -> V:
        return await super().apply(resource, wanted, **self._here(resource, options))

    async def delete(self, resource: Resource[V], name: str, **options: Any) -> V | None:
        return await super().delete(resource, name, **self._here(resource, options))

    async def evict(self, name: str, **options: Any) -> client.EvictionResult:
        return await super().evict(name, **self._here(PODS, options))


class Sandbox:
    """One test's part of a server: a namespace and a prefix of node names of its own."""

    def __init__(self, server: ServerUnderTest, *, token: str) -> None:
        self._server = server
        self.name = server.name
        self.namespace = f"t-{token}"
        self._set_up = self.kube(manager="test-set-up")
        self.prefix = f"{token}-"
        self._cluster_scoped: list[tuple[Resource[Any], str]] = []

    async def open(self) -> None:
        """Create the namespace, ready for pods."""
        await self._set_up.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        # A pod needs the default account, and its controller takes a while.
        account = {"metadata": {"name": "default"}}
        with contextlib.suppress(AlreadyExists):
            await self._set_up.create(SERVICE_ACCOUNTS, account)

    async def close(self) -> None:
        """Delete the cluster-scoped objects of the test.

        The namespace stays: to empty one costs a real server more than most tests.
        """
        for resource, name in reversed(self._cluster_scoped):
            await self._remove(resource, name)

    def kube(
        self, *, user: str = ADMIN, manager: str = DEFAULT_MANAGER, namespace: str = ""
    ) -> Kube:
        """Return a client; its connection is closed at the end of the test."""
        wire, namespace = self._server.wire(user), namespace or self.namespace
        return Kube(wire, manager=manager, namespace=namespace)

    async def install(self, definition: dict[str, Any]) -> None:
        """Install a custom kind, shared by the tests; return when it is served."""
        with contextlib.suppress(AlreadyExists):
            await self._set_up.request("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), body=definition)
        names = definition["spec"]["names"]
        group, version = definition["spec"]["group"], definition["spec"]["versions"][0]["name"]
        path = f"/apis/{group}/{version}/{names['plural']}"

        async def served() -> bool:
            try:
                await self._set_up.request("GET", path)
            except (NotFound, TooManyRequests):  # the server still creates its storage
                return False
            return True

        await eventually(served)

    def token(self, user: str) -> str:
        """Return the token of the user."""
        return self._server.token(user)

    async def raw_response(
        self, method: str, path: str, body: object = None, *, accept: str = JSON
    ) -> tuple[int, Any]:
        """Send a request; return status and body, errors included."""
        request = Request(
            method=method,
            path=path,
            headers={"accept": accept, **({} if body is None else {"content-type": JSON})},
            body=b"" if body is None else msgspec.json.encode(body),
        )
        async with self._server.wire(ADMIN).open(request) as answer:
            return answer.status, msgspec.json.decode(await answer.body())

    async def node(self, name: str, *, labels: dict[str, str] | None = None, **status: Any) -> str:
        """Register a Node, as a kubelet does; its name has the test's prefix."""
        name = self.prefix + name
        self.delete_at_close(NODES, name)
        registered = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
            "status": {
                "allocatable": {"pods": "110"},
                "capacity": {"pods": "110"},
                "conditions": [condition("Ready", "True") | {"lastHeartbeatTime": SINCE}],
                **status,
            },
        }
        kubelet = self.kube(manager="kubelet")
        await kubelet.create(NODES, registered)
        return name

    async def machine(self, fleet: KubeletFleet, name: str) -> str:
        """Add a machine; return its name, with the test's prefix, once its Node is registered."""
        name = self.prefix + name
        self.delete_at_close(NODES, name)
        fleet.add(name)

        async def is_registered() -> bool:
            return name in {
                item.metadata.name for item in (await self._set_up.list_page(NODES)).items
            }

        await eventually(is_registered)
        await settled_node(self._set_up, name)
        return name

    def delete_at_close(self, resource: Resource[Any], name: str) -> None:
        """Delete this cluster-scoped object when the sandbox closes."""
        self._cluster_scoped.append((resource, name))

    async def revisions(self) -> list[Revision]:
        """Return the writes to this test's objects, refused ones included, oldest first."""
        return [
            revision
            for revision in await self._server.revisions()
            if revision.namespace == self.namespace or revision.name.startswith(self.prefix)
        ]

    def machines(self) -> AbstractAsyncContextManager[KubeletFleet]:
        """Run machines with kubelets; the test adds its own to the fleet."""
        return self._server.machines()

    async def compact(self) -> None:
        """Compact the history of the server up to now."""
        await self._server.compact()

    async def restart(self) -> None:
        """Restart the server, which cuts every connection; return when it serves again."""
        await self._server.restart()

    async def _remove(self, resource: Resource[Any], name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._set_up.request(
                "PATCH",
                resource.path(name=name),
                body={"metadata": {"finalizers": None}},
                content_type="application/merge-patch+json",
            )
            await self._set_up.request("DELETE", resource.path(name=name))


async def settled_node(kube: Kube, node: str) -> views.Node:
    """Wait until the controllers have written the node's taints and annotations; return it."""
    current = await kube.get(NODES, node)

    async def settled() -> bool:
        nonlocal current
        current = await kube.get(NODES, node)
        keys = {taint.key for taint in current.spec.taints}
        cordoned = "node.kubernetes.io/unschedulable" in keys
        return (
            cordoned is current.spec.unschedulable
            and "node.kubernetes.io/not-ready" not in keys
            and "node.alpha.kubernetes.io/ttl" in current.metadata.annotations
        )

    await eventually(settled)
    return current
