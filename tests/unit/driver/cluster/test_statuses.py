"""What is written into a status, and when nothing is."""

from typing import Any

import pytest

from libs.policy.status import PolicyStatus
from services.driver.cluster import decide
from services.driver.cluster.plan import ObjectKey
from tests.unit.driver.cluster.builders import plan, policy
from tests.unit.policy.situations import SETTINGS, cluster_policy

THEN, NOW = "2027-01-15T08:00:00Z", "2027-01-15T09:00:00Z"
POLICY = cluster_policy()


def wanted() -> PolicyStatus:
    return plan().statuses[ObjectKey("ClusterPolicy", "cluster-policy")]


def change(status: Any = None, *, foreign: str = "", now: str = NOW, **metadata: Any) -> Any:
    written = {**POLICY, "metadata": {**POLICY["metadata"], **metadata}}
    there = policy("ClusterPolicy", written, status=status)
    return decide.status_change(
        wanted(), there, namespace=SETTINGS.namespace, foreign=foreign, now=now
    )


def test_a_first_status_says_everything() -> None:
    made = change()
    assert (made["state"], made["namespace"]) == ("notReady", SETTINGS.namespace)
    assert {one["lastTransitionTime"] for one in made["conditions"]} == {NOW}
    assert all("message" in one and one["reason"] for one in made["conditions"])


def test_an_unchanged_status_is_not_written() -> None:
    made = change(now=THEN)
    assert change(made) is None


@pytest.mark.parametrize(
    "edit",
    [
        {"state": "ready"},
        {"namespace": "elsewhere"},
        {"conditions": []},
        {"conditions": [{"type": 1}]},
    ],
)
def test_what_is_other_is_written_and_keeps_the_times_of_what_is_not(edit: dict[str, Any]) -> None:
    made = change({**change(now=THEN), **edit})
    assert made["state"] == "notReady"
    expected = NOW if "conditions" in edit else THEN
    assert {one["lastTransitionTime"] for one in made["conditions"]} == {expected}


def test_a_status_for_another_generation_or_object_is_not_written() -> None:
    assert change(generation=2) is None
    assert change(uid="another") is None


@pytest.mark.parametrize("status", [None, "nonsense", {"conditions": "nonsense"}])
def test_a_status_that_is_none_is_replaced(status: Any) -> None:
    assert change(status)["state"] == "notReady"


def test_two_that_say_the_same_at_different_times_are_one() -> None:
    first, second = change(now=THEN), change(now=NOW)
    assert first != second
    assert decide.without_times(first) == decide.without_times(second)


def test_beside_an_active_gpu_operator_only_our_condition_is_written() -> None:
    made = change(foreign="it holds the lease")
    assert made["state"] == "notReady"
    (one,) = made["conditions"]
    assert (one["type"], one["status"]) == ("ForeignOperator", "True")
    assert "it holds the lease" in one["message"]
    assert change(made, foreign="it holds the lease") is None


def test_conditions_of_the_gpu_operator_stay_and_ours_are_removed() -> None:
    before = change(now=THEN)
    made = change(before, foreign="it holds the lease")
    assert "state" not in made
    types = [one["type"] for one in made["conditions"]]
    assert types == ["Ready", "Error", "ForeignOperator"]
    # And once it is gone, everything is ours again.
    after = change({**before, **made})
    assert [one["type"] for one in after["conditions"]] == [
        one["type"] for one in before["conditions"]
    ]


def test_an_object_that_cannot_be_carried_out_says_why() -> None:
    refused = [
        {"type": "Accepted", "status": "False", "message": "spec.x is wrong", "reason": "Invalid"}
    ]
    words = "ClusterPolicy cannot be carried out: spec.x is wrong"
    parsed = decide.conditions_of({"conditions": refused})
    assert decide.invalid_reason("ClusterPolicy", parsed) == words
    assert decide.invalid_reason("ClusterPolicy", decide.conditions_of(change())) == ""
