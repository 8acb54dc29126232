"""Populate machines with the workload pods of a snapshot.

The world supplies, once, what no view shows: when a job ends, how long a pod takes to stop, and how
long an unknown disruption budget refuses.
"""

from collections.abc import Iterator

from libs.forecast.stage import tenant_pods
from libs.forecast.stage.objects import StageMachine, Tenant, TenantPod
from libs.forecast.stage.state import StageState
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import WorkloadPod

_GRACE = 30.0
"""Assumed grace period of pods in seconds."""


def populate_tenants(state: StageState, fleet: Fleet) -> None:
    state.budgets = dict(fleet.budgets or {})
    remainders = _Remainders(state, fleet)
    for view in fleet.nodes.values():
        machine = state.machines[view.name]
        used = {use.pod_uid: use.gpus for use in view.usage.pods} if view.usage is not None else {}
        if view.pods is None:
            pods = [TenantPod(uid=uid, tenant=_reported(state, uid, used[uid])) for uid in used]
        else:
            pods = [
                TenantPod(
                    uid=pod.uid,
                    tenant=_tenant(state, fleet, pod, remainders, used.get(pod.uid, 0)),
                    deleting=pod.deleting,
                )
                for pod in view.pods
            ]
        _add(state, machine, pods)


def _add(state: StageState, machine: StageMachine, pods: list[TenantPod]) -> None:
    machine.tenants = tuple(pod.tenant for pod in pods)
    for pod in pods:
        machine.tenant_pods[pod.uid] = pod
        if pod.tenant.gang:
            state.gangs.setdefault(pod.tenant.gang, []).append((machine.name, pod.uid))
        tenant_pods.schedule_completion(state, machine, pod)


class _Remainders:
    """The seconds until jobs end; None: never. The pods of a gang end together."""

    def __init__(self, state: StageState, fleet: Fleet) -> None:
        self._state = state
        self._ages: dict[str, float] = {}
        self._known: dict[str, float | None] = {}
        for pod in _pods(fleet):
            if pod.job:
                age = 0.0 if pod.started is None else max(0.0, state.now - pod.started)
                self._ages[_job_of(pod)] = max(age, self._ages.get(_job_of(pod), 0.0))

    def of(self, pod: WorkloadPod) -> float | None:
        job = _job_of(pod)
        if job not in self._known:
            span = self._state.world.remainder(job, self._ages[job], pod.job_kind)
            self._known[job] = span.seconds
        return self._known[job]


def _pods(fleet: Fleet) -> Iterator[WorkloadPod]:
    return (pod for node in fleet.nodes.values() for pod in node.pods or ())


def _job_of(pod: WorkloadPod) -> str:
    return pod.gang or pod.uid


def _tenant(
    state: StageState, fleet: Fleet, pod: WorkloadPod, remainders: _Remainders, reported: int
) -> Tenant:
    world = state.world
    return Tenant(
        name=pod.name,
        namespace=pod.namespace,
        gpus=max(1, reported) if pod.gpu or pod.claims_unknown else 0,
        job=pod.job,
        remaining=remainders.of(pod) if pod.job else None,
        eviction_refused_for=world.refusal(pod.uid).seconds if fleet.budgets is None else 0.0,
        stop_seconds=world.eviction(pod.uid, _GRACE).seconds,
        is_recreated=not pod.bare and not pod.job,
        exemption=pod.exemption,
        bare=pod.bare,
        empty_dir=pod.empty_dir,
        gang=pod.gang,
        budget=pod.budget,
    )


def _reported(state: StageState, uid: str, gpus: int) -> Tenant:
    """Return a tenant for a pod that only the driver agent reported."""
    world = state.world
    return Tenant(
        name=uid,
        gpus=gpus,
        eviction_refused_for=world.refusal(uid).seconds,
        stop_seconds=world.eviction(uid, _GRACE).seconds,
    )
