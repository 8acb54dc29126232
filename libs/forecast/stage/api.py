"""The API server: guarded writes of the scheduler to Nodes and Rollouts.

Every answer is an HTTP status.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, NodeRecord
from libs.contracts.paths import (
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    LEASE,
    MIG_STATE,
    RECORD,
    STATE,
    TAINTS,
    node_path,
)
from libs.contracts.rollout import KIND, RolloutSpec
from libs.forecast.stage.fields import CORDON_TAINT, Fields, OwnedField, value_of
from libs.forecast.stage.objects import StageNode
from libs.forecast.stage.state import SCHEDULER, ObjectRef, Requester, StageState
from libs.rollout.decision import NodeApplyConfiguration, WriteNode, WriteRollout
from libs.rollout.views.pool import RolloutView

OUR_APPLY = Requester(Verb.APPLY, SCHEDULER, MANAGER)
NODE_CONTROLLER = Requester(
    Verb.PATCH,
    "system:serviceaccount:kube-system:node-controller",
    "kube-controller-manager",
)

OK, CREATED, CONFLICT, NOT_FOUND = 200, 201, 409, 404


# Nodes.


def value(node: StageNode, path: str) -> Any:
    """Return the value of a field; empty counts as absent."""
    return value_of(node.fields, path)


def with_cordon_taint(node: StageNode, tainted: bool) -> Fields:
    """Return the fields of the node with or without the taint of a cordon.

    Its writer owns the list then, as that of any field that it changes.
    """
    others = tuple(taint for taint in node.view.taints if taint.key != CORDON_TAINT.key)
    taints = (*others, CORDON_TAINT) if tainted else others
    fields = {path: field for path, field in node.fields.items() if path != TAINTS}
    return {**fields, TAINTS: OwnedField(taints, (NODE_CONTROLLER.manager,))} if taints else fields


def record_of(node: StageNode) -> NodeRecord | None:
    """Return the node record, if it can be read and belongs to this Node."""
    record = value(node, RECORD)
    return record if isinstance(record, NodeRecord) and record.node_uid == node.view.uid else None


def apply_node(state: StageState, name: str, write: WriteNode) -> int:
    """Apply with force for the scheduler, guarded by uid and revision."""
    node = state.nodes.get(name)
    code = CONFLICT
    if node is not None and (node.view.uid, node.view.revision) == (write.uid, write.revision):
        code = OK
        after = apply_fields(node.fields, _configured_fields(write.applied))
        if after != node.fields:
            change_fields(state, node, after, OUR_APPLY)
            return code
    state.on_request(ObjectRef("Node", name, write.uid), OUR_APPLY, code)
    return code


def apply_fields(fields: Fields, wanted: Mapping[str, Any]) -> Fields:
    """Return the fields after an apply with force of the scheduler's whole configuration.

    The scheduler alone owns changed values and co-owns unchanged ones. Fields left out of the
    configuration are removed unless another manager owns them.
    """
    after: Fields = {}
    for path, field in fields.items():
        others = tuple(manager for manager in field.managers if manager != MANAGER)
        if path in wanted:
            after[path] = _shared(field, wanted[path])
        elif others == field.managers:
            after[path] = field
        elif others:
            after[path] = OwnedField(field.value, others)
    for path, value in wanted.items():
        if path not in fields:
            after[path] = OwnedField(value, (MANAGER,))
    return after


def _shared(field: OwnedField, value: Any) -> OwnedField:
    if field.value != value or type(field.value) is not type(value):
        return OwnedField(value, (MANAGER,))
    if MANAGER in field.managers:
        return field
    return OwnedField(value, (*field.managers, MANAGER))


def _configured_fields(configuration: NodeApplyConfiguration) -> dict[str, Any]:
    fields: dict[str, Any] = {node_path(key): "" for key in configuration.cleared}
    if configuration.state:
        fields[STATE] = str(configuration.state)
    if configuration.mig_state:
        fields[MIG_STATE] = str(configuration.mig_state)
    if configuration.driver_label:
        fields[DRIVER] = configuration.driver_label
    if configuration.lease is not None:
        fields[LEASE] = configuration.lease
    if configuration.record is not None:
        fields[RECORD] = configuration.record
    if configuration.initially_cordoned:
        fields[INITIALLY_CORDONED] = "true"
    if configuration.unschedulable is not None:
        fields[CORDON] = configuration.unschedulable
    if configuration.taints is not None:
        fields[TAINTS] = configuration.taints
    return fields


def change_fields(state: StageState, node: StageNode, after: Fields, by: Requester) -> None:
    """Store the fields and notify all handlers."""
    before = node.fields
    changed = {
        path
        for path in {**before, **after}
        if path not in before or path not in after or before[path].value != after[path].value
    }
    if changed:
        node.writers = {**node.writers, **dict.fromkeys(changed, by.manager)}
    node.store(after)
    node_stored(state, node, by)
    state.node_changed(node.view.name, frozenset(changed))


def node_stored(state: StageState, node: StageNode, by: Requester, **changes: Any) -> None:
    """Give a changed Node its new revision."""
    state.revision += 1
    node.show(revision=str(state.revision), **changes)
    name, uid = node.view.name, node.view.uid
    state.on_request(ObjectRef("Node", name, uid), by, OK, state.revision, node)
    state.touch(name)


# Rollouts.


def write_rollout(state: StageState, write: WriteRollout) -> int:
    """Replace the status by compare-and-set; without a uid, create the Rollout."""
    pool = state.pools.get(write.pool)
    if pool is None:
        return NOT_FOUND
    rollout = pool.rollout
    by = Requester(Verb.UPDATE if write.uid else Verb.CREATE, SCHEDULER, MANAGER)
    stored = ("", "") if rollout is None else (rollout.uid, rollout.revision)
    if stored != ((write.uid, write.revision) if write.uid else ("", "")):
        state.on_request(ObjectRef(KIND, write.pool, write.uid), by, CONFLICT)
        return CONFLICT
    if rollout is None:
        spec = RolloutSpec() if write.brake is None else RolloutSpec(brake=write.brake)
        uid = state.new_uid("rollout")
        rollout = RolloutView(uid=uid, revision="", generation=1, spec=spec)
    elif (rollout.status, rollout.has_finalizer) == (write.status, write.has_finalizer):
        return OK
    written = replace(rollout, status=write.status, has_finalizer=write.has_finalizer)
    store_rollout(state, write.pool, written, by)
    return OK


def store_rollout(state: StageState, key: str, rollout: RolloutView, by: Requester) -> None:
    """Store a changed Rollout with its new revision."""
    state.revision += 1
    rollout = replace(rollout, revision=str(state.revision))
    state.change_pool(key, rollout=rollout)
    code = CREATED if by.verb is Verb.CREATE else OK
    state.on_request(ObjectRef(KIND, key, rollout.uid), by, code, state.revision, rollout)


# Pods.


def journal_pod(
    state: StageState,
    ref: ObjectRef,
    by: tuple[Verb, str],
    code: int,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record a request about a pod; changes of pods count in the shared revision."""
    if code < 300:
        state.revision += 1
    verb, user = by
    requester = Requester(verb, user, MANAGER if user == SCHEDULER else "")
    state.on_request(ref, requester, code, state.revision if code < 300 else 0, after)
