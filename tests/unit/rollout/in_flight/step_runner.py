"""Runs steps on a view of one node, and simulates the answers of its machine.

`run_step` stands for the API server and the bus, `react` for the cluster and the agents.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from libs.contracts.commands import CommandKind, Idle, Install, Quiesce, Swap, Validate
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.reports import Progress
from libs.rollout.decision import Candidate, DeleteDriverPod, EvictPods, Step, WriteNode, WriteSlot
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component, DriverPod, EvictionExemption, PodEviction
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NOW,
    OLD,
    STARTED,
    apply_step,
    ended,
    evidence,
    in_flight_node,
    instant,
    lease,
    slot_in,
    step_in_flight,
)

TOKEN = 8
"""Newer than the lease under which the slots were idled."""


def in_flight(
    state: UpgradeState, *, record: Mapping[str, Any] | None = None, **changes: Any
) -> NodeView:
    """Return a node in this state under a lease newer than its slots."""
    node_lease = lease(token=TOKEN)
    proof = None if state in STARTED else evidence(OLD)
    fields = {"token": TOKEN, "evidence": proof, **(record or {})}
    view = in_flight_node(state, record=fields, **changes)
    return replace(view, lease=replace(node_lease, since=NOW - 60))


# The API server and the bus.


def run_step(node: NodeView, step: Step) -> NodeView:
    for action in step.actions:
        match action:
            case WriteNode() | WriteSlot():
                node = apply_step(node, Step(actions=(action,), because=step.because))
            case EvictPods():
                jobs = (
                    PodEviction(uid=pod.uid, since=NOW, by_force=action.by_force)
                    for pod in action.pods
                )
                node = replace(node, evictions=tuple(jobs))
            case DeleteDriverPod():
                pods = (
                    replace(pod, deleting=True) if pod.uid == action.pod.uid else pod
                    for pod in node.driver_pods
                )
                node = replace(node, driver_pods=tuple(pods))
            case _:
                pass
    return replace(node, cordon_taint=node.cordoned and node.cordon_taint)


def with_component(node: NodeView, name: str, component: Component) -> NodeView:
    return replace(node, components={**node.components, name: component})


def with_results(
    node: NodeView, *names: str, outcome: str = "done", code: str = "", message: str = ""
) -> NodeView:
    for name in names:
        component = node.components[name]
        assert component.slot is not None
        result = ended(component.slot, outcome, code=code, message=message)
        order = component.slot.order
        answer = replace(component, result=result, highest_order=order, progress=None)
        node = with_component(node, name, answer)
    return node


def at_phase(node: NodeView, name: str, phase: str, detail: str = "") -> NodeView:
    component = node.components[name]
    slot = component.slot
    assert slot is not None
    progress = Progress(
        epoch=slot.epoch,
        token=slot.token,
        op=slot.op,
        command=slot.kind.value,
        phase=phase,
        detail=detail,
    )
    return with_component(
        node, name, replace(component, progress=progress, highest_order=slot.order)
    )


def silenced(node: NodeView, *names: str) -> NodeView:
    for name in names:
        component = replace(node.components[name], last_beat=NOW - 1000, silent_at=NOW - 800)
        node = with_component(node, name, component)
    return node


def with_beats(node: NodeView, at: float) -> NodeView:
    components = {
        name: replace(component, last_beat=at, silent_at=at + 180)
        for name, component in node.components.items()
    }
    return replace(node, components=components)


def new_pod(node: NodeView, at: float = NOW, **changes: object) -> DriverPod:
    result = DriverPod(
        namespace="gpu-operator",
        name=f"driver-{node.name}-{int(at)}",
        uid=f"pod-{node.driver_label}-{at:.0f}-{node.boot_id}",
        label=node.driver_label,
        ready=True,
        started=at,
    )
    return replace(result, **changes)


# The cluster and the agents, all healthy.


def react(node: NodeView, now: Instant) -> NodeView:
    """Return the node a while later: every request has been fulfilled."""
    node = with_beats(replace(node, cordon_taint=node.cordoned), now.at)
    evicted = {job.uid for job in node.evictions}
    paused = isinstance(node.record, NodeRecord) and node.record.paused
    if node.pods is not None:
        pods = tuple(
            pod
            for pod in node.pods
            if pod.uid not in evicted
            and not (paused and pod.exemption is EvictionExemption.OPERAND)
        )
        node = replace(node, pods=pods, evictions=())
    node = _pods_follow(node, now)
    for name, component in node.components.items():
        slot = component.slot
        if slot is None or (component.result is not None and component.result.order == slot.order):
            continue
        match slot.open():
            case Quiesce() | Idle():
                node = with_results(node, name)
            case Swap() | Install() as body:
                node = _swapped(node, body.label, now)
                node = with_results(node, name)
            case Validate() as body:
                node = with_results(_validated(node, body, now), name)
            case _:
                pass
    return node


def _pods_follow(node: NodeView, now: Instant) -> NodeView:
    remaining = tuple(
        pod for pod in node.driver_pods if not pod.deleting and pod.label == node.driver_label
    )
    return replace(node, driver_pods=remaining)


def _swapped(node: NodeView, label: str, now: Instant) -> NodeView:
    if not label:
        return replace(node, loaded=None, gate=Gate(), driver_pods=())
    loaded = LoadedDriver(version="580.99", loaded_at=now.at)
    slot = slot_in(node, "driver")
    if slot.kind == CommandKind.INSTALL:
        return replace(node, loaded=loaded, driver_pods=())
    pod = new_pod(node, now.at)
    gate = Gate(admitted_pod_uid=pod.uid, admitted_label=label)
    return replace(node, loaded=loaded, driver_pods=(pod,), gate=gate)


def proof(node: NodeView, at: float, **changes: object) -> NodeView:
    slot = slot_in(node, "validator")
    pod = next(iter(node.driver_pods), None)
    started = node.loaded.loaded_at if node.loaded is not None else 0.0
    if pod is not None and pod.started is not None:
        started = pod.started
    result = evidence(
        node=node.name,
        token=slot.token,
        op=slot.op,
        label=node.driver_label,
        boot_id=node.boot_id,
        kernel=node.kernel,
        driver_pod_uid=pod.uid if pod is not None else "",
        driver_started=started,
        at=at,
    )
    return replace(node, evidence=replace(result, **changes))


def _validated(node: NodeView, body: Validate, now: Instant) -> NodeView:
    assert body.label == node.driver_label
    return proof(node, now.at)


def run_upgrade(
    node: NodeView,
    pool: PoolView,
    *,
    at: float = NOW,
    most: int = 60,
    each: float = 2.0,
    meanwhile: Callable[[NodeView], NodeView] | None = None,
) -> tuple[NodeView, list[Step]]:
    """Decide, run and react until the lease is gone; return the steps with actions."""
    steps: list[Step] = []
    for _ in range(most):
        outcome = step_in_flight(node, pool, instant(at))
        assert not isinstance(outcome, Candidate)
        assert outcome is not None
        if isinstance(outcome, Step) and outcome.actions:
            steps.append(outcome)
            node = run_step(node, outcome)
        if node.lease is None:
            return node, steps
        node = react(node, instant(at))
        node = meanwhile(node) if meanwhile is not None else node
        at += each
    raise AssertionError(f"still {node.state} after {most} looks: {steps[-3:]}")


def written_states(steps: list[Step]) -> list[str]:
    return [
        action.applied.state
        for step in steps
        for action in step.actions
        if isinstance(action, WriteNode)
    ]
