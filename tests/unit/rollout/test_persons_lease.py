"""The lease of a person: what holds, what is told, and how an operation makes way for it."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, NodeLease, Operation, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Step, Wait
from libs.rollout.persons_lease import (
    claimed_by,
    describe_lease,
    has_persons_lease,
    lease_ended_by,
    left_out_reason,
)
from libs.rollout.pool.contribution import unavailable_reason
from libs.rollout.views.node import MalformedAnnotation, lease_and_claim
from tests.unit.rollout.builders import (
    done,
    in_flight_node,
    lease,
    required,
    step,
)
from tests.unit.rollout.outcomes import node_write

ALICE = replace(lease(owner=LeaseOwner.HUMAN), who="alice", reason="swap a riser")
OLD_UID = replace(ALICE, node_uid="uid-of-an-earlier-node")
UNREADABLE = MalformedAnnotation("{")


@pytest.mark.parametrize(
    ("held", "claim", "expected"),
    [
        (None, None, (None, None)),
        (None, ALICE, (ALICE, None)),
        (lease(), ALICE, (lease(), ALICE)),
        (replace(lease(), node_uid="uid-of-an-earlier-node"), ALICE, (ALICE, None)),
        (lease(), OLD_UID, (lease(), None)),
        (None, OLD_UID, (None, None)),
        (lease(), UNREADABLE, (lease(), UNREADABLE)),
        (None, UNREADABLE, (UNREADABLE, None)),
        (UNREADABLE, ALICE, (UNREADABLE, ALICE)),
    ],
)
def test_a_claim_holds_as_soon_as_no_other_lease_does(
    held: NodeLease | MalformedAnnotation | None,
    claim: NodeLease | MalformedAnnotation | None,
    expected: tuple[object, object],
) -> None:
    assert lease_and_claim(held, claim, lease().node_uid) == expected


def test_a_claim_of_another_owner_than_a_person_cannot_be_read() -> None:
    held, claim = lease_and_claim(None, lease(), lease().node_uid)
    assert isinstance(held, MalformedAnnotation)
    assert claim is None


def test_a_node_that_a_person_has_does_not_start_and_says_who_why_and_how_it_ends() -> None:
    node = required(lease=ALICE)
    wait = step(node)
    assert isinstance(wait, Wait)
    assert wait.code is WaitCode.SKIPPED
    assert wait.detail == "alice has the node since 2026-11-01 10:59 UTC: swap a riser"
    assert wait.who == f"alice or an administrator, by `sluice lease return {node.name}`"
    assert unavailable_reason(node, None) == "leased"
    assert has_persons_lease(node)


def test_a_lease_without_words_is_still_told() -> None:
    node = done(lease=lease(owner=LeaseOwner.HUMAN))
    assert describe_lease(node) == "a person has the node since 2026-11-01 10:59 UTC"
    odd = done(lease=lease(owner=LeaseOwner.HUMAN, since=1e300))
    assert describe_lease(odd) == "a person has the node"
    repaired = done(lease=lease(owner=LeaseOwner.REPAIR))
    assert describe_lease(repaired) == "the node is leased by repair"
    assert "by removing the lease" in lease_ended_by(repaired)


def test_how_people_keep_a_node_out() -> None:
    assert left_out_reason(done()) == ""
    assert left_out_reason(done(skip=True)) == "skipped"
    assert left_out_reason(done(skip=True, lease=ALICE)) == "alice has it"
    assert left_out_reason(done(lease=lease(), claim=ALICE)) == "alice has it"
    assert left_out_reason(done(excluded=True, lease=ALICE)) == "excluded"


def test_what_a_person_wrote_is_cut_and_cleaned() -> None:
    node = done(lease=replace(ALICE, who="a\x1b[2J", reason="x" * 5000))
    assert "\x1b" not in describe_lease(node)
    assert len(describe_lease(node)) < 300


@pytest.mark.parametrize(
    "state", [UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_DELETION_REQUIRED]
)
def test_an_operation_that_has_not_started_makes_way_for_a_claim(state: UpgradeState) -> None:
    node = replace(in_flight_node(state), claim=ALICE, components={})
    assert claimed_by(node) == "alice"
    outcome = step(node)
    assert isinstance(outcome, Step)
    assert outcome.because == "released unchanged: alice takes the node"
    applied = node_write(outcome).applied
    assert applied.lease is None
    assert applied.state == UpgradeState.UPGRADE_REQUIRED


def test_an_operation_that_has_started_ends_first() -> None:
    node = in_flight_node(UpgradeState.POD_RESTART_REQUIRED, record={"started": True})
    claimed = replace(node, claim=ALICE)
    assert step(claimed) == step(node)


def test_a_claimed_node_counts_as_unavailable_during_an_operation_that_is_free() -> None:
    node = in_flight_node(record={"operation": Operation.VALIDATE}, cordoned=False)
    assert unavailable_reason(node, node.current_record) == ""
    claimed = replace(node, claim=ALICE)
    assert unavailable_reason(claimed, claimed.current_record) == "claimed by a person"
