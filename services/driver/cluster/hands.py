"""The writes of this role: each is counted, and its answer enters the cache at once.

Each is one request, which the API server carries out whole or not at all. When it is right to make
it is not known here.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from libs.kube.answers import confirm
from libs.kube.client import Kube
from libs.kube.errors import NotFound, UnknownKind
from libs.kube.resources import Resource
from libs.kube.source import Source
from libs.kube.views import Object
from libs.policy.rendering.rendered import Rendered
from services.driver.cluster import things
from services.driver.cluster.deciding import Delete
from services.driver.cluster.meters import DriverMeters
from services.driver.cluster.plan import Key
from services.driver.cluster.sources import Sources

V = TypeVar("V", bound=Object)

WITHIN = 3.0
"""Seconds for a write."""


class Hands:
    """Writes as one leader."""

    def __init__(
        self, kube: Kube, *, sources: Sources, namespace: str, meters: DriverMeters
    ) -> None:
        self._kube = kube
        self._sources = sources
        self._namespace = namespace
        self._meters = meters

    async def apply(self, made: Rendered) -> Object:
        """The object as it is rendered; ours is what holds."""
        resource = things.OPERANDS[made.kind]
        namespace = self._inside(resource)
        with self._meters.counted(made.kind):
            view = await self._kube.apply(
                resource, made.object, force=True, namespace=namespace, within=WITHIN
            )
        self._sources.operands[made.kind].cache.learn(view)
        return view

    async def delete(self, key: Key, what: Delete) -> None:
        """This very object, in this very state; what is gone is gone."""
        resource = things.OPERANDS[key.kind]
        path = resource.path(namespace=self._inside(resource), name=key.name)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": what.uid, "resourceVersion": what.revision},
            "propagationPolicy": "Orphan" if what.orphan else "Background",
        }
        try:
            with self._meters.counted(key.kind):
                answer = await self._kube.request("DELETE", path, body=body, within=WITHIN)
        except UnknownKind:
            raise
        except NotFound:
            return
        confirm(answer, tried=f"DELETE {path}")

    async def label(self, node: things.Node, labels: Mapping[str, str | None]) -> None:
        """Of a node that is still as it was decided on."""
        change = {"metadata": {"labels": labels}}
        await self._merge(things.NODES, node, change, source=self._sources.nodes)

    async def say(self, kind: str, policy: things.PolicyObject, status: Mapping[str, Any]) -> None:
        """How a policy stands, that is still as it was decided on."""
        source = self._sources.policies[kind]
        await self._merge(
            things.POLICIES[kind], policy, {"status": status}, source=source, subresource="status"
        )

    async def _merge(
        self,
        resource: Resource[V],
        there: V,
        change: Mapping[str, Any],
        *,
        source: Source[V],
        subresource: str = "",
    ) -> None:
        with self._meters.counted(resource.kind):
            view = await self._kube.merge(
                resource,
                there.metadata.name,
                change,
                resource_version=there.metadata.resource_version,
                subresource=subresource,
                within=WITHIN,
            )
        source.cache.learn(view)

    def _inside(self, resource: Resource[Any]) -> str:
        return self._namespace if resource.namespaced else ""
