"""Where the suite runs: a simulated API server behind HTTP, and a real control plane."""

import contextlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from libs.contracts.journal import Revision
from libs.kube import views
from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists, NotFound, TooManyRequests
from libs.kube.requests import JSON, Request, Transport
from libs.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    SERVICE_ACCOUNTS,
    Resource,
)
from libs.runtime.clock import SystemClock
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from tests.component.kube.builders import condition, kubelet_condition
from tests.support import eventually

ADMIN = "admin"
ALICE = "alice"
"""A person who may do everything."""
NOBODY = "nobody"
"""Known to the server, without any right."""
KUBELET = "kubelet"
"""Of all machines; a real one is known by its node's name."""
USERS: dict[str, Sequence[str]] = {
    ALICE: ["system:masters"],
    KUBELET: ["system:masters"],
    NOBODY: [],
}

DEFAULT_MANAGER = "sluice-scheduler"
"""The field manager of what the tests do, where nothing else is said."""


class ServerUnderTest(Protocol):
    """What differs between the two."""

    name: str

    def wire(self, user: str) -> Transport: ...

    def token(self, user: str) -> str: ...

    async def revisions(self) -> list[Revision]: ...

    async def compact(self) -> None: ...

    async def restart(self) -> None: ...

    def machines(self) -> AbstractAsyncContextManager[KubeletFleet]: ...


class Sandbox:
    """One test's part of a server: a namespace and node names that nobody else has."""

    def __init__(self, server: ServerUnderTest, *, token: str) -> None:
        self._server = server
        self._clean = self.kube(manager="test-set-up")
        self.name = server.name
        self.namespace = f"t-{token}"
        self.prefix = f"{token}-"
        self._own: list[tuple[Resource[Any], str]] = []

    async def open(self) -> None:
        """Pods can be created in the namespace then."""
        await self._clean.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        # Pods need it, and its controller takes a while.
        account = {"metadata": {"name": "default"}}
        with contextlib.suppress(AlreadyExists):
            await self._clean.create(SERVICE_ACCOUNTS, account, namespace=self.namespace)

    async def close(self) -> None:
        """Nothing that other tests see stays on the server.

        The namespace does: to empty one costs a real server more than most tests.
        """
        for resource, name in reversed(self._own):
            await self._remove(resource, name)

    def kube(self, *, user: str = ADMIN, manager: str = DEFAULT_MANAGER) -> Kube:
        """A client, which ends with the test."""
        return Kube(self._server.wire(user), manager=manager, clock=SystemClock())

    async def install(self, definition: dict[str, Any]) -> None:
        """A custom kind that many tests share; returns when its objects can be made."""
        with contextlib.suppress(AlreadyExists):
            await self._clean.request("POST", CUSTOM_RESOURCE_DEFINITIONS.path(), body=definition)
        names = definition["spec"]["names"]
        group, version = definition["spec"]["group"], definition["spec"]["versions"][0]["name"]
        path = f"/apis/{group}/{version}/{names['plural']}"

        async def served() -> bool:
            try:
                await self._clean.request("GET", path)
            except (NotFound, TooManyRequests):  # its storage is being made
                return False
            return True

        await eventually(served)

    def token(self, user: str) -> str:
        """What the server knows that user by."""
        return self._server.token(user)

    async def raw_response(
        self, method: str, path: str, body: object = None, *, accept: str = JSON
    ) -> tuple[int, Any]:
        """Status and body as they are, whatever they are."""
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
                "conditions": [kubelet_condition(condition("Ready", "True"))],
                **status,
            },
        }
        kubelet = self.kube(manager="kubelet")
        await kubelet.create(NODES, registered)
        return name

    async def machine(self, fleet: KubeletFleet, name: str) -> str:
        """A machine that has registered its Node; its name has the test's prefix."""
        name = self.prefix + name
        self.delete_at_close(NODES, name)
        fleet.add(name)

        async def there() -> bool:
            return name in {
                item.metadata.name for item in (await self._clean.list_page(NODES)).items
            }

        await eventually(there)
        await settled_node(self._clean, name)
        return name

    def delete_at_close(self, resource: Resource[Any], name: str) -> None:
        """A cluster-scoped object that must not outlive the test."""
        self._own.append((resource, name))

    async def revisions(self) -> list[Revision]:
        """What was written, or tried, to what is this test's, since it began; oldest first."""
        return [
            revision
            for revision in await self._server.revisions()
            if revision.namespace == self.namespace or revision.name.startswith(self.prefix)
        ]

    def machines(self) -> AbstractAsyncContextManager[KubeletFleet]:
        """Machines with kubelets, to which the test may add."""
        return self._server.machines()

    async def compact(self) -> None:
        """The server forgets all that was before now."""
        await self._server.compact()

    async def restart(self) -> None:
        """Every connection is cut; returns when it serves again."""
        await self._server.restart()

    async def _remove(self, resource: Resource[Any], name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._clean.request(
                "PATCH",
                resource.path(name=name),
                body={"metadata": {"finalizers": None}},
                content_type="application/merge-patch+json",
            )
            await self._clean.request("DELETE", resource.path(name=name))


async def settled_node(kube: Kube, node: str) -> views.Node:
    """The node, once the controllers have written all that follows from what it is."""
    now = await kube.get(NODES, node)

    async def quiet() -> bool:
        nonlocal now
        now = await kube.get(NODES, node)
        keys = {taint.key for taint in now.spec.taints}
        cordoned = "node.kubernetes.io/unschedulable" in keys
        return (
            cordoned is now.spec.unschedulable
            and "node.kubernetes.io/not-ready" not in keys
            and "node.alpha.kubernetes.io/ttl" in now.metadata.annotations
        )

    await eventually(quiet)
    return now
