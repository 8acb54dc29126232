"""Who owns those fields of a Node that we share with others: read from its managedFields. Pure.

A server keeps an entry per manager, verb and subresource; a field that nobody owns has no entry.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.contracts import node as keys
from libs.contracts.node import MANAGER
from libs.kube.views import ManagedFields
from libs.rollout.views.node import NodeField

_PATHS: Final[Mapping[NodeField, tuple[str, str]]] = {
    NodeField.STATE: ("f:labels", f"f:{keys.STATE_LABEL}"),
    NodeField.DRIVER: ("f:labels", f"f:{keys.DRIVER_LABEL}"),
    NodeField.LEASE: ("f:annotations", f"f:{keys.LEASE_ANNOTATION}"),
    NodeField.RECORD: ("f:annotations", f"f:{keys.RECORD_ANNOTATION}"),
    NodeField.INITIALLY_CORDONED: ("f:annotations", f"f:{keys.INITIALLY_CORDONED_ANNOTATION}"),
    NodeField.REQUEST: ("f:annotations", f"f:{keys.REQUEST_ANNOTATION}"),
    NodeField.REQUESTED: ("f:annotations", f"f:{keys.REQUESTED_ANNOTATION}"),
    NodeField.SAFE_LOAD: ("f:annotations", f"f:{keys.SAFE_LOAD_ANNOTATION}"),
}


class FieldOwners(msgspec.Struct, frozen=True, kw_only=True):
    """As the API server keeps it."""

    owners: Mapping[NodeField, tuple[str, ...]] = {}
    """The managers of each field that anybody owns; who wrote last comes last."""

    @property
    def writers(self) -> Mapping[NodeField, str]:
        """Who wrote each field last that is not, or not any more, as we wrote it."""
        return {
            field: managers[-1]
            for field, managers in self.owners.items()
            if MANAGER not in managers
        }


def field_owners(entries: Sequence[ManagedFields]) -> FieldOwners:
    """From the entries of one Node."""
    found: dict[NodeField, list[str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.time):
        if entry.subresource or not _may_matter(entry):
            continue
        for field in _fields(msgspec.json.decode(entry.fields_v1)):
            managers = found.setdefault(field, [])
            if entry.manager in managers:
                managers.remove(entry.manager)
            managers.append(entry.manager)
    return FieldOwners(owners={field: tuple(managers) for field, managers in found.items()})


def _may_matter(entry: ManagedFields) -> bool:
    # Most entries are kubelets' and controllers': to read them costs more than all the rest.
    told = bytes(entry.fields_v1)
    return b"gpu-driver-upgrade" in told or b"sluice.dev/" in told or b"unschedulable" in told


def _fields(tree: Mapping[str, Any]) -> Iterator[NodeField]:
    if "f:unschedulable" in tree.get("f:spec", {}):
        yield NodeField.CORDON
    metadata: Mapping[str, Any] = tree.get("f:metadata", {})
    for field, (part, key) in _PATHS.items():
        if key in metadata.get(part, {}):
            yield field
