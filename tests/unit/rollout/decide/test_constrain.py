"""What a pool makes of its nodes' own outcomes: held, turned, or let be."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.node import Operation
from libs.contracts.rollout import InFlight, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.rollout.decide.outcome_tracker import constrain
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.reconcile.block_reasons import block_reason
from libs.rollout.reconcile.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import open_pool
from tests.unit.rollout.builders import NEW, NOW, instant, label_of, node

NODE = node()
ACTS = Step(actions=(), because="something is done")
WAITS = Wait(code=WaitCode.JOBS, detail="a job", since=NOW)
STARTS = Candidate(operation=Operation.UPGRADE, target=NEW, label=label_of(NEW))
PLACE = InFlight(node=NODE.name, token=1, target=NEW, since=NOW)
ALL: tuple[NodeOutcome, ...] = (ACTS, WAITS, STARTS)


def standing(*, leading: bool = True, frozen: bool = False, **changes: Any) -> PoolEvaluation:
    made = evaluate_pool(open_pool(), PoolTally(), instant(), leading=True)
    held = replace(made.constraints, leading=leading, frozen=frozen)
    return replace(made, constraints=held, **changes)


def codes(made: PoolEvaluation, given: NodeView = NODE) -> list[WaitCode | None]:
    """What is waited for instead of a step, a wait and a start; None: it is let be."""
    found = [constrain(given, outcome, made, instant()) for outcome in ALL]
    return [
        None if after is before else after.code if isinstance(after, Wait) else WaitCode.GATE
        for before, after in zip(ALL, found, strict=True)
    ]


def test_all_is_let_be_where_nothing_is_the_matter() -> None:
    assert codes(standing()) == [None, None, None]


def test_a_freeze_holds_whatever_it_is_but_nobody_who_is_where_he_should_be() -> None:
    frozen = standing(frozen=True, withdrawn=frozenset({NODE.uid}))
    assert codes(frozen) == [WaitCode.FROZEN] * 3
    assert constrain(NODE, None, frozen, instant()) is None


def test_whose_place_is_taken_back_waits_for_that_or_for_what_stopped_the_pool() -> None:
    dropped = frozenset({NODE.uid})
    assert codes(standing(withdrawn=dropped)) == [WaitCode.BUDGET] * 3
    stop = block_reason(WaitCode.PAUSED, "the brake is Pause", "who pulled it")
    made = constrain(NODE, WAITS, standing(withdrawn=dropped, blocked_by=stop), instant())
    assert isinstance(made, Wait)
    assert (made.code, made.detail, made.who) == (stop.code, stop.detail, stop.who)
    assert codes(standing(withdrawn=frozenset({"uid-of-another"}))) == [None, None, None]


def test_while_another_leads_nothing_begins_or_goes_on() -> None:
    assert codes(standing(leading=False)) == [WaitCode.STALE, None, WaitCode.STALE]


def test_whose_place_is_moved_does_nothing_until_that_is_written() -> None:
    assert codes(standing(retargeted={NODE.uid: PLACE})) == [WaitCode.PROOF, None, None]
    assert codes(standing(retargeted={"uid-of-another": PLACE})) == [None, None, None]


def test_who_has_a_place_is_no_candidate_for_another() -> None:
    stored = RolloutStatus(target=NEW, in_flight={NODE.uid: PLACE})
    assert codes(standing(stored=stored)) == [None, None, WaitCode.BUDGET]


def test_who_is_not_ready_is_no_candidate() -> None:
    away = node(ready=False)
    assert codes(standing(), away) == [None, None, WaitCode.NOT_READY]
