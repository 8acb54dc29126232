"""What is told of the leases that people take, claim and return."""

from libs.contracts.node import LEASE_ANNOTATION, LEASE_CLAIM_ANNOTATION, LeaseOwner, NodeLease
from libs.rollout.views.node import NodeField, NodeView
from services.scheduler.persons_leases import PersonsLeases
from tests.unit.rollout.builders import NOW, done, in_flight_node, lease


def of(who: str, reason: str = "swap a riser", since: float = NOW - 720) -> NodeLease:
    return lease(owner=LeaseOwner.HUMAN, who=who, reason=reason, since=since)


FREE, IN_FLIGHT = done(), in_flight_node()
ALICES, BOBS = done(lease=of("alice")), done(lease=of("bob", reason=""))
CLAIMED = in_flight_node(claim=of("alice"))


def told(*seen: NodeView) -> list[str]:
    """Return what is told while a node is seen like this, one after the other."""
    leases = PersonsLeases()
    changes = (leases.change_of(each, now=NOW) for each in seen)
    return [each.done for each in changes if each is not None]


def test_a_lease_is_told_when_it_is_taken_and_when_it_is_returned() -> None:
    assert told(FREE, ALICES, ALICES, FREE) == [
        "leased by alice: swap a riser",
        "returned; alice had it for 12 min: swap a riser",
    ]
    assert told(FREE, ALICES, BOBS) == ["leased by alice: swap a riser", "leased by bob"]


def test_a_claim_is_told_and_what_becomes_of_it() -> None:
    claimed = "claimed by alice for when the operation on it has ended: swap a riser"
    assert told(IN_FLIGHT, CLAIMED, ALICES) == [
        claimed,
        "leased by alice, who waited for it: swap a riser",
    ]
    withdrawn = "the claim of alice was withdrawn: swap a riser"
    assert told(IN_FLIGHT, CLAIMED, IN_FLIGHT) == [claimed, withdrawn]


def test_what_a_leader_finds_and_leases_of_operations_are_not_told() -> None:
    assert told(ALICES, ALICES) == []
    assert told(FREE, IN_FLIGHT, FREE) == []


def test_a_lease_of_no_time_that_can_be_is_told_without_it() -> None:
    assert told(done(lease=of("alice", reason="", since=-5.0)), FREE) == ["returned; alice had it"]


def test_the_event_names_annotation_program_and_people() -> None:
    leases = PersonsLeases()
    leases.change_of(FREE, now=NOW)
    by_kubectl = done(lease=of("alice"), field_managers={NodeField.LEASE: ("kubectl-sluice",)})
    event = leases.change_of(by_kubectl, now=NOW)
    assert event is not None
    assert (event.field, event.manager) == (LEASE_ANNOTATION, "kubectl-sluice")
    assert (event.before, event.after) == ("", "alice")
    leases = PersonsLeases()
    leases.change_of(IN_FLIGHT, now=NOW)
    event = leases.change_of(CLAIMED, now=NOW)
    assert event is not None
    assert (event.field, event.after) == (LEASE_CLAIM_ANNOTATION, "alice")
