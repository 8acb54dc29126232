from math import inf
from typing import Any

from msgspec.structs import replace

from sluice.contracts.rollout import InFlight, TargetRecord
from sluice.contracts.waits import WaitCode
from sluice.rollout.decision import Wait
from sluice.rollout.forecast.proving import Proving
from sluice.rollout.forecast.story import Held, Proof
from sluice.rollout.views.pool import PoolView
from tests.unit.rollout.building import NEW, pool


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
