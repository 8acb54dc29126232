"""The changes of a policy's status that are written."""

from typing import Any

import pytest

from services.driver.cluster.decide import (
    conditions_of,
    invalid_reason,
    status_change,
    without_times,
)
from tests.unit.driver.cluster.builders import POLICY_KEY, plan, policy
from tests.unit.policy.situations import SETTINGS, cluster_policy

THEN, NOW = "2027-01-15T08:00:00Z", "2027-01-15T09:00:00Z"
POLICY = cluster_policy()
STATUS = plan().statuses[POLICY_KEY]
HOLDER = "it holds the lease"


def change(status: Any = None, *, foreign: str = "", now: str = NOW, **metadata: Any) -> Any:
    live = policy({**POLICY, "metadata": {**POLICY["metadata"], **metadata}}, status=status)
    return status_change(STATUS, live, namespace=SETTINGS.namespace, foreign=foreign, now=now)


def types_of(status: Any) -> list[str]:
    return [condition["type"] for condition in status["conditions"]]


def times_of(status: Any) -> set[str]:
    return {condition["lastTransitionTime"] for condition in status["conditions"]}


@pytest.mark.parametrize("status", [None, "nonsense", {"conditions": "nonsense"}])
def test_a_missing_or_malformed_status_is_written_whole(status: Any) -> None:
    written = change(status)
    assert (written["state"], written["namespace"]) == ("notReady", SETTINGS.namespace)
    assert times_of(written) == {NOW}
    assert all("message" in each and each["reason"] for each in written["conditions"])


@pytest.mark.parametrize(
    ("edit", "time"),
    [
        ({"state": "ready"}, THEN),
        ({"namespace": "elsewhere"}, THEN),
        ({"conditions": []}, NOW),
        ({"conditions": [{"type": 1}]}, NOW),
    ],
)
def test_a_changed_status_is_written_and_unchanged_conditions_keep_their_times(
    edit: dict[str, Any], time: str
) -> None:
    written = change({**change(now=THEN), **edit})
    assert (written["state"], times_of(written)) == ("notReady", {time})


def test_an_unchanged_status_and_that_of_another_object_are_not_written() -> None:
    assert change(change(now=THEN)) is None
    assert change(generation=2) is None
    assert change(uid="another") is None


def test_changes_that_differ_only_in_their_times_are_equal() -> None:
    first, second = change(now=THEN), change(now=NOW)
    assert first != second
    assert without_times(first) == without_times(second)


def test_beside_an_active_gpu_operator_only_our_condition_is_written() -> None:
    written = change(foreign=HOLDER)
    assert written["state"] == "notReady"
    (condition,) = written["conditions"]
    assert (condition["type"], condition["status"]) == ("ForeignOperator", "True")
    assert HOLDER in condition["message"]
    assert change(written, foreign=HOLDER) is None
    before = change(now=THEN)
    beside = change(before, foreign=HOLDER)
    assert "state" not in beside
    assert types_of(beside) == ["Ready", "Error", "ForeignOperator"]
    # Once the GPU Operator is gone, all conditions are ours again.
    assert types_of(change({**before, **beside})) == types_of(before)


def test_a_policy_that_was_not_accepted_has_a_reason() -> None:
    refused = {"type": "Accepted", "status": "False", "message": "spec.x is wrong", "reason": "I"}
    words = "ClusterPolicy cannot be carried out: spec.x is wrong"
    parsed = conditions_of({"conditions": [refused]})
    assert invalid_reason("ClusterPolicy", parsed) == words
    assert invalid_reason("ClusterPolicy", conditions_of(change())) == ""
