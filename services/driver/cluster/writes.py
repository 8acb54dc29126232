"""The writes of this role: each is counted, and its answer enters the cache at once.

Each is one request, which the API server carries out whole or not at all. When it is right to make
it is not known here.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from libs.kube.client import Kube
from libs.kube.errors import NotFound, UnknownKind
from libs.kube.informer import Informer
from libs.kube.resources import Resource
from libs.kube.responses import require_api_object
from libs.kube.views import Object
from libs.policy.render.rendered import RenderedObject
from services.driver.cluster import resources
from services.driver.cluster.decide import DeleteOperand
from services.driver.cluster.informers import Informers
from services.driver.cluster.metrics import DriverMetrics
from services.driver.cluster.plan import ObjectKey

V = TypeVar("V", bound=Object)

TIMEOUT = 3.0
"""Seconds for a write."""


class Writes:
    """Writes as one leader."""

    def __init__(
        self, kube: Kube, *, informers: Informers, namespace: str, metrics: DriverMetrics
    ) -> None:
        self._kube = kube
        self._sources = informers
        self._namespace = namespace
        self._meters = metrics

    async def apply_operand(self, made: RenderedObject) -> Object:
        """The object as it is rendered; ours is what holds."""
        resource = resources.OPERANDS[made.kind]
        namespace = self._inside(resource)
        with self._meters.count_write(made.kind):
            view = await self._kube.apply(
                resource, made.object, force=True, namespace=namespace, within=TIMEOUT
            )
        self._sources.operands[made.kind].cache.record_write(view)
        return view

    async def delete_operand(self, key: ObjectKey, what: DeleteOperand) -> None:
        """This very object, in this very state; what is gone is gone."""
        resource = resources.OPERANDS[key.kind]
        path = resource.path(namespace=self._inside(resource), name=key.name)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": what.uid, "resourceVersion": what.revision},
            "propagationPolicy": "Orphan" if what.orphan else "Background",
        }
        try:
            with self._meters.count_write(key.kind):
                answer = await self._kube.request("DELETE", path, body=body, within=TIMEOUT)
        except UnknownKind:
            raise
        except NotFound:
            return
        require_api_object(answer, tried=f"DELETE {path}")

    async def label_node(self, node: resources.Node, labels: Mapping[str, str | None]) -> None:
        """Of a node that is still as it was decided on."""
        change = {"metadata": {"labels": labels}}
        await self._merge(resources.NODES, node, change, source=self._sources.nodes)

    async def write_status(
        self, kind: str, policy: resources.PolicyObject, status: Mapping[str, Any]
    ) -> None:
        """How a policy stands, that is still as it was decided on."""
        source = self._sources.policies[kind]
        await self._merge(
            resources.POLICIES[kind],
            policy,
            {"status": status},
            source=source,
            subresource="status",
        )

    async def _merge(
        self,
        resource: Resource[V],
        there: V,
        change: Mapping[str, Any],
        *,
        source: Informer[V],
        subresource: str = "",
    ) -> None:
        with self._meters.count_write(resource.kind):
            view = await self._kube.merge(
                resource,
                there.metadata.name,
                change,
                resource_version=there.metadata.resource_version,
                subresource=subresource,
                within=TIMEOUT,
            )
        source.cache.record_write(view)

    def _inside(self, resource: Resource[Any]) -> str:
        return self._namespace if resource.namespaced else ""
