"""Kubernetes Events about refused operands and invalid policies. Nothing depends on them."""

from collections.abc import Mapping
from typing import Any

from libs.kube.events import EventRecorder, InvolvedObject
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from services.driver.cluster import statuses
from services.driver.cluster.plan import ObjectKey, OperandPlan
from services.driver.cluster.resources import POLICIES, PolicyObject

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
        """Record an event if the policy has become invalid, or for another reason."""
        was = statuses.invalid_reason(kind, statuses.conditions_of(before.status))
        now = statuses.invalid_reason(kind, statuses.conditions_of(dict(change)))
        if now and now != was:
            metadata = before.metadata
            policy = _involved(kind, metadata.name, metadata.uid)
            self._events.record(policy, type="Warning", reason=INVALID, message=now)


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
