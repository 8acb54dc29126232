"""The managers of a Node's fields, read from managedFields."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.node import MANAGER
from libs.rollout.views.node import NodeField
from services.scheduler.resources import Node, Policy
from tests.builders import objects
from tests.builders.objects import seen

STATE = "f:nvidia.com/gpu-driver-upgrade-state"


def entry(manager: str, second: int, fields: object, **more: str) -> dict[str, object]:
    """Return an entry of managedFields as a server returns it."""
    return {
        "manager": manager,
        "operation": "Apply" if manager == MANAGER else "Update",
        "time": f"2027-01-15T08:00:{second:02}Z",
        "fieldsV1": fields,
        **more,
    }


def node(*entries: dict[str, object], **metadata: Any) -> Node:
    """Return a Node decoded from JSON, as from a server."""
    return seen(Node, objects.node(managedFields=list(entries), **metadata))


def labels(*keys: str) -> dict[str, object]:
    """Return the fieldsV1 of labels."""
    return {"f:metadata": {"f:labels": {key: {} for key in keys}}}


CORDON = {"f:spec": {"f:unschedulable": {}}}


def test_fields_that_were_not_written_have_no_managers() -> None:
    assert node().field_managers == {}
    assert node(entry("kubelet", 1, labels("f:kubernetes.io/os"))).field_managers == {}


def test_the_last_writer_of_a_field_comes_last() -> None:
    found = node(
        entry("kubectl-edit", 9, labels(STATE)), entry(MANAGER, 5, {**labels(STATE), **CORDON})
    )
    assert found.field_managers[NodeField.STATE] == (MANAGER, "kubectl-edit")
    assert found.field_managers[NodeField.CORDON] == (MANAGER,)
    assert found.last_managers == {}


def test_a_field_taken_over_has_another_last_manager() -> None:
    found = node(entry("kubectl-label", 9, labels(STATE)), entry(MANAGER, 5, CORDON))
    assert found.last_managers == {NodeField.STATE: "kubectl-label"}


def test_each_annotation_of_an_upgrade_is_a_field() -> None:
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


def test_writes_to_a_subresource_are_ignored() -> None:
    assert node(entry("x", 1, CORDON, subresource="status")).field_managers == {}


def test_unused_fields_are_dropped_and_field_managers_kept() -> None:
    stored = node(
        entry(MANAGER, 1, CORDON), annotations={"sluice.dev/lease": "{}", "a/b": "x" * 1000}
    )
    assert stored.metadata.managed_fields == ()
    assert stored.metadata.annotations == {"sluice.dev/lease": "{}"}
    copy = replace(stored)
    assert copy.field_managers == stored.field_managers != node().field_managers


def test_the_state_of_the_mig_configuration_is_a_field() -> None:
    found = node(entry(MANAGER, 5, labels("f:nvidia.com/mig.config.state")))
    assert found.field_managers == {NodeField.MIG_STATE: (MANAGER,)}
    others = node(entry("kubectl-label", 5, labels("f:nvidia.com/mig.config")))
    assert others.field_managers == {}


def test_the_list_of_taints_is_ours_by_our_own_entry_alone() -> None:
    """It may be all that we own, after a removal; entries of others are not read for it."""
    taints = {"f:spec": {"f:taints": {}}}
    assert node(entry(MANAGER, 5, taints)).field_managers == {NodeField.TAINTS: (MANAGER,)}
    assert node(entry("kubelet", 5, taints)).field_managers == {}


def test_a_policy_keeps_who_wrote_auto_upgrade_and_no_other_managed_field() -> None:
    def author(fields: object) -> str:
        entries = [
            entry("helm", 1, {"f:spec": {"f:version": {}}}),
            entry("kubectl-edit", 2, fields),
        ]
        body = {"metadata": {"name": "a", "managedFields": entries}, "spec": {}}
        policy = seen(Policy, body)
        assert policy.metadata.managed_fields == ()
        return policy.auto_upgrade_set_by

    section = {"f:upgradePolicy": {"f:autoUpgrade": {}}}
    assert author({"f:spec": section}) == "somebody with kubectl"
    assert author({"f:spec": {"f:driver": section}}) == "somebody with kubectl"
    assert author({"f:spec": {"f:driver": {}}}) == ""
    assert author({"f:spec": {"f:driver": ["odd"]}}) == ""
