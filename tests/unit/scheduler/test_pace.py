"""When a rollout ends at its pace: from the nodes that ended, and empty where it is not known."""

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import Counts, InFlight, RolloutPhase, RolloutStatus
from services.scheduler.pace import Pace

START = 1_793_530_800.0
"""2026-11-01 11:00 UTC"""


def status(done: int, *nodes: str, since: float = START, **changes: object) -> RolloutStatus:
    entries = {node: InFlight(node=node, token=1, target="t", since=since) for node in nodes}
    counts = Counts(total=10, done=done, in_flight=len(nodes), waiting=10 - done - len(nodes))
    result = RolloutStatus(target="t", phase=RolloutPhase.PROVEN, in_flight=entries, counts=counts)
    return replace(result, **changes)


def eta(pace: Pace, after: RolloutStatus, now: float) -> str:
    """Return the end that is written with a status in which nothing else has changed."""
    return pace.eta("p", after, after, now)


def learned() -> Pace:
    """Return the pace of a pool whose first two nodes took ten minutes each."""
    pace = Pace()
    pace.written("p", status(0, "a", "b"), status(2, "c", "d", since=START + 600), START + 600)
    return pace


def test_the_pace_of_the_nodes_that_ended_tells_when_the_others_have() -> None:
    now = START + 600
    # 8 nodes are left, two at a time, 10 minutes each
    assert eta(learned(), status(2, "c", "d", since=now), now) == "2026-11-01T11:50Z"
    # half of the next two nodes' time has passed
    assert eta(learned(), status(2, "c", "d", since=now - 300), now) == "2026-11-01T11:45Z"
    within = eta(learned(), status(2, "c", "d", since=now - 299), now)
    assert within == "2026-11-01T11:46Z", "not a time that has passed when it ends"


def test_the_first_node_that_is_done_tells_the_end_of_those_that_start_with_the_same_write() -> (
    None
):
    now = START + 600
    before, after = status(0, "a"), status(1, "b", "c", "d", since=now)
    # 9 nodes are left, three at a time, 10 minutes each
    assert Pace().eta("p", before, after, now) == "2026-11-01T11:40Z"
    assert Pace().eta("p", before, replace(after, target="u"), now) == ""
    failed = replace(after, counts=replace(after.counts, failed=1))
    assert Pace().eta("p", before, failed, now) == ""


@pytest.mark.parametrize(
    "given",
    [
        status(2),
        status(2, "c", because="Rollout p is paused (spec.brake: Pause)"),
        status(2, "c", phase=RolloutPhase.HALTED),
        status(2, "c", phase=RolloutPhase.COMPLETE),
    ],
)
def test_a_rollout_that_does_not_go_on_has_no_end(given: RolloutStatus) -> None:
    assert eta(learned(), given, START) == ""


def test_without_a_node_that_was_done_nothing_is_known() -> None:
    pace = Pace()
    assert eta(pace, status(0, "a"), START) == ""
    pace.written("p", None, status(0, "a"), START)
    released = status(0)
    pace.written("p", status(0, "a"), released, START + 60)
    assert eta(pace, status(0, "b"), START + 60) == ""


def test_another_target_has_a_pace_of_its_own() -> None:
    pace = learned()
    pace.written("p", status(2, "c"), status(2, "c", target="u"), START + 700)
    assert eta(pace, status(2, "c", target="u"), START + 700) == ""
