"""Decide what to write: operands, unreferenced drivers, statuses. Pure.

An operand is applied, deleted, refused or left alone:

- An object that we applied is kept as rendered, even if others edit it.
- An object that others created under a name of ours is left alone and reported as refused: an
  apply would keep its other fields and its owner.
- An operand that is switched off is deleted only if a cluster-wide policy switches it off, never
  because a policy is missing.

The DaemonSet of an old driver is deleted after an hour without references. The driver label of a
node, a node's record, the Rollout of its pool or a command may refer to it. It also stays while its
pool is missing or invalid: a deleted policy leaves its drivers in place. The hour starts again with
each reference, and with each term of leadership.

While a GPU Operator is active, it owns the statuses of the policies that it follows: only a
condition of ours is written. Whether an action is permitted now (an active GPU Operator, stale
caches) is decided elsewhere.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.kube.views import Object
from libs.policy.kinds import KINDS
from libs.policy.kinds.common import Condition
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from libs.policy.render.agent_pods import ENDS
from libs.policy.render.agents import DRA_DAEMON_SET
from libs.policy.render.driver import daemon_set_name
from libs.policy.render.rendered import POOL_ANNOTATION, TARGET_ANNOTATION, RenderedObject
from libs.policy.render.rendered import RUNTIME_CLASSES as DELETABLE_RUNTIME_CLASSES
from libs.policy.status import MISSING_OPERANDS, PolicyStatus, StatusCondition, updated_conditions
from services.driver.cluster.diagnosed import DIAGNOSED
from services.driver.cluster.diff import difference
from services.driver.cluster.next_kernels import NEXT_KERNEL
from services.driver.cluster.plan import OF_CLUSTER, ObjectKey, OperandPlan
from services.driver.cluster.resources import (
    DAEMON_SETS,
    DELETABLE,
    RUNTIME_CLASSES,
    DaemonSet,
    Node,
    PolicyObject,
    Rollout,
    RuntimeClass,
    is_ours,
)


class ApplyOperand(msgspec.Struct, frozen=True):
    rendered: RenderedObject
    because: str


class DeleteOperand(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    revision: str
    because: str


class RefuseOperand(msgspec.Struct, frozen=True):
    """The operand cannot be applied until a person acts."""

    why: str


OperandAction = ApplyOperand | DeleteOperand | RefuseOperand


def decide_operand(wanted: RenderedObject, live: Object | None) -> OperandAction | None:
    if live is None:
        return ApplyOperand(wanted, "it does not exist")
    if live.metadata.deletion_timestamp:
        return None  # applied again when it is gone
    if wanted.kind == RUNTIME_CLASSES.kind and not is_ours(live):
        # A RuntimeClass of others serves as well if it has the same handler.
        handler = wanted.object["handler"]
        if not isinstance(live, RuntimeClass) or live.handler == handler:
            return None
        return RefuseOperand(
            f"RuntimeClass {wanted.name} was not created by Sluice and has the handler"
            f' "{live.handler}" instead of "{handler}": delete it, or set another name in'
            " spec.operator.runtimeClass"
        )
    if is_ours(live):
        if wanted.name == DRA_DAEMON_SET and _ends(live) and not _ends(wanted.object):
            # A rolling update may wait: for a node that is down, for a plugin without a free GPU,
            # or for a person (OnDelete). Pods of a new DaemonSet start as soon as the old ones end.
            return delete_operand(live, because="its pods give no GPUs, and now they have to")
        path = difference(wanted.object, live)
        return ApplyOperand(wanted, f"{path} differs") if path else None
    return RefuseOperand(
        f"{wanted.kind} {wanted.name} exists and was not created by Sluice: delete it, and Sluice"
        " creates its own"
    )


def _ends(daemon_set: Object | Mapping[str, Any]) -> bool:
    """Report whether the pods of the plugin for claims only take back what pods have."""
    if isinstance(daemon_set, DaemonSet):
        spec: Any = daemon_set.spec
    else:
        spec = cast(Mapping[str, Any], daemon_set)["spec"]
    containers: list[dict[str, Any]] = spec["template"]["spec"]["containers"]
    return any(
        each["name"] == ENDS for container in containers for each in container.get("env", ())
    )


def decide_unwanted(live: Object, plan: OperandPlan, *, kind: str) -> OperandAction | None:
    """Decide about an object that is not rendered and does not belong to a driver.

    A RuntimeClass stays while the policy wants it, even if no node knows its handler any more: pods
    may name it.
    """
    if not plan.decides or live.metadata.deletion_timestamp or not is_ours(live):
        return None
    name = live.metadata.name
    unwanted_classes = frozenset(DELETABLE_RUNTIME_CLASSES) - plan.runtime_classes
    runtime_class = kind == RUNTIME_CLASSES.kind and name in unwanted_classes
    if (kind, name) in DELETABLE or runtime_class:
        return delete_operand(live, because="its policy does not want it")
    return None


def delete_operand(live: Object, *, because: str) -> DeleteOperand:
    """Return the deletion of this object at this revision."""
    metadata = live.metadata
    return DeleteOperand(uid=metadata.uid, revision=metadata.resource_version, because=because)


HOUR: Final = 3600.0
"""Seconds without a reference after which a driver's DaemonSet is deleted."""
SYSTEM_LABEL: Final = "nvidia.com/node.os-version"
"""On a driver's DaemonSet: the operating system of its nodes."""


