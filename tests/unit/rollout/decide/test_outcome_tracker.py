"""Nodes whose outcome is found again at every decision."""

import pytest

from libs.contracts.node import LeaseOwner, UpgradeState
from libs.contracts.rollout import InFlight
from libs.rollout.outcomes import NodePools, OutcomeTracker
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.pool_decider import PoolDecider
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import candidate, entry, of_target, open_pool
from tests.unit.rollout.builders import (
    NOW,
    OLD,
    TOKEN,
    done,
    in_flight_node,
    instant,
    lease,
    required,
)

BUSY = in_flight_node(UpgradeState.POD_RESTART_REQUIRED, record={"deadline": NOW + 600})


def tracker_for(given: NodeView, now: Instant, place: InFlight | None = None) -> OutcomeTracker:
    places = {} if place is None else {given.uid: place}
    book = PoolDecider(open_pool(record=of_target(), base=1, in_flight=places))
    book.put(contribution_of(given, place, book.view.key, now.at))
    book.evaluate({given.uid}, now, leading=True)
    row, placing = NodePools(), OutcomeTracker()
    row.assign(given.name, book, (book,))
    placing.update(given, row, now)
    return placing


def is_revisited(given: NodeView, now: Instant, place: InFlight | None = None) -> bool:
    return tracker_for(given, now, place).to_step(now)[1] == {given.name}


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (done(), False),
        (required(skip=True), False),
        (candidate("n"), False),
        (done(target=OLD), True),
        (done(target=OLD, write_pending=True), False),
        (done(lease=lease(owner=LeaseOwner.HUMAN)), False),
    ],
    ids=["in place", "waits", "could start", "acts", "is written", "leased by a person"],
)
def test_an_acting_node_is_revisited_until_its_write_is_pending(
    given: NodeView, *, again: bool
) -> None:
    for now in (instant(), instant(bus_down_since=NOW - 5)):
        assert is_revisited(given, now) is again


def test_a_node_in_flight_is_revisited_during_a_bus_outage() -> None:
    place = entry(BUSY, token=TOKEN)
    assert not is_revisited(BUSY, instant(), place)
    assert is_revisited(BUSY, instant(bus_down_since=NOW - 5), place)


def test_a_node_waiting_for_fresh_data_is_revisited() -> None:
    waits = candidate("n")
    assert is_revisited(waits, instant(ages={"pods": 95.0}), entry(waits))
    ended = entry(waits, token=TOKEN)
    assert not is_revisited(waits, instant(ages={"pods": 95.0}), ended)
