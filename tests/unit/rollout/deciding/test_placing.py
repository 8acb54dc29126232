"""Who is asked again at every decision: those about whom something was decided, or is unsettled."""

import pytest

from libs.contracts.node import Owner, UpgradeState
from libs.contracts.rollout import InFlight
from libs.rollout.deciding.book import Book
from libs.rollout.deciding.placing import Placing, Row
from libs.rollout.reconcile.bearing import bearing
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.starting import clear, entry, of_target, open_pool
from tests.unit.rollout.building import (
    NOW,
    OLD,
    TOKEN,
    done,
    instant,
    lease,
    required,
    under_way,
)

BUSY = under_way(UpgradeState.POD_RESTART_REQUIRED, record={"deadline": NOW + 600})


def placed(given: NodeView, now: Instant, place: InFlight | None = None) -> Placing:
    """The node was asked at this moment."""
    places = {} if place is None else {given.uid: place}
    book = Book(open_pool(record=of_target(), base=1, in_flight=places))
    book.put(bearing(given, place, book.view.key, now.at))
    book.reckon(now, leading=True)
    row, placing = Row(), Placing()
    row.enter(given.name, book, (book,))
    placing.place(given, row, now)
    return placing


def restless(given: NodeView, now: Instant, place: InFlight | None = None) -> bool:
    """Whether it is asked again though nothing about it changed."""
    return placed(given, now, place).restless(now) == {given.name}


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (done(), False),
        (required(skip=True), False),
        (clear("n"), False),
        (done(target=OLD), True),
        (done(target=OLD, writing=True), False),
        (done(lease=lease(owner=Owner.HUMAN)), False),
    ],
    ids=["in place", "waits", "could start", "acts", "is written", "leased by somebody"],
)
def test_who_acts_is_asked_until_what_was_decided_is_under_way(
    given: NodeView, *, again: bool
) -> None:
    for now in (instant(), instant(away_since=NOW - 5)):
        assert restless(given, now) is again


def test_who_is_in_flight_is_asked_again_while_nats_is_away() -> None:
    place = entry(BUSY, token=TOKEN)
    assert not restless(BUSY, instant(), place)
    assert restless(BUSY, instant(away_since=NOW - 5), place)


def test_who_waits_for_recent_news_is_asked_again() -> None:
    waits = clear("n")
    assert restless(waits, instant(ages={"pods": 95.0}), entry(waits))
    ended = entry(waits, token=TOKEN)
    assert not restless(waits, instant(ages={"pods": 95.0}), ended)