def is_driver_daemon_set(daemon_set: DaemonSet) -> bool:
    """Return whether this role applied the DaemonSet for a driver."""
    label = daemon_set.metadata.labels.get(DRIVER_LABEL, "")
    return (
        bool(label) and daemon_set.metadata.name == daemon_set_name(label) and is_ours(daemon_set)
    )


def keep_reason(
    daemon_set: DaemonSet,
    plan: OperandPlan,
    *,
    nodes: Collection[Node],
    rollouts: Iterable[Rollout],
    commanded: Mapping[str, Collection[str]] | None,
) -> str:
    """Return why a driver's DaemonSet stays; empty if it may be deleted.

    `commanded`: by driver label, the uids of nodes whose commands refer to it; None if unknown. A
    command for a deleted node does not count: its slots are purged without a message.
    """
    label = daemon_set.metadata.labels[DRIVER_LABEL]
    pool = daemon_set.metadata.annotations.get(POOL_ANNOTATION, "")
    target = daemon_set.metadata.annotations.get(TARGET_ANNOTATION, "")
    if ObjectKey(DAEMON_SETS.kind, daemon_set.metadata.name) in plan.objects:
        return "its pool wants it"
    if not (pool and target):
        return "it has no annotation for its pool or its target"
    if pool not in plan.targets:
        return f"its pool {pool} is missing or invalid"
    if plan.targets[pool] == target and not _has_other_kernels(daemon_set, plan, pool):
        return f"pool {pool} still wants its target"
    if commanded is None:
        return "the commands on the bus are unknown, and one may name it"
    if any(node.metadata.uid in commanded.get(label, ()) for node in nodes):
        return "a command names it"
    for rollout in rollouts:
        if label in rollout.status_text or (
            rollout.metadata.name == pool and target in rollout.status_text
        ):
            return f"Rollout {rollout.metadata.name} names it"
    # Searching the text also covers records of versions that cannot be decoded.
    for node in nodes:
        labelled = node.metadata.labels.get(DRIVER_LABEL) == label
        if labelled or label in node.record or target in node.record:
            return f"node {node.metadata.name} names it"
    return _has_pods(daemon_set)


def _has_other_kernels(daemon_set: DaemonSet, plan: OperandPlan, pool: str) -> bool:
    """Return whether its pool has another DaemonSet for the same operating system.

    It is precompiled for a kernel that no node has any more. An operating system that no node has
    at present is no reason to delete.
    """
    system = daemon_set.metadata.labels.get(SYSTEM_LABEL)
    drivers = [each for each in plan.objects.values() if each.driver and each.pool == pool]
    return any(each.object["metadata"]["labels"][SYSTEM_LABEL] == system for each in drivers)


def _has_pods(daemon_set: DaemonSet) -> str:
    """Return why the DaemonSet may have pods; empty if its controller reports none."""
    status = daemon_set.status
    if status.observed_generation < daemon_set.metadata.generation:
        return "its controller has not observed its latest generation"
    pods = (
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_misscheduled,
    )
    return "it has pods" if any(pods) else ""


