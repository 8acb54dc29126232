from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import InFlight, TargetRecord
from libs.contracts.waits import WaitCode
from libs.forecast.proving import Proving
from libs.forecast.story import Held, Proof
from libs.rollout.decision import Wait
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.building import NEW, OLD, pool


def seen(*flying: str, **record: Any) -> PoolView:
    """A pool that has these nodes in flight, and such a record of its target."""
    entries = {
        f"uid-{name}": InFlight(node=name, token=1, target=NEW, since=0.0) for name in flying
    }
    known = replace(TargetRecord(threshold=2), **record)
    return pool(status={"in_flight": entries, "targets": {NEW: known}})


def waiting(code: WaitCode, detail: str = "ml/train") -> Wait:
    return Wait(code=code, detail=detail, since=0.0)


def test_the_longest_wait_for_others_is_what_held_it_up() -> None:
    proving = Proving(pool())
    proving.seen(seen("a", "b"), 0.0)
    proving.waits("a", waiting(WaitCode.JOBS), 10.0)
    proving.waits("b", waiting(WaitCode.EVICTION, "ml/web"), 10.0)
    proving.waits("b", waiting(WaitCode.VALIDATION), 40.0)
    proving.waits("a", None, 100.0)
    proving.waits("a", waiting(WaitCode.VALIDATION), 101.0)
    proving.seen(seen(proven=True), 200.0)
    held = Held(node="a", detail="ml/train", seconds=90.0)
    assert proving.proof() == Proof(threshold=2, proven=200.0, held=held)


def test_a_wait_that_never_ends_is_without_an_end() -> None:
    proving = Proving(pool())
    proving.seen(seen("a"), 0.0)
    proving.waits("a", waiting(WaitCode.PDB, "ml/web: refused"), 10.0)
    proving.waits("a", waiting(WaitCode.PDB, "ml/web: refused again"), 20.0)
    found = proving.proof()
    assert found is not None
    assert found.proven is None
    assert found.held == Held(node="a", detail="ml/web: refused", seconds=inf)


def test_who_is_not_in_flight_holds_up_nothing() -> None:
    proving = Proving(pool())
    proving.seen(seen("a"), 0.0)
    proving.waits("b", waiting(WaitCode.JOBS), 0.0)
    proving.waits("a", waiting(WaitCode.JOBS), 5.0)
    proving.seen(seen(), 25.0)
    found = proving.proof()
    assert found is not None
    assert found.held == Held(node="a", detail="ml/train", seconds=20.0)


def test_a_target_that_was_proven_before_has_nothing_to_prove() -> None:
    proving = Proving(pool())
    proving.seen(seen("a", proven=True), 0.0)
    proving.waits("a", waiting(WaitCode.JOBS), 0.0)
    proving.seen(seen(proven=True), 100.0)
    assert proving.proof() is None
    assert Proving(pool()).proof() is None


def test_why_it_is_halted() -> None:
    proving = Proving(pool())
    proving.seen(seen("a"), 0.0)
    assert proving.halted == ""
    proving.seen(seen(halted_because="2 of 2 failures"), 10.0)
    assert proving.halted == "2 of 2 failures"


@pytest.mark.parametrize("changes", [{"target": OLD}, {"outside": True}])
def test_who_is_in_flight_for_something_else_holds_up_nothing(changes: dict[str, Any]) -> None:
    one = seen("a")
    assert one.rollout is not None
    status = one.rollout.status
    flying = {uid: replace(each, **changes) for uid, each in status.in_flight.items()}
    other = replace(one, rollout=replace(one.rollout, status=replace(status, in_flight=flying)))
    for shown, expected in ((one, 20.0), (other, None)):
        proving = Proving(pool())
        proving.seen(shown, 0.0)
        proving.waits("a", waiting(WaitCode.JOBS), 5.0)
        proving.waits("a", None, 25.0)
        found = proving.proof()
        assert found is not None
        assert (found.held and found.held.seconds) == expected


def test_what_is_waited_for_after_the_proof_did_not_hold_it_up() -> None:
    proving = Proving(pool())
    proving.seen(seen("a"), 0.0)
    proving.seen(seen("a", proven=True), 100.0)
    proving.waits("a", waiting(WaitCode.JOBS), 110.0)
    proving.waits("a", None, 900.0)
    assert proving.proof() == Proof(threshold=2, proven=100.0, held=None)


def test_without_a_rollout_there_is_nothing_to_be_seen() -> None:
    proving = Proving(pool())
    proving.seen(replace(pool(), rollout=None), 0.0)
    assert proving.proof() is None


@pytest.mark.parametrize("ended", [False, True])
def test_of_those_that_took_as_long_the_first_is_named(ended: bool) -> None:
    proving = Proving(pool())
    proving.seen(seen("a", "b"), 0.0)
    for name in ("b", "a"):
        proving.waits(name, waiting(WaitCode.JOBS), 10.0)
    if ended:
        for name in ("b", "a"):
            proving.waits(name, None, 40.0)
    found = proving.proof()
    assert found is not None
    assert found.held is not None
    assert found.held.node == ("b" if ended else "a")
