"""Remove what Sluice wrote at the API server, when nothing writes it again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from libs.contracts.rollout import FINALIZER
from libs.kube.client import Kube, Preconditions
from libs.kube.errors import NotFound, UnknownKind
from libs.kube.requests import Transport
from libs.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    NODES,
    Resource,
    custom_resource,
)
from libs.kube.views import Metadata, Node, Object
from libs.policy.kinds import DEFINED_KINDS, POLICY_KINDS
from libs.policy.kinds.device import DEVICE
from libs.policy.kinds.rollout import ROLLOUT
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.cluster.resources import MANAGER as DRIVER
from services.driver.cluster.resources import OPERANDS, is_ours
from services.driver.uninstall.pages import node_pages
from services.driver.uninstall.traces import (
    CONDITION,
    MANAGERS,
    appliers,
    kept_fields,
    keys_to_remove,
)

MANAGER: Final = "sluice-uninstall"
SETUP: Final = "sluice-setup"
"""The field manager of what the setup writes."""
SECRETS: Final = ("sluice-signin-keys", "sluice-nats-authority", "sluice-nats-server")
CA: Final = "sluice-nats-ca"
LEADERS: Final = ("sluice-discovery-cluster", "sluice-driver-cluster", "sluice-scheduler")
"""The leases of the services that lead."""
CONCURRENCY: Final = 16
"""Objects that are changed at once."""

_SECRETS: Final = Resource(plural="secrets", kind="Secret", view=Object)

T = TypeVar("T")
_log = logger()


class _Policy(Object, frozen=True, kw_only=True):
    status: Any = None


class Objects:
    """Everything of one installation at one API server, but what the chart removes itself."""

    def __init__(self, transport: Transport, *, namespace: str, clock: Clock) -> None:
        def client(manager: str) -> Kube:
            return Kube(transport, manager=manager, clock=clock)

        self._kube = client(MANAGER)
        self._as = {manager: client(manager) for manager in MANAGERS}
        self._namespace = namespace

    async def remove(self) -> None:
        """Remove all; what is gone already is fine."""
        for resource in OPERANDS.values():
            namespace = self._namespace if resource.namespaced else ""
            await _each(
                [each for each in await self._list(resource, namespace) if is_ours(each)],
                lambda each, resource=resource, namespace=namespace: self._delete(
                    resource, each.metadata, namespace
                ),
            )
        async for nodes in node_pages(self._kube):
            await _each(nodes, self._clean_node)
        _log.info("labels, annotations, conditions and cordons on Nodes are removed")
        await self._remove_custom_objects()
        for name in LEADERS:
            await self._delete_named(LEASES, name)
        for name in SECRETS:
            await self._delete_named(_SECRETS, name, manager=SETUP)
        await self._delete_named(CONFIG_MAPS, CA, manager=SETUP)

    async def _remove_custom_objects(self) -> None:
        """Remove Rollouts and Devices, and our status of policies that stay."""
        rollouts = custom_resource(ROLLOUT, Object)
        for rollout in await self._list(rollouts):
            await self._remove_finalizer(rollouts, rollout)
            await self._delete(rollouts, rollout.metadata)
        devices = custom_resource(DEVICE, Object)
        await _each(await self._list(devices), lambda each: self._delete(devices, each.metadata))
        for kind in POLICY_KINDS:
            policies = custom_resource(kind, _Policy)
            for policy in await self._list(policies):
                if policy.status and _has_status_of(policy.metadata, DRIVER):
                    await self._kube.merge(
                        policies,
                        policy.metadata.name,
                        {"status": None},
                        resource_version=policy.metadata.resource_version,
                        subresource="status",
                    )

    async def _remove_finalizer(self, resource: Resource[Object], found: Object) -> None:
        metadata = found.metadata
        if FINALIZER in metadata.finalizers:
            others = [each for each in metadata.finalizers if each != FINALIZER]
            await self._kube.merge(
                resource,
                metadata.name,
                {"metadata": {"uid": metadata.uid, "finalizers": others}},
                resource_version=metadata.resource_version,
            )

    async def _clean_node(self, node: Node) -> None:
        """Remove what we own of a Node; a cordon stays where another manager owns it too."""
        try:
            for manager in appliers(node.metadata):
                metadata = node.metadata
                node = await self._as[manager].apply(
                    NODES,
                    kept_fields(manager, node),
                    force=True,
                    preconditions=Preconditions(
                        uid=metadata.uid, resource_version=metadata.resource_version
                    ),
                )
            if keys := keys_to_remove(node.metadata):
                node = await self._change_node(node, {"metadata": keys})
            if any(each.type == CONDITION for each in node.status.conditions):
                removed = {"$patch": "delete", "type": CONDITION}
                change = {"status": {"conditions": [removed]}}
                await self._change_node(node, change, subresource="status")
        except NotFound:
            return  # the Node is gone

    async def _change_node(
        self, node: Node, change: Mapping[str, Any], *, subresource: str = ""
    ) -> Node:
        metadata: Mapping[str, Any] = change.get("metadata", {})
        return await self._kube.merge(
            NODES,
            node.metadata.name,
            {**change, "metadata": {**metadata, "uid": node.metadata.uid}},
            resource_version=node.metadata.resource_version,
            subresource=subresource,
            strategic=True,
        )

    async def _list(self, resource: Resource[Any], namespace: str = "") -> tuple[Any, ...]:
        """Return all objects; none of a kind that the server does not have."""
        try:
            if namespace:
                return (await self._kube.list_all(resource, namespace=namespace)).items
            return (await self._kube.list_all(resource)).items
        except UnknownKind:
            return ()

    async def _delete_named(self, resource: Resource[Any], name: str, *, manager: str = "") -> None:
        """Delete an object of the namespace, with `manager` only if that one has written it."""
        try:
            found: Object = await self._kube.get(resource, name, namespace=self._namespace)
        except NotFound:
            return
        if not manager or any(each.manager == manager for each in found.metadata.managed_fields):
            await self._delete(resource, found.metadata, self._namespace)

    async def _delete(
        self, resource: Resource[Any], metadata: Metadata, namespace: str = ""
    ) -> None:
        try:
            await self._kube.delete(resource, metadata.name, uid=metadata.uid, namespace=namespace)
        except NotFound:
            return


async def remove_definitions(kube: Kube) -> None:
    """Remove the definitions of all kinds, and with them all objects of these kinds."""
    for kind in DEFINED_KINDS:
        name = f"{kind.plural}.{kind.group}"
        try:
            found = await kube.get(CUSTOM_RESOURCE_DEFINITIONS, name)
            await kube.delete(CUSTOM_RESOURCE_DEFINITIONS, name, uid=found.metadata.uid)
        except NotFound:
            continue


def _has_status_of(metadata: Metadata, manager: str) -> bool:
    return any(
        each.manager == manager and each.subresource == "status" for each in metadata.managed_fields
    )


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for all items, some at once."""
    places = asyncio.Semaphore(CONCURRENCY)

    async def one(item: T) -> None:
        async with places:
            await work(item)

    for result in await asyncio.gather(*map(one, items), return_exceptions=True):
        if result is not None:
            raise result
