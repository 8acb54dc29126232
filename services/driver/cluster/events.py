"""Events for people about what cannot be carried out. A courtesy: nothing depends on them."""

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
    """Whom an event is about, and when it is worth one."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def operand_refused(self, key: ObjectKey, why: str, plan: OperandPlan) -> None:
        """An object is not as it is wanted: said of the policy that wants it."""
        about = _wanting(key, plan)
        if about is not None:
            self._events.record(
                about, type="Warning", reason=REFUSED, message=f"{key}: {why}", group=str(key)
            )

    def status_written(self, kind: str, before: PolicyObject, change: Mapping[str, Any]) -> None:
        """A status was written: said where it is news that the policy cannot be carried out."""
        was = statuses.invalid_reason(kind, statuses.conditions_of(before.status))
        now = statuses.invalid_reason(kind, statuses.conditions_of(dict(change)))
        if now and now != was:
            metadata = before.metadata
            about = _about(kind, metadata.name, metadata.uid)
            self._events.record(about, type="Warning", reason=INVALID, message=now)


def _wanting(key: ObjectKey, plan: OperandPlan) -> InvolvedObject | None:
    if key in plan.statuses:
        status = plan.statuses[key]
        return _about(status.kind, status.name, status.uid)
    made = plan.objects.get(key)
    for pool in plan.pools.pools:
        if made is not None and pool.key == made.pool:
            return _about(pool.kind, pool.name, pool.uid)
    cluster = plan.pools.cluster
    if cluster is None:
        return None
    whole = CLUSTER_POLICY if isinstance(cluster, ClusterPolicy) else GPU_CLUSTER_POLICY
    return _about(whole.name, cluster.metadata.name, cluster.metadata.uid)


def _about(kind: str, name: str, uid: str) -> InvolvedObject:
    return InvolvedObject(api_version=POLICIES[kind].api_version, kind=kind, name=name, uid=uid)
