"""The API server: guarded writes to Nodes and Rollouts.

Every answer is an HTTP status.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, NodeRecord
from libs.contracts.rollout import KIND
from libs.forecast.stage.field_paths import (
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    LEASE,
    RECORD,
    STATE,
    UID,
    path_of,
)
from libs.forecast.stage.managed_fields import Fields, applied, updated
from libs.forecast.stage.objects import StageNode, StageRollout
from libs.forecast.stage.recorder import leaves_of_node, leaves_of_rollout
from libs.forecast.stage.state import SCHEDULER, StageState
from libs.rollout.decision import NodeApplyConfiguration, WriteNode, WriteRollout
from libs.testing.stage.faults import KUBELET
from libs.testing.stage.users import PERSON


class Requester(NamedTuple):
    """The author and verb of a request, for the journal."""

    verb: Verb
    user: str
    manager: str = ""


_OUR_APPLY = Requester(Verb.APPLY, SCHEDULER, MANAGER)

OK, CREATED, CONFLICT, NOT_FOUND = 200, 201, 409, 404


def value(node: StageNode, path: str) -> Any:
    """Return the value of a field; empty counts as absent."""
    field = node.fields.get(path)
    return None if field is None or field.value == "" else field.value


def is_cordoned(node: StageNode) -> bool:
    return value(node, CORDON) is True


def driver_label_of(node: StageNode) -> str:
    return value(node, DRIVER) or ""


def apply_node(state: StageState, name: str, write: WriteNode) -> int:
    """Apply with force for the scheduler, guarded by uid and revision."""
    node = state.nodes.get(name)
    if node is None or node.uid != write.uid or str(node.revision) != write.revision:
        _journal_node(state, (name, write.uid), _OUR_APPLY, CONFLICT)
        return CONFLICT
    after = applied(node.fields, MANAGER, _applied_fields(write.applied))
    if after == node.fields:
        _journal_node(state, (name, node.uid), _OUR_APPLY, OK)
        return OK
    change_fields(state, node, after, _OUR_APPLY)
    return OK


def update_node(state: StageState, name: str, manager: str, changes: Mapping[str, Any]) -> int:
    """Patch a Node for a person, by path; None removes."""
    node = state.nodes.get(name)
    if node is None:
        return NOT_FOUND
    after = updated(node.fields, manager, changes)
    if after != node.fields:
        change_fields(state, node, after, Requester(Verb.PATCH, "person", manager))
    return OK


def change_fields(state: StageState, node: StageNode, after: Fields, by: Requester) -> None:
    """Store the fields and notify all handlers."""
    before = node.fields
    node.fields = after
    changed = {
        path
        for path in {**before, **after}
        if path not in before or path not in after or before[path].value != after[path].value
    }
    if changed:
        node.writers = {**node.writers, **dict.fromkeys(changed, by.manager)}
    stored(state, node, by)
    state.node_changed(node.name, frozenset(changed))


def stored(state: StageState, node: StageNode, by: Requester) -> None:
    """Give a changed Node its new revision."""
    state.revision += 1
    node.revision = state.revision
    _journal_node(state, (node.name, node.uid), by, OK, node)
    state.touch(node.name)


def create_node(state: StageState, node: StageNode, *, found: bool = False) -> None:
    """Create a Node object, or add one that existed before the journal began."""
    state.nodes[node.name] = node
    state.revision += 1
    node.revision = state.revision
    if found:
        if state.recorder is not None:
            state.recorder.node_found(node)
        state.touch(node.name)
        state.node_changed(node.name, frozenset())
        return
    by = Requester(Verb.CREATE, KUBELET, "kubelet")
    _journal_node(state, (node.name, node.uid), by, CREATED, node)
    state.touch(node.name)
    state.node_changed(node.name, frozenset((UID,)))


def delete_node(state: StageState, name: str, user: str) -> None:
    """Delete the object and its data on the bus; the machine goes on."""
    node = state.nodes.pop(name)
    state.revision += 1
    if state.recorder is not None:
        state.recorder.request(
            at=state.now, revision=state.revision, kind="Node", name=name, uid=node.uid,
            verb=Verb.DELETE, code=OK, user=user, leaves={},
        )  # fmt: skip
    for key in [key for key in state.slots if key[0] == name]:
        del state.slots[key]
    state.driver_facts.pop(name, None)
    state.memory.pop(name, None)
    state.touch(name)
    state.node_changed(name, frozenset((UID,)))


def write_rollout(state: StageState, write: WriteRollout) -> int:
    """Replace the status by compare-and-set; without a uid, create the Rollout."""
    pool = state.pools.get(write.pool)
    rollout = pool.rollout if pool is not None else None
    if pool is None:
        return NOT_FOUND
    if not write.uid:
        if rollout is not None:
            return _reject_rollout(state, write, Verb.CREATE)
        pool.rollout = rollout = StageRollout(uid=state.new_uid("rollout"), revision=0)
    elif rollout is None or (rollout.uid, str(rollout.revision)) != (write.uid, write.revision):
        return _reject_rollout(state, write, Verb.UPDATE)
    if write.uid and rollout.status == write.status and rollout.finalized == write.has_finalizer:
        return OK
    rollout.status = write.status
    rollout.finalized = write.has_finalizer
    if write.brake is not None and not write.uid:
        rollout.spec = type(rollout.spec)(brake=write.brake, release=rollout.spec.release)
    by = Requester(Verb.UPDATE if write.uid else Verb.CREATE, SCHEDULER, MANAGER)
    stored_rollout(state, write.pool, rollout, by)
    return OK


def stored_rollout(state: StageState, key: str, rollout: StageRollout, by: Requester) -> None:
    """Give a changed Rollout its new revision."""
    state.revision += 1
    rollout.revision = state.revision
    state.touch_pool(key)
    if state.recorder is not None:
        state.recorder.request(
            at=state.now, revision=state.revision, kind=KIND, name=key, uid=rollout.uid,
            verb=by.verb, code=CREATED if by.verb is Verb.CREATE else OK, user=by.user,
            manager=by.manager, leaves=leaves_of_rollout(key, rollout),
        )  # fmt: skip


def delete_rollout(state: StageState, key: str) -> None:
    """Delete the Rollout, with its finalizer if it has one."""
    pool = state.pools[key]
    rollout, pool.rollout = pool.rollout, None
    if rollout is None:
        return
    state.revision += 1
    state.touch_pool(key)
    if state.recorder is not None:
        state.recorder.request(
            at=state.now, revision=state.revision, kind=KIND, name=key, uid=rollout.uid,
            verb=Verb.DELETE, code=OK, user=PERSON, leaves={},
        )  # fmt: skip


class PodId(NamedTuple):
    namespace: str
    name: str
    uid: str


def journal_pod(
    state: StageState, pod: PodId, by: Requester, code: int, leaves: Mapping[str, Any] | None = None
) -> None:
    """Record a request about a pod; changes of pods count in the shared revision."""
    if code < 300:
        state.revision += 1
    if state.recorder is not None:
        state.recorder.request(
            at=state.now, revision=state.revision if code < 300 else 0, kind="Pod", name=pod.name,
            namespace=pod.namespace, uid=pod.uid, verb=by.verb, code=code, user=by.user,
            manager=by.manager, leaves=leaves,
        )  # fmt: skip


def record_of(node: StageNode) -> NodeRecord | None:
    """Return the node record, if it can be read and belongs to this Node."""
    record = value(node, RECORD)
    return record if isinstance(record, NodeRecord) and record.node_uid == node.uid else None


def _applied_fields(configuration: NodeApplyConfiguration) -> dict[str, Any]:
    fields: dict[str, Any] = {path_of(key): "" for key in configuration.cleared}
    if configuration.state:
        fields[STATE] = str(configuration.state)
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
    return fields


def _journal_node(
    state: StageState,
    key: tuple[str, str],
    by: Requester,
    code: int,
    node: StageNode | None = None,
) -> None:
    if state.recorder is None:
        return
    state.recorder.request(
        at=state.now,
        revision=state.revision if node is not None else 0,
        kind="Node",
        name=key[0],
        uid=key[1],
        verb=by.verb,
        code=code,
        user=by.user,
        manager=by.manager,
        leaves=leaves_of_node(node) if node is not None else None,
    )


def _reject_rollout(state: StageState, write: WriteRollout, verb: Verb) -> int:
    if state.recorder is not None:
        state.recorder.request(
            at=state.now, revision=0, kind=KIND, name=write.pool, uid=write.uid, verb=verb,
            code=CONFLICT, user=SCHEDULER, manager=MANAGER,
        )  # fmt: skip
    return CONFLICT
