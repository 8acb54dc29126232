"""What several stories come to, of stories that are made up."""

from typing import Any

import pytest

from libs.contracts.waits import WaitCode
from libs.forecast import spread
from libs.forecast.foreseen import ProofForecast
from libs.forecast.likely import Likely
from libs.forecast.story import Course, Held, Loss, Proof, Story
from libs.rollout.decision import Wait


def story(**courses: Course) -> Story:
    return told(courses=courses)


def told(**said: Any) -> Story:
    """A story that says nothing else."""
    usual: dict[str, Any] = {
        "courses": {},
        "loss": Loss(nodes=0, gpus=0, at=0.0),
        "gpu_seconds": 0.0,
        "proof": None,
        "halted": "",
        "lasted": 0.0,
    }
    return Story(**usual | said)


def wait(code: WaitCode) -> Wait:
    return Wait(code=code, detail="so", since=0.0)


JOBS, SKIPPED, FAILED = map(wait, (WaitCode.JOBS, WaitCode.SKIPPED, WaitCode.FAILED))
STILL = Course(wait=SKIPPED)
DONE = Course(start=1.0, end=5.0)


@pytest.mark.parametrize(
    "moved",
    [DONE, Course(start=1.0, wait=SKIPPED), Course(end=3.0)],
    ids=["upgraded", "taken up", "in place without that"],
)
def test_who_moves_in_one_play_is_not_unmoved(moved: Course) -> None:
    assert spread.unmoved([story(a=STILL, b=STILL), story(a=moved, b=STILL)]) == ["b"]
    assert spread.unmoved([story(a=moved, b=STILL), story(a=moved)]) == ["b"]


def test_who_stands_still_by_itself_is_not_waited_for_and_others_are() -> None:
    assert spread.makespan([story(a=STILL, b=DONE)]) == Likely(5.0, 5.0)
    assert spread.makespan([story(a=Course(wait=JOBS), b=DONE)]) == Likely()
    assert spread.makespan([story(a=Course(), b=DONE)]) == Likely()
    assert spread.makespan([story(a=Course(start=1.0, wait=SKIPPED), b=DONE)]) == Likely()
    by_turns = [story(a=STILL, b=DONE), story(a=Course(wait=JOBS), b=DONE)]
    assert spread.makespan(by_turns) == Likely()


def test_where_all_stand_still_nobody_can_say_when_it_is_over() -> None:
    assert spread.makespan([story(a=STILL)]) == Likely()
    assert spread.makespan([story()]) == Likely(0.0, 0.0)


def test_a_failure_is_an_end_of_its_own() -> None:
    failed = Course(start=1.0, failed=9.0, wait=FAILED)
    assert spread.makespan([story(a=failed, b=DONE)]) == Likely(9.0, 9.0)


@pytest.mark.parametrize(
    ("found", "end", "expected"),
    [
        ([DONE, Course(wait=JOBS)], Likely(5.0, 5.0), None),
        ([DONE, Course(wait=JOBS)], Likely(5.0, None), JOBS),
        ([Course(end=5.0, wait=SKIPPED), Course(wait=JOBS)], Likely(5.0, None), JOBS),
        ([Course(), Course(wait=JOBS)], Likely(), JOBS),
        ([Course(wait=FAILED), Course(wait=JOBS)], Likely(), FAILED),
        ([Course(wait=FAILED), Course(wait=JOBS)], Likely(5.0, None), JOBS),
        ([DONE, Course(wait=FAILED)], Likely(5.0, None), None),
    ],
)
def test_what_a_node_waits_for_at_last(
    found: list[Course], end: Likely, expected: Wait | None
) -> None:
    assert spread.held_up_at_last(found, end) == expected


def test_of_equal_losses_the_earliest_is_the_largest() -> None:
    few, late, early = (
        Loss(nodes=nodes, gpus=8 * nodes, at=at) for nodes, at in ((1, 0.0), (2, 9.0), (2, 3.0))
    )
    assert spread.largest_loss([told(loss=loss) for loss in (few, late, early)]) == early


def held(node: str, seconds: float) -> Held:
    return Held(node=node, detail="so", seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "proven", "notable"),
    [
        (600.0, 1200.0, True),
        (599.0, 600.0, False),
        (700.0, 1401.0, False),
        (600.0, None, True),
    ],
)
def test_what_takes_half_of_the_proof_and_some_minutes_is_worth_a_word(
    seconds: float, proven: float | None, notable: bool
) -> None:
    proof = Proof(threshold=2, proven=proven, held=held("a", seconds))
    found = spread.proof([told(proof=proof), told()])
    assert found is not None
    assert found.held == (proof.held if notable else None)


def test_the_proof_of_several_plays() -> None:
    proofs = [
        Proof(threshold=1, proven=1000.0, held=held("a", 700.0)),
        Proof(threshold=3, proven=1100.0, held=held("b", 900.0)),
        Proof(threshold=2, proven=900.0, held=None),
    ]
    found = spread.proof([told(proof=proof) for proof in proofs])
    assert found == ProofForecast(threshold=3, after=Likely(1000.0, 1100.0), held=held("b", 900.0))
    assert spread.proof([told(), told()]) is None
