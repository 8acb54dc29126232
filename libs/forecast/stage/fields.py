"""The fields of a Node that we share with others, as the API server and as a view has them.

The API server has a value and its managers; a view has the value by name, and who manages it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from libs.contracts.node import MANAGER, NodeLease, NodeRecord, NodeRequest
from libs.contracts.paths import (
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    KEEP_CORDONED,
    LEASE,
    LEASE_CLAIM,
    MIG_STATE,
    RECORD,
    REQUEST,
    REQUESTED,
    SAFE_LOAD,
    SKIP,
    STATE,
    TAINTS,
)
from libs.rollout.decision import NodeTaint
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView, lease_and_claim

CORDON_TAINT: Final = NodeTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class OwnedField(msgspec.Struct, frozen=True):
    """A leaf of an object (a label, an annotation) with its field managers."""

    value: Any
    managers: tuple[str, ...]


Fields = dict[str, OwnedField]
"""By path."""


def _decode(kind: type[Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None or isinstance(value, kind):
            return value
        try:
            return msgspec.json.decode(str(value), type=kind)
        except msgspec.DecodeError as error:
            return MalformedAnnotation(str(error))

    return read


def _text(value: Any) -> str:
    return value or ""


def _is_true(value: Any) -> bool:
    return value is True or value == "true"


def _is_present(value: Any) -> bool:
    return value is not None


def _request(value: Any) -> NodeRequest | None:
    return NodeRequest(value) if value else None


def _taints(value: Any) -> tuple[NodeTaint, ...]:
    return value or ()


class _Leaf(NamedTuple):
    name: str
    """In a view."""
    read: Callable[[Any], Any]
    """Returns what a view has, of what the API server has; None: nothing."""
    shared: NodeField | None = None
    """None: nobody asks who manages it."""


_LEAVES: Final[Mapping[str, _Leaf]] = {
    CORDON: _Leaf("cordoned", _is_true, NodeField.CORDON),
    TAINTS: _Leaf("taints", _taints, NodeField.TAINTS),
    MIG_STATE: _Leaf("mig_state", _text, NodeField.MIG_STATE),
    STATE: _Leaf("state", _text, NodeField.STATE),
    DRIVER: _Leaf("driver_label", _text, NodeField.DRIVER),
    LEASE: _Leaf("lease", _decode(NodeLease), NodeField.LEASE),
    LEASE_CLAIM: _Leaf("claim", _decode(NodeLease)),
    RECORD: _Leaf("record", _decode(NodeRecord), NodeField.RECORD),
    INITIALLY_CORDONED: _Leaf("initially_cordoned", _is_true, NodeField.INITIALLY_CORDONED),
    REQUEST: _Leaf("request", _request, NodeField.REQUEST),
    REQUESTED: _Leaf("requested", _is_present, NodeField.REQUESTED),
    SAFE_LOAD: _Leaf("safe_load", _is_present, NodeField.SAFE_LOAD),
    SKIP: _Leaf("skip", _is_true),
    KEEP_CORDONED: _Leaf("keep_cordoned", _is_true),
}
_SHARED: Final = {path: leaf.shared for path, leaf in _LEAVES.items() if leaf.shared is not None}


def value_of(fields: Fields, path: str) -> Any:
    """Return the value of a field; empty counts as absent."""
    field = fields.get(path)
    return None if field is None or field.value == "" else field.value


def shown(fields: Fields, writers: Mapping[str, str], uid: str) -> dict[str, Any]:
    """Return what the view of the Node with this uid has of the fields, by name."""
    found = {leaf.name: leaf.read(value_of(fields, path)) for path, leaf in _LEAVES.items()}
    found["lease"], found["claim"] = lease_and_claim(found["lease"], found["claim"], uid)
    found["cordon_taint"] = any(taint.key == CORDON_TAINT.key for taint in found["taints"])
    found["field_managers"] = {
        _SHARED[path]: field.managers for path, field in fields.items() if path in _SHARED
    }
    found["last_managers"] = {
        _SHARED[path]: writer
        for path, writer in writers.items()
        if path in _SHARED and path != TAINTS and writer != MANAGER
    }
    return found


def fields_of(view: NodeView) -> Fields:
    """Return the fields that a view shows."""
    fields: Fields = {}
    for path, leaf in _LEAVES.items():
        value = _taints_of(view) if path == TAINTS else getattr(view, leaf.name)
        if value:
            managers = view.field_managers.get(leaf.shared, ()) if leaf.shared else ()
            fields[path] = OwnedField(_stored(path, value), managers or ("somebody",))
    return fields


def _taints_of(view: NodeView) -> tuple[NodeTaint, ...]:
    others = tuple(taint for taint in view.taints if taint.key != CORDON_TAINT.key)
    return (*others, CORDON_TAINT) if view.cordon_taint else others


def _stored(path: str, value: Any) -> Any:
    if value is True and path != CORDON:
        return "true"
    if isinstance(value, MalformedAnnotation):
        return "cannot be read"
    return value.value if isinstance(value, NodeRequest) else value
