"""Writes, Events and metrics of this role.

A write is one request; it is counted, and its response enters the cache. Nothing depends on Events.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from libs.contracts.message import encode
from libs.contracts.node import VALIDATION_POD_ANNOTATION, ValidationPod
from libs.kube.client import Kube
from libs.kube.errors import KubeError, NotFound, UnknownKind
from libs.kube.events import EventRecorder, InvolvedObject
from libs.kube.informer import Informer
from libs.kube.requests import require_api_object
from libs.kube.resources import Resource
from libs.kube.views import Object
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from libs.policy.render.rendered import RenderedObject
from libs.runtime.env import Env
from services.driver.cluster import resources
from services.driver.cluster.decide import DeleteOperand, conditions_of, invalid_reason
from services.driver.cluster.plan import ObjectKey, OperandPlan
from services.driver.cluster.resources import POLICIES, WRITTEN, Informers, PolicyObject

V = TypeVar("V", bound=Object)

TIMEOUT = 3.0
"""Seconds for a write."""


_SUCCESSFUL = ("ready", "disabled", "ignored", "")
"""Final states of a policy; empty for kinds without a state."""


class DriverMetrics:
    def __init__(self, env: Env) -> None:
        self._clock = env.clock
        self._nodes = env.metrics.gauge("gpu_operator_gpu_nodes_total", "Number of nodes with GPUs")
        self._without_next_driver = env.metrics.gauge(
            "sluice_driver_nodes_without_next_driver",
            "Nodes that may have no driver after their next boot, which runs another kernel.",
        )
        self._succeeded = env.metrics.gauge(
            "gpu_operator_reconciliation_last_success_ts_seconds",
            "Timestamp (in seconds) of the last reconciliation loop success",
        )
        self._status = env.metrics.gauge(
            "gpu_operator_reconciliation_status",
            "1 if the reconciliation is currently successful, 0 if the operands are not ready,"
            " -1 if the cluster policy is unavailable, -2 if an error occurred within the"
            " operator.",
        )
        self._total = env.metrics.counter(
            "gpu_operator_reconciliation", "Total number of reconciliation"
        )
        self._failed = env.metrics.counter(
            "gpu_operator_reconciliation_failed", "Number of failed reconciliation"
        )
        self._features = env.metrics.gauge(
            "gpu_operator_reconciliation_has_nfd_labels",
            "1 if NFD mandatory kernel labels have been found, 0 otherwise",
        )
        self._writes = env.metrics.counter(
            "sluice_driver_api_writes",
            "Requests that write, by the kind of object and how they ended.",
            kind=WRITTEN,
            outcome=("written", "refused"),
        )

    def reconciled(self, plan: OperandPlan, *, held: bool) -> None:
        """Count a reconciliation; `held`: a GPU Operator is active, so nothing was written."""
        self._total.inc()
        self._nodes.set(plan.gpu_nodes)
        self._without_next_driver.set(plan.without_next_driver)
        self._features.set(plan.has_features)
        successful = not held and all(
            status.state in _SUCCESSFUL for status in plan.statuses.values()
        )
        has_policy = plan.pools.cluster is not None or plan.pools.pools
        self._status.set((1 if successful else 0) if has_policy else -1)
        if successful:
            self._succeeded.set(self._clock.now())
        else:
            self._failed.inc()

    def reconcile_failed(self) -> None:
        self._total.inc()
        self._failed.inc()
        self._status.set(-2)

    @contextmanager
    def count_write(self, kind: str) -> Generator[None]:
        try:
            yield
        except KubeError:
            self._writes.labels(kind, "refused").inc()
            raise
        self._writes.labels(kind, "written").inc()


class Writes:
    def __init__(
        self, kube: Kube, *, informers: Informers, namespace: str, metrics: DriverMetrics
    ) -> None:
        self._kube = kube
        self._informers = informers
        self._namespace = namespace
        self._metrics = metrics

    async def apply_operand(self, rendered: RenderedObject, *, exists: bool) -> Object:
        """Apply an operand; take over fields of other managers if it exists and is ours."""
        resource = resources.OPERANDS[rendered.kind]
        with self._metrics.count_write(rendered.kind):
            view = await self._kube.apply(
                resource,
                rendered.object,
                force=exists,
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
            "propagationPolicy": "Background",
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

    async def tell_outcome(self, node: resources.Node, outcome: ValidationPod | None) -> None:
        """Write what became of a validation's pod to its Node, unless the Node changed."""
        text = None if outcome is None else encode(outcome).decode()
        change = {"metadata": {"annotations": {VALIDATION_POD_ANNOTATION: text}}}
        await self._merge(resources.NODES, node, change, informer=self._informers.nodes)

    async def write_status(
        self, kind: str, policy: resources.PolicyObject, status: Mapping[str, Any]
    ) -> resources.PolicyObject:
        """Write fields of a policy's status if it still is in the same revision; return it as the
        server keeps it.
        """
        return await self._merge(
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
    ) -> V:
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
        return view

    def _namespace_of(self, resource: Resource[Any]) -> str:
        return self._namespace if resource.namespaced else ""


REFUSED = "Refused"
INVALID = "Invalid"


class PolicyEvents:
    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def operand_refused(self, key: ObjectKey, why: str, plan: OperandPlan) -> None:
        """Record an event on the policy that wants the operand."""
        policy = _wanting_policy(key, plan)
        if policy is not None:
            self._events.record(
                policy, type="Warning", reason=REFUSED, message=f"{key}: {why}", group=str(key)
            )

    def status_written(self, kind: str, before: PolicyObject, change: Mapping[str, Any]) -> None:
        """Record an event if the policy becomes invalid, or the reason changes."""
        old_reason = invalid_reason(kind, conditions_of(before.status))
        reason = invalid_reason(kind, conditions_of(dict(change)))
        if reason and reason != old_reason:
            metadata = before.metadata
            policy = _involved(kind, metadata.name, metadata.uid)
            self._events.record(policy, type="Warning", reason=INVALID, message=reason)


def _wanting_policy(key: ObjectKey, plan: OperandPlan) -> InvolvedObject | None:
    if key in plan.statuses:
        status = plan.statuses[key]
        return _involved(status.kind, status.name, status.uid)
    rendered = plan.objects.get(key)
    for pool in plan.pools.pools:
        if rendered is not None and pool.key == rendered.pool:
            return _involved(pool.kind, pool.name, pool.uid)
    cluster = plan.pools.cluster
    if cluster is None:
        return None
    kind = CLUSTER_POLICY if isinstance(cluster, ClusterPolicy) else GPU_CLUSTER_POLICY
    return _involved(kind.name, cluster.metadata.name, cluster.metadata.uid)


def _involved(kind: str, name: str, uid: str) -> InvolvedObject:
    return InvolvedObject(api_version=POLICIES[kind].api_version, kind=kind, name=name, uid=uid)
