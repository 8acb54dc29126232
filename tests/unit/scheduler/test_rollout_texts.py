"""What events say of a Rollout, and who set what, read from the object as a server returns it."""

from typing import Any

import pytest

from libs.contracts.events import RolloutEvent
from libs.contracts.rollout import (
    BRAKE_REASON,
    BRAKE_SET_BY,
    RELEASE_REASON,
    RELEASE_SET_BY,
    release_command,
)
from libs.contracts.waits import FAILED_AND_HALTED, FAILED_AND_RELEASED
from services.scheduler.resources import Rollout
from services.scheduler.rollout_texts import (
    brake_text,
    phase_text,
    release_text,
    with_commands,
)
from services.scheduler.snapshot.node_view import rollout_view
from tests.builders.objects import seen

SIGNED = {
    BRAKE_SET_BY: "alice",
    BRAKE_REASON: "bad driver",
    RELEASE_SET_BY: "bob",
    RELEASE_REASON: "repaired",
}


def rollout(manager: str, spec: dict[str, Any]) -> Rollout:
    """Return a Rollout whose spec this manager wrote, after people had used `sluice`."""
    owned = {"f:spec": {f"f:{name}": {} for name in spec}}
    entry = {"manager": manager, "time": "2027-01-15T08:00:00Z", "fieldsV1": owned}
    metadata = {"name": "gpus", "uid": "u", "annotations": SIGNED, "managedFields": [entry]}
    return seen(Rollout, {"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("manager", "brake", "text"),
    [
        ("kubectl-sluice", "Pause", "paused by alice (spec.brake: Pause): bad driver"),
        ("kubectl-sluice", "Freeze", "frozen by alice (spec.brake: Freeze): bad driver"),
        ("kubectl-sluice", "None", "resumed by alice (spec.brake: None): bad driver"),
        ("kubectl-edit", "Pause", "paused by somebody with kubectl (spec.brake: Pause)"),
        ("sluice-scheduler", "Pause", "paused by Sluice (spec.brake: Pause)"),
    ],
)
def test_a_brake_is_told_with_its_author(manager: str, brake: str, text: str) -> None:
    assert brake_text(rollout(manager, {"brake": brake})) == text


def test_a_wait_names_the_commands_that_end_it() -> None:
    release = release_command("gpus", "580.95.05", 2)
    told = with_commands(FAILED_AND_HALTED, node="node-1", release=release)
    assert told == (
        "an administrator, by `sluice upgrade release 580.95.05 gpus --failures 2` and then by"
        " `sluice upgrade retry node-1`; the author of the policy, by another driver"
    )
    assert "by spec.release" in with_commands(FAILED_AND_RELEASED, node="node-1", release="")


def test_what_was_removed_has_no_author() -> None:
    removed = rollout("kubectl-edit", {})
    assert brake_text(removed) == "resumed by somebody, who is not recorded (spec.brake: None)"
    assert release_text(removed) == "spec.release was removed: no failure is accepted any more"


def test_accepted_failures_are_told_with_their_author() -> None:
    one = rollout("kubectl-sluice", {"release": {"target": "580", "failures": 1}})
    assert release_text(one) == "1 failure of 580 accepted by bob (spec.release): repaired"
    two = rollout("kubectl-patch", {"release": {"target": "580", "failures": 2}})
    text = "2 failures of 580 accepted by somebody with kubectl (spec.release)"
    assert release_text(two) == text


def test_the_view_names_who_set_the_brake_and_keeps_no_managed_fields() -> None:
    paused = rollout("kubectl-sluice", {"brake": "Pause"})
    view = rollout_view(paused, writing=False)
    assert (view.brake_set_by, view.brake_reason) == ("alice", "bad driver")
    assert paused.metadata.managed_fields == ()


def test_a_pool_without_nodes_is_told_without_a_driver_that_is_on_them() -> None:
    change = RolloutEvent(pool="gpus", target="580", before="", after="NoNodes", because="no node")
    assert phase_text(change, threshold=1) == "no node"


@pytest.mark.parametrize(("threshold", "nodes"), [(1, "1 node"), (3, "3 nodes")])
def test_a_driver_that_is_not_proven_yet_needs_so_many_nodes(threshold: int, nodes: str) -> None:
    change = RolloutEvent(pool="gpus", target="580", before="", after="Proving", because="")
    text = f"580 must be validated on {nodes} before the others may start"
    assert phase_text(change, threshold=threshold) == text


def test_a_halt_says_that_it_lasts_until_a_person_ends_it() -> None:
    change = RolloutEvent(
        pool="gpus", target="580", before="Proving", after="Halted", because="by Sluice"
    )
    assert phase_text(change, threshold=1) == "580 is halted until a person releases it: by Sluice"
