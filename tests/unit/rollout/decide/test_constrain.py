"""How a pool constrains the outcomes of its nodes."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.node import Operation
from libs.contracts.rollout import InFlight, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate, Step, Wait
from libs.rollout.pool.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.pool.tally import PoolTally
from libs.rollout.step import constrain
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import BlockReason
from tests.unit.rollout.allocate.builders import open_pool
from tests.unit.rollout.builders import NEW, NOW, instant, label_of, node
from tests.unit.rollout.outcomes import wait_of

NODE = node()
ACTS = Step(actions=(), because="something is done")
WAITS = Wait(code=WaitCode.JOBS, detail="a job", since=NOW)
STARTS = Candidate(operation=Operation.UPGRADE, target=NEW, label=label_of(NEW))
PLACE = InFlight(node=NODE.name, token=1, target=NEW, since=NOW)
ALL: tuple[Step | Wait | Candidate, ...] = (ACTS, WAITS, STARTS)


def evaluation(*, leading: bool = True, frozen: bool = False, **changes: Any) -> PoolEvaluation:
    evaluated = evaluate_pool(open_pool(), PoolTally(), instant(), leading=True)
    held = replace(evaluated.constraints, leading=leading, frozen=frozen)
    return replace(evaluated, constraints=held, **changes)


def codes(made: PoolEvaluation, given: NodeView = NODE) -> list[WaitCode | None]:
    """Return the wait code that replaces a step, a wait and a start; None where it is kept."""
    found = [constrain(given, outcome, made, instant()) for outcome in ALL]
    return [
        None if after is before else after.code if isinstance(after, Wait) else WaitCode.GATE
        for before, after in zip(ALL, found, strict=True)
    ]


def test_outcomes_are_kept_in_an_open_pool() -> None:
    assert codes(evaluation()) == [None, None, None]


def test_a_freeze_holds_every_outcome() -> None:
    frozen = evaluation(frozen=True, withdrawn=frozenset({NODE.uid}))
    assert codes(frozen) == [WaitCode.FROZEN] * 3


def test_a_withdrawn_entry_waits_with_the_reason_of_its_pool() -> None:
    dropped = frozenset({NODE.uid})
    assert codes(evaluation(withdrawn=dropped)) == [WaitCode.BUDGET] * 3
    stop = BlockReason(WaitCode.PAUSED, "the brake is Pause", "an administrator")
    result = wait_of(
        constrain(NODE, WAITS, evaluation(withdrawn=dropped, blocked_by=stop), instant())
    )
    assert (result.code, result.detail, result.who) == (stop.code, stop.detail, stop.who)
    assert codes(evaluation(withdrawn=frozenset({"uid-of-another"}))) == [None, None, None]


def test_without_leadership_only_waits_remain() -> None:
    assert codes(evaluation(leading=False)) == [WaitCode.STALE, None, WaitCode.STALE]


def test_a_retargeted_node_does_nothing_until_the_rollout_is_written() -> None:
    assert codes(evaluation(retargeted={NODE.uid: PLACE})) == [WaitCode.PROOF, None, None]
    assert codes(evaluation(retargeted={"uid-of-another": PLACE})) == [None, None, None]


def test_a_node_with_an_entry_is_no_candidate() -> None:
    stored = RolloutStatus(target=NEW, in_flight={NODE.uid: PLACE})
    assert codes(evaluation(stored=stored)) == [None, None, WaitCode.BUDGET]


def test_a_node_that_is_not_ready_is_no_candidate() -> None:
    away = node(ready=False)
    assert codes(evaluation(), away) == [None, None, WaitCode.NOT_READY]