class UnreferencedDrivers:
    """Tracks since when drivers' DaemonSets have been unreferenced, by uid."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, kept: Mapping[str, str], *, now: float) -> None:
        """Replace the tracked DaemonSets: `kept` has the reason to keep each, or an empty one."""
        self._since = {
            uid: self._since.get(uid, now) for uid, because in kept.items() if not because
        }

    def seconds_left(self, uid: str, *, now: float) -> float | None:
        """Return the seconds until the DaemonSet may be deleted; None if it is kept."""
        since = self._since.get(uid)
        return None if since is None else max(0.0, since + HOUR - now)

    def next_due(self, *, now: float) -> float | None:
        """Return the seconds until the first one may be deleted."""
        left = (max(0.0, since + HOUR - now) for since in self._since.values())
        return min(left, default=None)


FOREIGN: Final = "ForeignOperator"
_SHARED: Final = ("Ready", "Error")
_UNKNOWN: Final = "Unknown"
"""Conditions that the GPU Operator writes too."""

StatusChange = dict[str, Any]


def status_change(
    status: PolicyStatus,
    policy: PolicyObject,
    *,
    namespace: str,
    foreign: str,
    tells_generation: bool = True,
    now: str,
) -> StatusChange | None:
    """Return the status fields to write; None if they are current, or the policy has changed.

    `tells_generation`: the server keeps the generation; the definitions of NVIDIA's lack the field.
    """
    metadata = policy.metadata
    if (status.uid, status.generation) != (metadata.uid, metadata.generation):
        return None
    live = status_fields(policy.status)
    before = conditions_of(policy.status)
    if foreign and status.kind != ROLLOUT_STRATEGY.name:
        return _stand_back(status, live, before, foreign=foreign, now=now)
    wanted: StatusChange = {}
    fields = KINDS[status.kind].status.__struct_fields__
    if "state" in fields:
        wanted["state"] = status.state
    if "namespace" in fields:
        wanted["namespace"] = namespace
    if tells_generation and (status.is_observed or OBSERVED not in live):
        wanted[OBSERVED] = status.generation if status.is_observed else NEVER
    after = updated_conditions(before, status, now=now)
    same = all(live.get(field) == value for field, value in wanted.items())
    if same and after == before:
        return None
    return {**wanted, "conditions": [_encode(condition) for condition in after]}


OBSERVED: Final = "observedGeneration"
NEVER: Final = -1
"""Not observed yet: whoever waits for the policy waits for a higher number."""


def conditions_of(status: object) -> tuple[Condition, ...]:
    """Return the conditions of a status; none if they are malformed."""
    try:
        return msgspec.convert(status_fields(status).get("conditions") or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()


def without_times(change: StatusChange) -> StatusChange:
    """Remove the times of transitions, so that equal changes compare equal."""
    conditions = [
        msgspec.structs.replace(condition, last_transition_time="")
        for condition in conditions_of(change)
    ]
    return {**change, "conditions": conditions}


def invalid_reason(kind: str, conditions: Sequence[Condition]) -> str:
    """Return why the policy was not accepted; empty if it was."""
    refused = (each for each in conditions if each.type == "Accepted" and each.status == "False")
    return next((f"{kind} cannot be carried out: {each.message}" for each in refused), "")


def _stand_back(
    status: PolicyStatus, live: StatusChange, before: Sequence[Condition], *, foreign: str, now: str
) -> StatusChange | None:
    ours = {condition.type for condition in status.conditions}
    ours |= {MISSING_OPERANDS, DIAGNOSED, NEXT_KERNEL, FOREIGN, *OF_CLUSTER}
    theirs = [
        _left_to_operator(each, status, now=now)
        for each in before
        if each.type in _SHARED or each.type not in ours
    ]
    message = f"Sluice stands back and changes nothing: {foreign}"
    condition = StatusCondition(type=FOREIGN, status=True, reason="LeaseHeld", message=message)
    held = msgspec.structs.replace(status, conditions=(condition,))
    after = (*theirs, *updated_conditions(before, held, now=now))
    if after == tuple(before) and OBSERVED not in live:
        return None
    # The schema requires a state. The operator writes no generation: with one of ours, a pipeline
    # would wait for ever for an edit that only the operator carries out.
    state = {} if live.get("state") else {"state": "notReady"}
    forget = {OBSERVED: None} if OBSERVED in live else {}
    return {**state, **forget, "conditions": [_encode(each) for each in after]}


def _left_to_operator(condition: Condition, status: PolicyStatus, *, now: str) -> Condition:
    """Return a condition that both write; ours is no longer known to be true.

    The operator's has no generation, so what it has said stays.
    """
    if condition.observed_generation is None or condition.status == _UNKNOWN:
        return condition
    return Condition(
        type=condition.type,
        status=_UNKNOWN,
        observed_generation=status.generation,
        last_transition_time=now,
        reason="LeftToGPUOperator",
        message="The GPU Operator that leads has not written this condition yet",
    )


def status_fields(status: object) -> StatusChange:
    return cast("StatusChange", status) if isinstance(status, dict) else {}


def _encode(condition: Condition) -> StatusChange:
    """Encode a condition with its message, which the schema requires even if it is empty."""
    return {"message": "", **msgspec.to_builtins(condition)}
