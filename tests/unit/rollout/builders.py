"""Views with consistent defaults: a test sets only the fields that matter to it.

A pool that moves from OLD to NEW, machines with live agents, and nodes in the common situations.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from libs.contracts.commands import Command, CommandBody, Idle, Order, Proven
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import (
    DRIVER_LABEL,
    INITIALLY_CORDONED_ANNOTATION,
    LEASE_ANNOTATION,
    MANAGER,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.contracts.reports import Evidence, Result, Usage
from libs.contracts.reports import Outcome as Ended
from libs.contracts.rollout import InFlight, RolloutStatus
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout import at_rest, edits
from libs.rollout import step as steps
from libs.rollout.decision import (
    Candidate,
    NodeApplyConfiguration,
    NodeOutcome,
    Step,
    Wait,
    WriteNode,
    WriteSlot,
)
from libs.rollout.in_flight import begin as first_write
from libs.rollout.in_flight import step as in_flight
from libs.rollout.node_case import NodeCase
from libs.rollout.views.fleet import Fleet, Instant, SourceState, Visibility
from libs.rollout.views.machine import Component, DriverPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import Build, PoolConstraints, PoolView, RolloutView

NOW = 1_793_530_800.0
"""The default time of decisions."""

HOUR = 3600.0
POOL = "clusterpolicy-cluster"
OLD, NEW = "target-old", "target-new"
VARIANT = "ubuntu24.04"
KERNEL = "6.8.0-31-generic"
BOOT = "boot-1"
EPOCH = 3
TOKEN = 7
OPERATOR = "gpu-operator"
"""The field manager of the GPU Operator."""
PERSON = "kubectl-edit"

COMPONENTS = ("driver", "validator", "plugin", "telemetry", "discovery")
SOURCES = ("nodes", "pods", "rollouts", "policies", "daemonsets")


def label_of(target: str, variant: str = VARIANT) -> str:
    return f"label-{target}-{variant}"


def install_of(target: str) -> str:
    return f"install-{target}"


def proven_of(target: str, *, kernel: str = KERNEL) -> Proven:
    """Return what evidence for this target proves."""
    return Proven(label=label_of(target), kernel=kernel, install_digest=install_of(target))


def version_of(target: str) -> str:
    return f"580.{sum(map(ord, target)) % 100}.1"


# Instants and pools.


def instant(
    at: float = NOW,
    *,
    epoch: int = EPOCH,
    age: float = 1.0,
    ages: Mapping[str, float] | None = None,
    **visibility: Any,
) -> Instant:
    """Return a moment with every source proved `age` seconds ago; `ages` sets single ones."""
    sources = {
        name: SourceState(proved=at - (ages or {}).get(name, age), revision="100")
        for name in SOURCES
    }
    return Instant(
        at=at, epoch=epoch, visibility=replace(Visibility(sources=sources), **visibility)
    )


def build(target: str = NEW, variant: str = VARIANT, **changes: Any) -> Build:
    """Return the build of a target for a variant."""
    result = Build(label=label_of(target, variant), install_digest=install_of(target))
    return replace(result, **changes)


def pool(
    target: str = NEW,
    *,
    targets: Sequence[str] = (OLD, NEW),
    variants: Sequence[str] = (VARIANT,),
    constraints: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    upgrade: Mapping[str, Any] | None = None,
    **changes: Any,
) -> PoolView:
    """Return a pool with settled builds; mappings change fields of the struct they name."""
    result = PoolView(
        key=POOL,
        uid="uid-of-pool",
        target=target,
        builds={item: {variant: build(item, variant) for variant in variants} for item in targets},
        upgrade=UpgradePolicy(auto_upgrade=True, **(upgrade or {})),
        rollout=RolloutView(
            uid="uid-of-rollout",
            revision="10",
            has_finalizer=True,
            status=RolloutStatus(target=target, epoch=EPOCH, **(status or {})),
        ),
        constraints=PoolConstraints(**(constraints or {})),
    )
    return replace(result, **changes)


def with_build(pool: PoolView, target: str = NEW, variant: str = VARIANT, **build: Any) -> PoolView:
    changed = replace(pool.builds[target][variant], **build)
    builds = {**pool.builds, target: {**pool.builds[target], variant: changed}}
    return replace(pool, builds=builds)


def granted(pool: PoolView, *nodes: NodeView, target: str = NEW, **changes: Any) -> PoolView:
    """Return the pool with these nodes in flight, and their starts admitted."""
    entries = {
        node.uid: replace(
            InFlight(node=node.name, token=token_of(node) + 1, target=target, since=NOW - 5),
            **changes,
        )
        for node in nodes
    }
    constraints = replace(
        pool.constraints,
        in_flight={**pool.constraints.in_flight, **entries},
        may_begin=pool.constraints.may_begin | set(entries),
    )
    return replace(pool, constraints=constraints)


def with_rollout(pool: PoolView, **changes: Any) -> PoolView:
    assert pool.rollout is not None
    return replace(pool, rollout=replace(pool.rollout, **changes))


def with_status(pool: PoolView, **changes: Any) -> PoolView:
    """Return the pool with fields of the status of its Rollout changed."""
    assert pool.rollout is not None
    return with_rollout(pool, status=replace(pool.rollout.status, **changes))


def fleet(pools: PoolView | Sequence[PoolView], *nodes: NodeView) -> Fleet:
    each = (pools,) if isinstance(pools, PoolView) else pools
    return Fleet(pools={item.key: item for item in each}, nodes={node.name: node for node in nodes})


# Machines.


def command(
    body: CommandBody,
    *,
    node: str = "node-1",
    order: tuple[int, int] = (TOKEN, 1),
    boot: str = BOOT,
    epoch: int = EPOCH,
    deadline: float = NOW + HOUR,
) -> Command:
    return Command.of(
        body,
        node=node,
        node_uid=f"uid-{node}",
        boot_id=boot,
        epoch=epoch,
        order=Order(*order),
        deadline=deadline,
    )


def component(
    slot: Command | None = None, *, last_beat: float = NOW - 20, **changes: Any
) -> Component:
    """Return a live component that has reported the order of its slot."""
    result = Component(
        last_beat=last_beat,
        silent_at=last_beat + 180.0,
        capabilities=frozenset(
            {"quiesce", "idle", "swap", "install", "validate", "preflight", "holders"}
        ),
        slot=slot,
        highest_order=slot.order if slot is not None else Order(0, 0),
    )
    return replace(result, **changes)


def slot_in(node: NodeView, component: str) -> Command:
    slot = node.components[component].slot
    assert slot is not None
    return slot


def ended(slot: Command, outcome: str = "done", **changes: Any) -> Result:
    """Return the result of the op in this slot."""
    result = Result(
        epoch=slot.epoch,
        token=slot.token,
        op=slot.op,
        command=slot.kind.value,
        outcome=Ended(outcome),
    )
    return replace(result, **changes)


def idle_components(
    name: str = "node-1", *, proven: str = "", token: int = TOKEN, kernel: str = KERNEL
) -> dict[str, Component]:
    """Return all components, idle; driver agent and validator name the proven label."""
    target = proven.removeprefix("label-").rpartition("-")[0]
    known = Idle(proven=proven_of(target, kernel=kernel)) if proven else Idle()
    return {
        part: component(
            command(
                known if part in {"driver", "validator"} else Idle(), node=name, order=(token, 2)
            )
        )
        for part in COMPONENTS
    }


def driver_pod(target: str = NEW, *, node: str = "node-1", **changes: Any) -> DriverPod:
    """Return a running and ready driver pod."""
    result = DriverPod(
        namespace="gpu-operator",
        name=f"driver-{target}-{node}",
        uid=f"pod-{target}-{node}",
        label=label_of(target),
        install_digest=install_of(target),
        ready=True,
        started=NOW - HOUR,
    )
    return replace(result, **changes)


def evidence(target: str = NEW, *, node: str = "node-1", **changes: Any) -> Evidence:
    """Return a passed proof of what `driver_pod` runs."""
    pod = driver_pod(target, node=node)
    result = Evidence(
        epoch=EPOCH,
        token=TOKEN,
        op=1,
        passed=True,
        label=label_of(target),
        node_uid=f"uid-{node}",
        boot_id=BOOT,
        kernel=KERNEL,
        driver_pod_uid=pod.uid,
        driver_started=pod.started or 0.0,
        driver_version=version_of(target),
        driver_digest=install_of(target),
        at=NOW - HOUR + 60,
    )
    return replace(result, **changes)


# Annotations of a node.


def lease(node: str = "node-1", **changes: Any) -> NodeLease:
    result = NodeLease(
        node_uid=f"uid-{node}", owner=LeaseOwner.UPGRADE, token=TOKEN, since=NOW - 60
    )
    return replace(result, **changes)


def record(node: str = "node-1", **changes: Any) -> NodeRecord:
    """Return the record of an upgrade from OLD to NEW that waits for jobs."""
    result = NodeRecord(
        node_uid=f"uid-{node}",
        epoch=EPOCH,
        token=TOKEN,
        pool=POOL,
        operation=Operation.UPGRADE,
        target=NEW,
        label=label_of(NEW),
        label_before=label_of(OLD),
        state=UpgradeState.WAIT_FOR_JOBS_REQUIRED,
        since=NOW - 60,
        boot_id=BOOT,
        attempt=1,
    )
    return replace(result, **changes)


def with_record(node: NodeView, **changes: Any) -> NodeView:
    """Return the node with fields of its record changed."""
    assert isinstance(node.record, NodeRecord)
    return replace(node, record=replace(node.record, **changes))


def token_of(node: NodeView) -> int:
    """Return the highest token in record and lease of a node."""
    return max(
        node.record.token if isinstance(node.record, NodeRecord) else 0,
        node.lease.token if isinstance(node.lease, NodeLease) else 0,
    )


# Nodes.


def node(name: str = "node-1", **changes: Any) -> NodeView:
    """Return a node that was never upgraded: no state, modules or GPU pods; live agents."""
    result = NodeView(
        name=name,
        uid=f"uid-{name}",
        revision="50",
        boot_id=BOOT,
        kernel=KERNEL,
        created=NOW - 30 * 24 * HOUR,
        pool=POOL,
        variant=VARIANT,
        gpus=8,
        components={part: component() for part in COMPONENTS},
        modules_reported=True,
        usage=Usage(),
    )
    return replace(result, **changes)


def done(name: str = "node-1", target: str = NEW, **changes: Any) -> NodeView:
    """Return a node upgraded to this target, with matching evidence."""
    label = label_of(target)
    proof = evidence(target, node=name)
    state = UpgradeState.UPGRADE_DONE
    view = node(
        name,
        state=state,
        driver_label=label,
        record=NodeRecord(
            node_uid=f"uid-{name}",
            epoch=EPOCH,
            token=TOKEN,
            pool=POOL,
            target=target,
            label=label,
            state=state,
            since=NOW - HOUR + 60,
            boot_id=BOOT,
            evidence=proof,
        ),
        field_managers={
            NodeField.STATE: (MANAGER,),
            NodeField.DRIVER: (MANAGER,),
            NodeField.RECORD: (MANAGER,),
        },
        components=idle_components(name, proven=label),
        driver_pods=(driver_pod(target, node=name),),
        loaded=LoadedDriver(version=version_of(target), loaded_at=NOW - HOUR - 30),
        gate=Gate(admitted_pod_uid=f"pod-{target}-{name}", admitted_label=label),
        evidence=proof,
    )
    return replace(view, **changes)


def required(name: str = "node-1", target: str = OLD, **changes: Any) -> NodeView:
    """Return a node that runs a proven target and is stamped for another; its pods are listed."""
    view = done(name, target)
    assert isinstance(view.record, NodeRecord)
    state = UpgradeState.UPGRADE_REQUIRED
    view = replace(view, state=state, record=replace(view.record, state=state), pods=())
    return replace(view, **changes)


def failed(
    name: str = "node-1", target: str = NEW, *, cause: str = "validation: cuda", **changes: Any
) -> NodeView:
    """Return a node whose upgrade from OLD to this target failed: cordoned by us, nothing proven.

    The current run of its driver was validated without success.
    """
    state = UpgradeState.UPGRADE_FAILED
    stored = record(
        name,
        state=state,
        target=target,
        label=label_of(target),
        started=True,
        cause=cause,
        unproven=True,
        since=NOW - HOUR,
        revalidated=driver_pod(target, node=name).instance,
    )
    view = replace(
        done(name, target),
        state=state,
        record=stored,
        cordoned=True,
        cordon_taint=True,
        evidence=None,
        components=idle_components(name),
    )
    owners = {**view.field_managers, NodeField.CORDON: (MANAGER,)}
    return replace(view, **{"field_managers": owners, **changes})


STARTED = {
    UpgradeState.POD_RESTART_REQUIRED,
    UpgradeState.VALIDATION_REQUIRED,
    UpgradeState.UNCORDON_REQUIRED,
}
PAUSED = {
    UpgradeState.POD_DELETION_REQUIRED,
    UpgradeState.DRAIN_REQUIRED,
    UpgradeState.POD_RESTART_REQUIRED,
}


def in_flight_node(
    state: UpgradeState | str = UpgradeState.WAIT_FOR_JOBS_REQUIRED,
    name: str = "node-1",
    *,
    record: Mapping[str, Any] | None = None,
    **changes: Any,
) -> NodeView:
    """Return a node in flight from OLD to NEW in this state."""
    state = UpgradeState(state)
    started = state in STARTED
    running_target = NEW if state in STARTED - {UpgradeState.POD_RESTART_REQUIRED} else OLD
    taken_lease = replace(
        _record(
            name,
            state=state,
            started=started,
            paused=state in PAUSED,
            old_pod_uid=f"pod-{OLD}-{name}" if started else "",
        ),
        **(record or {}),
    )
    view = replace(
        done(name, running_target),
        state=state,
        driver_label=label_of(NEW if started else OLD),
        record=taken_lease,
        lease=lease(name),
        cordoned=True,
        cordon_taint=True,
        evidence=None,
        pods=(),
    )
    owners = {**view.field_managers, NodeField.CORDON: (MANAGER,), NodeField.LEASE: (MANAGER,)}
    return replace(view, **{"field_managers": owners, **changes})


_record = record


def without_component(node: NodeView, name: str) -> NodeView:
    components = {key: part for key, part in node.components.items() if key != name}
    return replace(node, components=components)


def without_driver(node: NodeView) -> NodeView:
    """Return the node with neither driver pod nor modules, as its agent reports."""
    return replace(node, driver_pods=(), loaded=None, gate=Gate())


def on_host(pool: PoolView) -> PoolView:
    """Return the pool with the host method: artefacts instead of pods."""
    builds = {
        target: {
            variant: replace(item, artefact=f"sha256:{item.install_digest}")
            for variant, item in by_variant.items()
        }
        for target, by_variant in pool.builds.items()
    }
    return replace(pool, method=InstallMethod.HOST, builds=builds)


# Nodes after a step.

CLEARED = {
    STATE_LABEL: ("state", ""),
    DRIVER_LABEL: ("driver_label", ""),
    LEASE_ANNOTATION: ("lease", None),
    RECORD_ANNOTATION: ("record", None),
    REQUEST_ANNOTATION: ("request", None),
    REQUESTED_ANNOTATION: ("requested", False),
    SAFE_LOAD_ANNOTATION: ("safe_load", False),
    INITIALLY_CORDONED_ANNOTATION: ("initially_cordoned", False),
}


def apply_step(node: NodeView, step: Step) -> NodeView:
    """Return the node after all writes of a step."""
    for action in step.actions:
        if isinstance(action, WriteNode):
            assert (action.uid, action.revision) == (node.uid, node.revision)
            node = _applied(node, action.applied)
        elif isinstance(action, WriteSlot):
            part = replace(node.components[action.component], slot=action.command)
            node = replace(node, components={**node.components, action.component: part})
    return node


def _applied(node: NodeView, applied: NodeApplyConfiguration) -> NodeView:
    """Apply as the API server does: a dropped field goes unless another manager owns it."""
    wanted = {
        NodeField.STATE: ("state", applied.state or None, ""),
        NodeField.DRIVER: ("driver_label", applied.driver_label or None, ""),
        NodeField.LEASE: ("lease", applied.lease, None),
        NodeField.RECORD: ("record", applied.record, None),
        NodeField.INITIALLY_CORDONED: (
            "initially_cordoned",
            applied.initially_cordoned or None,
            False,
        ),
        NodeField.MIG_STATE: ("mig_state", applied.mig_state or None, ""),
        NodeField.CORDON: ("cordoned", applied.unschedulable, False),
        NodeField.TAINTS: ("taints", applied.taints, ()),
    }
    owners, changes = dict(node.field_managers), dict[str, Any]()
    for field, (name, value, absent) in wanted.items():
        old_managers = node.field_managers.get(field, ())
        others = tuple(manager for manager in old_managers if manager != MANAGER)
        if value is not None:
            is_unchanged = getattr(node, name) == value
            owners[field] = (*others, MANAGER) if is_unchanged else (MANAGER,)
            changes[name] = value
        elif MANAGER in old_managers:
            owners[field] = others
            if not others:
                changes[name] = absent
    for key in applied.cleared:
        name, absent = CLEARED[key]
        changes[name] = absent
    remaining = {field: managers for field, managers in owners.items() if managers}
    return replace(node, **changes, field_managers=remaining, revision=f"{int(node.revision) + 1}")


# What the engine decides about one node.


def node_case(
    node: NodeView, pool_view: PoolView | None = None, now: Instant | None = None
) -> NodeCase:
    view, at = pool_view or pool(), now or instant()
    record, lease = node.current_record, node.upgrade_lease
    return NodeCase(node=node, pool=view, now=at, record=record, lease=lease)


def step(node: NodeView, pool: PoolView | None = None, now: Instant | None = None) -> NodeOutcome:
    return steps.step(node_case(node, pool, now))


def handle_edits(
    node: NodeView, pool: PoolView | None = None, now: Instant | None = None
) -> Step | Wait | None:
    return edits.handle_edits(node_case(node, pool, now))


def step_at_rest(
    node: NodeView, pool: PoolView | None = None, now: Instant | None = None
) -> NodeOutcome:
    return at_rest.step_at_rest(node_case(node, pool, now))


def step_in_flight(
    node: NodeView, pool: PoolView | None = None, now: Instant | None = None
) -> NodeOutcome:
    return in_flight.step_in_flight(node_case(node, pool, now))


def begin(
    node: NodeView, candidate: Candidate, entry: InFlight, pool: PoolView, now: Instant
) -> Step | Wait:
    return first_write.begin(node_case(node, pool, now), candidate, entry)
