"""The phase in which a node is counted in its Rollout."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, Operation
from libs.contracts.waits import WaitCode
from libs.rollout.decision import NodeOutcome, Step, Wait
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.step import NodePhase, phase_of
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    done,
    evidence,
    failed,
    in_flight_node,
    label_of,
    lease,
    node,
    pool,
    required,
)

ACTS = Step(actions=(), because="something is done")


HUMAN = lease(owner=LeaseOwner.HUMAN)


VALIDATES = {"operation": Operation.VALIDATE}


def waits(code: WaitCode) -> Wait:
    return Wait(code=code, detail="", since=NOW)


@pytest.mark.parametrize(
    ("given", "outcome", "expected"),
    [
        (done(), None, NodePhase.DONE),
        (node(), None, NodePhase.DONE),
        (node(excluded=True), None, NodePhase.EXCLUDED),
        (node(excluded=True), ACTS, NodePhase.EXCLUDED),
        (node(excluded=True, driver_label=label_of(OLD)), ACTS, NodePhase.WAITING),
        (in_flight_node(), ACTS, NodePhase.UNDER_WAY),
        (replace(in_flight_node(), record=None), ACTS, NodePhase.UNDER_WAY),
        (in_flight_node(record={"evidence": evidence()}), ACTS, NodePhase.UNDER_WAY),
        (in_flight_node(record=VALIDATES), ACTS, NodePhase.UNDER_WAY),
        (in_flight_node(record={**VALIDATES, "evidence": evidence()}), ACTS, NodePhase.DONE),
        (failed(), waits(WaitCode.FAILED), NodePhase.FAILED),
        (done(), waits(WaitCode.DRIVER_RESTARTING), NodePhase.DONE),
        (done(target=OLD), waits(WaitCode.NOT_READY), NodePhase.WAITING),
        (done(variant=""), waits(WaitCode.TARGET_UNSETTLED), NodePhase.WAITING),
        (done(record=None), waits(WaitCode.RECORD_LOST), NodePhase.WAITING),
        (required(), waits(WaitCode.BUDGET), NodePhase.WAITING),
        (required(target=NEW), waits(WaitCode.BUDGET), NodePhase.WAITING),
        (done(target=OLD, lease=HUMAN), waits(WaitCode.SKIPPED), NodePhase.SKIPPED),
        (required(lease=HUMAN), waits(WaitCode.PAUSED), NodePhase.WAITING),
        (required(), waits(WaitCode.SKIPPED), NodePhase.SKIPPED),
        (required(skip=True), ACTS, NodePhase.SKIPPED),
    ],
)
def test_the_phase_in_which_a_node_is_counted(
    given: NodeView, outcome: NodeOutcome, expected: NodePhase
) -> None:
    leased = upgrade_lease(given) is not None
    assert phase_of(given, pool(), outcome, leased=leased) is expected
