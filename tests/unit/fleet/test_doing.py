"""What a node does, in the one word that the live view, the page and the verbs have for it."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import LEASE_ANNOTATION, SKIP_LABEL, STATE_LABEL
from libs.contracts.queries import WaitReason
from libs.contracts.waits import WaitCode
from libs.fleet.node import Doing, doing_of, fleet_node
from libs.kube.views import Metadata

BUDGET = WaitReason(code=WaitCode.BUDGET, detail="1 of 1 nodes", since=0.0)
SKIPPED = WaitReason(code=WaitCode.SKIPPED, detail="it is cordoned", since=0.0)
SKIP = {SKIP_LABEL: "true"}


@pytest.mark.parametrize(
    ("state", "labels", "in_flight", "wait", "doing"),
    [
        ("upgrade-done", {}, False, None, Doing.DONE),
        ("upgrade-done", {}, False, BUDGET, Doing.WAITING),
        ("upgrade-done", {}, True, None, Doing.IN_FLIGHT),
        ("upgrade-done", SKIP, False, None, Doing.SKIPPED),
        ("upgrade-failed", {}, False, None, Doing.FAILED),
        ("upgrade-failed", SKIP, True, BUDGET, Doing.FAILED),
        ("upgrade-required", {}, False, None, Doing.WAITING),
        ("upgrade-required", {}, False, SKIPPED, Doing.SKIPPED),
        ("upgrade-required", SKIP, False, BUDGET, Doing.SKIPPED),
        ("pod-deletion-required", {}, True, BUDGET, Doing.IN_FLIGHT),
        ("validation-required", {}, False, None, Doing.IN_FLIGHT),
        ("of-another-tool", {}, False, None, Doing.IN_FLIGHT),
        ("", {}, False, None, Doing.UNMANAGED),
        ("", {}, True, None, Doing.IN_FLIGHT),
    ],
)
def test_a_node_does_what_a_person_looks_at_first(
    state: str, labels: dict[str, str], in_flight: bool, wait: WaitReason | None, doing: Doing
) -> None:
    held: dict[str, Any] = {LEASE_ANNOTATION: "{}"} if in_flight else {}
    labelled = {STATE_LABEL: state, **labels} if state else labels
    node = fleet_node(Metadata(name="node-1", uid="u1", labels=labelled, annotations=held))
    assert doing_of(node, wait) is doing


def test_a_done_node_that_people_cordoned_is_told_apart() -> None:
    node = fleet_node(Metadata(name="n", uid="u", labels={STATE_LABEL: "upgrade-done"}))
    cordoned = replace(node, cordoned=True)
    assert (doing_of(node), doing_of(cordoned)) == (Doing.DONE, Doing.CORDONED)
    assert doing_of(replace(cordoned, in_flight=True)) is Doing.IN_FLIGHT
