"""The writes of this role: each is one request, is counted, and its response enters the cache."""

from collections.abc import Mapping
from typing import Any, TypeVar

from libs.kube.client import Kube
from libs.kube.errors import NotFound, UnknownKind
from libs.kube.informer import Informer
from libs.kube.requests import require_api_object
from libs.kube.resources import Resource
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
    def __init__(
        self, kube: Kube, *, informers: Informers, namespace: str, metrics: DriverMetrics
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._namespace = namespace
        self._metrics = metrics

    async def apply_operand(self, rendered: RenderedObject) -> Object:
        """Apply an operand, and take over fields of other managers."""
        resource = resources.OPERANDS[rendered.kind]
        with self._metrics.count_write(rendered.kind):
            view = await self._kube.apply(
                resource,
                rendered.object,
                force=True,
                namespace=self._namespace_of(resource),
                within=TIMEOUT,
            )
        self._informers.operands[rendered.kind].cache.record_write(view)
        return view

    async def delete_operand(self, key: ObjectKey, action: DeleteOperand) -> None:
        """Delete an operand if it still is the same object in the same revision."""
        resource = resources.OPERANDS[key.kind]
        path = resource.path(namespace=self._namespace_of(resource), name=key.name)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": action.uid, "resourceVersion": action.revision},
            "propagationPolicy": "Orphan" if action.orphan else "Background",
        }
        try:
            with self._metrics.count_write(key.kind):
                response = await self._kube.request("DELETE", path, body=body, within=TIMEOUT)
        except UnknownKind:
            raise
        except NotFound:
            return
        require_api_object(response, tried=f"DELETE {path}")

    async def label_node(self, node: resources.Node, labels: Mapping[str, str | None]) -> None:
        """Change labels of a node if it still is in the same revision."""
        change = {"metadata": {"labels": labels}}
        await self._merge(resources.NODES, node, change, informer=self._informers.nodes)

    async def write_status(
        self, kind: str, policy: resources.PolicyObject, status: Mapping[str, Any]
    ) -> None:
        """Write fields of a policy's status if it still is in the same revision."""
        await self._merge(
            resources.POLICIES[kind],
            policy,
            {"status": status},
            informer=self._informers.policies[kind],
            subresource="status",
        )

    async def _merge(
        self,
        resource: Resource[V],
        live: V,
        change: Mapping[str, Any],
        *,
        informer: Informer[V],
        subresource: str = "",
    ) -> None:
        with self._metrics.count_write(resource.kind):
            view = await self._kube.merge(
                resource,
                live.metadata.name,
                change,
                resource_version=live.metadata.resource_version,
                subresource=subresource,
                within=TIMEOUT,
            )
        informer.cache.record_write(view)

    def _namespace_of(self, resource: Resource[Any]) -> str:
        return self._namespace if resource.namespaced else ""
