"""Where a node is counted in its pool's Rollout, whatever is done about it meanwhile."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import Operation, Owner
from libs.contracts.waits import WaitCode
from libs.rollout.deciding.places import Place, place
from libs.rollout.decision import Outcome, Step, Wait
from libs.rollout.views.node import NodeView
from tests.unit.rollout.building import (
    NEW,
    NOW,
    OLD,
    done,
    evidence,
    failed,
    label_of,
    lease,
    node,
    pool,
    required,
    under_way,
)

ACTS = Step(actions=(), because="something is done")
HUMAN = lease(owner=Owner.HUMAN)
VALIDATES = {"operation": Operation.VALIDATE}


def waits(code: WaitCode) -> Wait:
    return Wait(code=code, detail="", since=NOW)


@pytest.mark.parametrize(
    ("given", "outcome", "expected"),
    [
        (done(), None, Place.DONE),
        (node(), None, Place.DONE),
        (node(excluded=True), None, Place.EXCLUDED),
        (node(excluded=True), ACTS, Place.EXCLUDED),
        (node(excluded=True, driver_label=label_of(OLD)), ACTS, Place.WAITING),
        (under_way(), ACTS, Place.UNDER_WAY),
        (replace(under_way(), record=None), ACTS, Place.UNDER_WAY),
        (under_way(record={"evidence": evidence()}), ACTS, Place.UNDER_WAY),
        (under_way(record=VALIDATES), ACTS, Place.UNDER_WAY),
        (under_way(record={**VALIDATES, "evidence": evidence()}), ACTS, Place.DONE),
        (failed(), waits(WaitCode.FAILED), Place.FAILED),
        (done(), waits(WaitCode.DRIVER_RESTARTING), Place.DONE),
        (done(target=OLD), waits(WaitCode.NOT_READY), Place.WAITING),
        (done(variant=""), waits(WaitCode.TARGET_UNSETTLED), Place.WAITING),
        (done(record=None), waits(WaitCode.RECORD_LOST), Place.WAITING),
        (required(), waits(WaitCode.BUDGET), Place.WAITING),
        (required(target=NEW), waits(WaitCode.BUDGET), Place.WAITING),
        (done(target=OLD, lease=HUMAN), waits(WaitCode.SKIPPED), Place.SKIPPED),
        (required(lease=HUMAN), waits(WaitCode.PAUSED), Place.WAITING),
        (required(), waits(WaitCode.SKIPPED), Place.SKIPPED),
        (required(skip=True), ACTS, Place.SKIPPED),
    ],
)
def test_where_a_node_is_counted(given: NodeView, outcome: Outcome, expected: Place) -> None:
    assert place(given, pool(), outcome) is expected
