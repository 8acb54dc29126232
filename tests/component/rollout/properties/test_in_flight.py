"""Properties of every node in flight, in any state: it acts or waits with a reason, and it ends."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.commands import (
    Command,
    Idle,
    Install,
    Order,
    Proven,
    Quiesce,
    Swap,
    Validate,
)
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.contracts.reports import Progress, Refusal, RefusalCode
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import OnEvictionTimeout, OnJobTimeout, StrategySpec
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion, WaitForCompletion
from libs.rollout.decision import EvictPods, NodeOutcome, Step, Wait, WriteNode, WriteSlot
from libs.rollout.in_flight.in_flight_node import is_old_pod
from libs.rollout.in_flight.step import STATES
from libs.rollout.views.machine import Component, EvictionExemption, PodEviction, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, Readiness
from libs.testing.not_none import not_none
from tests.unit.rollout.builders import (
    BOOT,
    KERNEL,
    NEW,
    NOW,
    OLD,
    command,
    component,
    driver_pod,
    ended,
    evidence,
    granted,
    in_flight_node,
    instant,
    label_of,
    pool,
    step_in_flight,
    with_build,
)
from tests.unit.rollout.in_flight.step_runner import run_step

NAMES = ("driver", "validator", "plugin", "telemetry", "discovery")
TOKEN = 7
NAMED_ENDS = {
    UpgradeState.UPGRADE_DONE,
    UpgradeState.UPGRADE_FAILED,
    UpgradeState.UPGRADE_REQUIRED,
    "",
}
NEVER_ENDED_BY_TIME = {
    WaitCode.STALE,
    WaitCode.BUS,
    WaitCode.TARGET_UNSETTLED,
    WaitCode.HALTED,
    WaitCode.BUDGET,
}

times = st.sampled_from([NOW - 4000, NOW - 500, NOW - 130, NOW - 60, NOW - 1, NOW])
boots = st.sampled_from([BOOT, BOOT, BOOT, "boot-0"])
labels = st.sampled_from([label_of(NEW), label_of(NEW), label_of(OLD), ""])


def command_bodies(name: str) -> st.SearchStrategy[Any]:
    proven = st.one_of(
        st.none(), st.builds(Proven, label=labels, kernel=st.sampled_from([KERNEL, "5.15"]))
    )
    bodies: list[st.SearchStrategy[Any]] = [st.just(Quiesce()), st.builds(Idle, proven=proven)]
    if name == "driver":
        uid = st.sampled_from(["", f"pod-{OLD}-node-1", f"pod-{NEW}-node-1"])
        bodies.append(st.builds(Swap, label=labels, old_pod_uid=uid, keep=st.booleans()))
        bodies.append(st.builds(Install, label=labels))
    if name == "validator":
        uid = st.sampled_from(["", f"pod-{NEW}-node-1"])
        bodies.append(st.builds(Validate, label=labels, pod_uid=uid))
    return st.one_of(bodies)


@st.composite
def commands(draw: st.DrawFn, name: str) -> Command:
    return command(
        draw(command_bodies(name)),
        order=(draw(st.sampled_from([TOKEN, TOKEN, TOKEN, TOKEN - 1])), draw(st.integers(1, 3))),
        boot=draw(boots),
        epoch=draw(st.sampled_from([3, 3, 3, 2])),
        deadline=draw(times) + draw(st.sampled_from([120.0, 240.0, 600.0])),
    )


@st.composite
def components(draw: st.DrawFn, name: str) -> Component:
    slot = draw(st.one_of(st.none(), commands(name)))
    view = component(slot, last_beat=draw(times))
    if slot is None:
        return view
    if draw(st.booleans()):
        outcome = draw(st.sampled_from(["done", "failed", "superseded"]))
        view = replace(view, result=ended(slot, outcome, code="busy", message="python"))
    elif draw(st.booleans()):
        phase = draw(st.sampled_from(["old-driver", "unload", "gate", "driver-start", "cuda"]))
        progress = Progress(
            epoch=3, token=slot.token, op=slot.op, command=slot.kind.value, phase=phase
        )
        view = replace(view, progress=progress)
    elif draw(st.booleans()):
        code = draw(st.sampled_from([RefusalCode.EXPIRED, RefusalCode.OTHER_BOOT]))
        refusal = Refusal(code=code, message="no", token=slot.token, op=slot.op)
        view = replace(view, refusal=refusal)
    if draw(st.booleans()):
        view = replace(view, highest_order=Order(TOKEN, draw(st.integers(0, 4))))
    return view


@st.composite
def pods(draw: st.DrawFn, index: int) -> WorkloadPod:
    return WorkloadPod(
        namespace="ml",
        name=f"p{index}",
        uid=f"u{index}",
        gpu=draw(st.booleans()),
        job=draw(st.booleans()),
        drained=draw(st.booleans()),
        exemption=draw(
            st.sampled_from([*EvictionExemption, EvictionExemption.NONE, EvictionExemption.NONE])
        ),
        bare=draw(st.booleans()),
        empty_dir=draw(st.booleans()),
        deleting=draw(st.booleans()),
    )


def _subset(draw: st.DrawFn, items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(item for item in items if draw(st.booleans()))


@st.composite
def nodes_in_flight(draw: st.DrawFn) -> NodeView:
    """Draw a node in flight in any state, with anything on its machine."""
    state = UpgradeState(draw(st.sampled_from(sorted(STATES))))
    validates = state == UpgradeState.VALIDATION_REQUIRED
    started = validates or state == UpgradeState.POD_RESTART_REQUIRED
    operations = [
        operation_kind
        for operation_kind in Operation
        if started or operation_kind is not Operation.BRING_UP
    ]
    operations = [
        operation_kind
        for operation_kind in operations
        if operation_kind is not Operation.VALIDATE or validates
    ]
    operations = [
        operation_kind
        for operation_kind in operations
        if operation_kind is not Operation.REMOVE or not validates
    ]
    operation = draw(st.sampled_from(operations))
    since = draw(times)
    removing = operation is Operation.REMOVE
    record = {
        "operation": operation,
        "since": since,
        "target": "" if removing else NEW,
        "label": "" if removing else label_of(NEW),
        "started": started and operation is not Operation.VALIDATE,
        "deadline": since + 600 if started else draw(st.sampled_from([None, since + 300])),
        "deadline_renewed": draw(st.booleans()),
        "boot_id": draw(boots),
        "frozen_seconds": draw(st.sampled_from([0.0, 50.0])),
    }
    new_pod = driver_pod(
        NEW,
        ready=draw(st.booleans()),
        restarts=draw(st.sampled_from([0, 1, 3])),
        started=draw(st.sampled_from([None, NOW - 30])),
        deleting=draw(st.booleans()),
        label=draw(labels),
    )
    old_pod = driver_pod(OLD, deleting=draw(st.booleans()))
    workloads = draw(st.one_of(st.none(), st.tuples(*(pods(index) for index in range(3)))))
    evictions = tuple(
        PodEviction(uid=pod.uid, since=since, refused=draw(st.sampled_from(["", "pdb"])))
        for pod in _subset(draw, workloads or ())
    )
    loaded = draw(st.sampled_from([None, LoadedDriver(version="580", loaded_at=NOW - 30)]))
    proof = evidence(op=draw(st.integers(1, 3)), passed=draw(st.booleans()))
    node = in_flight_node(
        state,
        record=record,
        driver_label=("" if removing else label_of(NEW)) if started else label_of(OLD),
        components={name: draw(components(name)) for name in _subset(draw, NAMES)},
        driver_pods=_subset(draw, (old_pod, new_pod)),
        pods=workloads,
        evictions=evictions,
        loaded=loaded,
        gate=draw(st.sampled_from([None, Gate(), Gate(waiting_pod_uid=f"pod-{NEW}-node-1")])),
        evidence=draw(st.sampled_from([None, proof, replace(proof, driver_started=NOW - 30)])),
        cordoned=draw(st.sampled_from([True, True, False])),
        cordon_taint=draw(st.booleans()),
        safe_load=draw(st.sampled_from([False, False, True])),
        modules_reported=draw(st.booleans()),
        excluded=removing and draw(st.booleans()),
        keep_cordoned=draw(st.booleans()),
    )
    lease = replace(node.lease, since=draw(times))  # pyright: ignore[reportArgumentType]
    return replace(node, lease=lease)


@st.composite
def pools_of(draw: st.DrawFn, node: NodeView) -> PoolView:
    """Draw the pool of a node, with any policy."""
    view = pool(
        upgrade={
            "wait_for_completion": WaitForCompletion(pod_selector="a=b"),
            "pod_deletion": PodDeletion(force=draw(st.booleans())),
            "drain": Drain(enable=draw(st.booleans())),
        },
        strategy=StrategySpec(
            on_job_timeout=draw(st.sampled_from(OnJobTimeout)),
            on_eviction_timeout=draw(st.sampled_from(OnEvictionTimeout)),
        ),
        constraints={"frozen_seconds": draw(st.sampled_from([0.0, 50.0, 90.0]))},
    )
    record = node.record
    assert isinstance(record, NodeRecord)
    view = granted(view, node, target=draw(st.sampled_from([record.target, NEW])))
    readiness = draw(st.sampled_from([*Readiness, Readiness.SETTLED]))
    view = with_build(view, NEW, readiness=readiness)
    constraints = replace(
        view.constraints,
        halted=draw(st.sampled_from([{}, {NEW: "too many failed"}])),
        to_release=draw(st.sampled_from([{}, {}, {node.uid: "halted"}])),
    )
    return replace(view, constraints=constraints)


@st.composite
def cases(draw: st.DrawFn) -> tuple[NodeView, PoolView, dict[str, Any]]:
    node = draw(nodes_in_flight())
    bus_down = st.sampled_from([None, None, NOW - 100])
    visibility = {"bus_down_since": draw(bus_down), "age": draw(st.sampled_from([1.0, 1.0, 200.0]))}
    return node, draw(pools_of(node)), visibility


@given(cases())
@settings(max_examples=200, deadline=None)
def test_a_step_of_a_node_in_flight(case: tuple[NodeView, PoolView, dict[str, Any]]) -> None:
    node, view, visibility = case
    outcome = step_in_flight(node, view, instant(**visibility))
    assert isinstance(outcome, Step | Wait)
    check_acts_or_waits_with_a_reason(outcome)
    if isinstance(outcome, Step) and outcome.actions:
        check_does_not_repeat(node, view, outcome, visibility)
        check_does_not_start_in_a_halt(node, view, outcome)
        check_does_not_swap_under_an_old_driver(node, outcome)


def check_acts_or_waits_with_a_reason(outcome: Step | Wait) -> None:
    wait = outcome if isinstance(outcome, Wait) else outcome.wait
    acts = isinstance(outcome, Step) and bool(outcome.actions)
    if isinstance(outcome, Step):
        assert acts or (wait is not None and outcome.wake_at is not None)
        assert outcome.because
        assert outcome.wake_at is None or outcome.wake_at > NOW
    if wait is not None:
        assert wait.code.is_known
        assert wait.detail
        assert wait.since == NOW
        assert acts or wait.until is None or wait.until > NOW


def check_does_not_repeat(
    node: NodeView, view: PoolView, first: Step, visibility: dict[str, Any]
) -> None:
    after = run_step(node, first)
    again = step_in_flight(after, view, instant(**visibility)) if after.lease is not None else None
    if not isinstance(again, Step):
        return
    assert not [
        action
        for action in again.actions
        if action in first.actions and action != EvictPods(pods=())
    ]
    written = [one.applied for one in first.actions if isinstance(one, WriteNode)]
    again_written = [one.applied for one in again.actions if isinstance(one, WriteNode)]
    assert not [applied for applied in again_written if applied in written]


def check_does_not_start_in_a_halt(node: NodeView, view: PoolView, step: Step) -> None:
    record = node.record
    assert isinstance(record, NodeRecord)
    if record.started or record.operation is Operation.REMOVE or not view.constraints.halted:
        return
    writes = [write for write in step.actions if isinstance(write, WriteNode)]
    assert all(write.applied.driver_label == node.driver_label for write in writes)


def check_does_not_swap_under_an_old_driver(node: NodeView, step: Step) -> None:
    record = node.record
    assert isinstance(record, NodeRecord)
    for action in step.actions:
        if isinstance(action, WriteSlot) and action.command.kind in ("swap", "install"):
            slot = node.components["driver"].slot
            adopted = slot is not None and slot.order == action.command.order
            assert adopted or not any(is_old_pod(record, pod) for pod in node.driver_pods)


def next_time(node: NodeView, view: PoolView, outcome: NodeOutcome, at: float) -> float:
    """Return when the next decision is due, if no agent answers."""
    wait = outcome.wait if isinstance(outcome, Step) else outcome
    times = [getattr(outcome, "wake_at", None), wait.until if isinstance(wait, Wait) else None]
    times += [part.silent_at for part in node.components.values()]
    ahead = [time for time in times if time is not None and time > at]
    return min(ahead, default=at + 1.0)


@given(cases())
@settings(max_examples=75, deadline=None)
def test_every_wait_ends_without_answers(
    case: tuple[NodeView, PoolView, dict[str, Any]],
) -> None:
    node, view, _ = case
    at = NOW
    for _ in range(60):
        outcome = step_in_flight(node, view, instant(at))
        assert isinstance(outcome, Step | Wait)
        if isinstance(outcome, Step) and outcome.actions:
            node = run_step(node, outcome)
            if node.lease is None:
                assert node.state in NAMED_ENDS
                return
            continue
        wait = not_none(outcome if isinstance(outcome, Wait) else outcome.wait)
        if wait.code in NEVER_ENDED_BY_TIME:
            assert wait.until is None
            return
        record = node.record
        if wait.until is None and isinstance(record, NodeRecord) and record.deadline is None:
            return  # The policy sets no timeout.
        at = next_time(node, view, outcome, at)
    raise AssertionError(f"{node.state} does not end")
