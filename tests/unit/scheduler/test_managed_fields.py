"""Who owns our fields, as managedFields have it."""

import msgspec

from libs.contracts.node import MANAGER
from libs.rollout.views.node import NodeField
from services.scheduler.resources import Node

STATE = "f:nvidia.com/gpu-driver-upgrade-state"


def entry(manager: str, at: int, fields: object, **more: str) -> dict[str, object]:
    """As a server shows it."""
    return {
        "manager": manager,
        "operation": "Apply" if manager == MANAGER else "Update",
        "time": f"2027-01-15T08:00:{at:02}Z",
        "fieldsV1": fields,
        **more,
    }


def node(*entries: dict[str, object], **metadata: object) -> Node:
    """Read from JSON, as from a server."""
    told = {"name": "a", "uid": "u", "managedFields": list(entries), **metadata}
    return msgspec.json.decode(msgspec.json.encode({"metadata": told}), type=Node)


def labels(*keys: str) -> dict[str, object]:
    """A tree of fields."""
    return {"f:metadata": {"f:labels": {key: {} for key in keys}}}


CORDON = {"f:spec": {"f:unschedulable": {}}}


def test_a_node_that_nobody_wrote_to_has_no_owners() -> None:
    assert node().field_managers == {}
    assert node(entry("kubelet", 1, labels("f:kubernetes.io/os"))).field_managers == {}


def test_each_field_has_its_owners_and_who_wrote_last_comes_last() -> None:
    found = node(
        entry("kubectl-edit", 9, labels(STATE)), entry(MANAGER, 5, {**labels(STATE), **CORDON})
    )
    assert found.field_managers[NodeField.STATE] == (MANAGER, "kubectl-edit")
    assert found.field_managers[NodeField.CORDON] == (MANAGER,)
    assert found.last_managers == {}


def test_who_took_a_field_over_is_its_writer() -> None:
    found = node(entry("kubectl-label", 9, labels(STATE)), entry(MANAGER, 5, CORDON))
    assert found.last_managers == {NodeField.STATE: "kubectl-label"}


def test_each_of_our_annotations_is_a_field_of_its_own() -> None:
    prefix = "nvidia.com/gpu-driver-upgrade"
    keys = {
        "sluice.dev/lease": NodeField.LEASE,
        "sluice.dev/upgrade": NodeField.RECORD,
        "sluice.dev/request": NodeField.REQUEST,
        "nvidia.com/gpu-driver-upgrade-requested": NodeField.REQUESTED,
        "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load": NodeField.SAFE_LOAD,
        f"{prefix}.node-initial-state.unschedulable": NodeField.INITIALLY_CORDONED,
    }
    tree = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in keys}}}
    assert node(entry("x", 1, tree)).field_managers == dict.fromkeys(keys.values(), ("x",))


def test_what_is_written_to_a_subresource_does_not_count() -> None:
    assert node(entry("x", 1, CORDON, subresource="status")).field_managers == {}


def test_what_is_not_asked_about_is_dropped_and_owners_stay() -> None:
    whole = node(
        entry(MANAGER, 1, CORDON), annotations={"sluice.dev/lease": "{}", "a/b": "x" * 1000}
    )
    assert whole.metadata.managed_fields == ()
    assert whole.metadata.annotations == {"sluice.dev/lease": "{}"}
    again = msgspec.structs.replace(whole)
    assert again.field_managers == whole.field_managers != node().field_managers
