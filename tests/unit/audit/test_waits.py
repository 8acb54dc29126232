"""I9: who waits without a reason, and who says what is not so."""

from typing import Any

import msgspec
import pytest

from libs.audit import judge, unaccounted
from libs.contracts.events import CommandEvent, EvidenceEvent, StepEvent, WaitEvent
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome
from libs.contracts.waits import WaitCode
from tests.unit.audit.builders import POOL, JournalBuilder, messages, state, violations_of


def of_i9(story: JournalBuilder) -> list[str]:
    return messages(story.journal(), "I9")


@pytest.mark.parametrize(
    ("otherwise", "problem"),
    [
        ({"code": WaitCode("moon")}, "a known code (moon)"),
        ({"detail": ""}, "details"),
        ({"since": 0.0}, "a since"),
        ({"since": 2e9}, "a since"),
        ({"who": ""}, "an owner who can end it"),
        ({"who": "", "detail": ""}, "details, an owner who can end it"),
    ],
)
def test_a_wait_that_owes_something(otherwise: dict[str, Any], problem: str) -> None:
    story = JournalBuilder("n1", time=1.7e9)
    story.wait_event("n1", **otherwise)
    assert of_i9(story) == [f"the wait of n1 lacks {problem}"]


def test_a_wait_for_ever_and_the_end_of_one_are_whole() -> None:
    story = JournalBuilder("n1")
    story.wait_event("n1", WaitCode.HALTED, until=None)
    story.wait_event("n1", WaitCode.STALE, until=story.time + 5)
    story.wait_event("n1", None, detail="", since=0.0, who="")
    assert of_i9(story) == []


def test_a_node_that_is_left_alone_without_a_word() -> None:
    story = JournalBuilder("n1", "n2", "n3", "n4")
    story.mark_required("n1")
    story.mark_required("n2")
    story.mark_required("n3")
    story.wait_event("n1", WaitCode.BUDGET)
    story.wait_event("n3", WaitCode.BUDGET)
    story.wait_event("n3", None)
    story.advance(91)
    story.mark_required("n4")
    assert of_i9(story) == [
        "n2 is upgrade-required, and no event gives the reason",
        "n3 is upgrade-required, and no event gives the reason",
    ]


def test_nobody_has_to_explain_what_he_just_did_or_what_is_in_place() -> None:
    story = JournalBuilder("n1", "n2", "n3", "n4")
    story.upgrade("n1")
    story.mark_required("n3")
    story.delete("Node", "n3")
    story.advance(1000)
    story.mark_required("n2")
    story.advance(90)
    story.cordon("n4")
    assert of_i9(story) == []


def whole(**otherwise: Any) -> WaitEvent:
    right: dict[str, Any] = {
        "pool": POOL,
        "code": WaitCode.BUDGET,
        "detail": "1 of 1",
        "since": 900.0,
        "who": "nobody has to",
    }
    return WaitEvent(**{**right, **otherwise})


def test_of_a_decision_each_node_has_a_wait_or_is_acted_on() -> None:
    waiting = {"n1": whole(), "n2": whole(who=""), "n5": whole(code=None)}
    violations = list(unaccounted(["n1", "n2", "n3", "n4", "n5"], waiting, {"n4"}, at=1000.0))
    assert [one.message for one in violations] == [
        "n2 is not in place, and its wait lacks an owner who can end it",
        "n3 is not in place, and has neither a wait nor an effect in flight",
        "n5 is not in place, and its wait lacks a known code (None)",
    ]
    assert {(one.invariant, one.time) for one in violations} == {("I9", 1000.0)}


def test_a_step_that_is_told_otherwise_than_it_was() -> None:
    story = JournalBuilder("n1", "n2")
    write = story.mark_required("n1")
    story.step_event("n1", write, after="upgrade-done")
    assert of_i9(story) == [
        f"the event claims n1 is upgrade-done, but revision {write.revision} shows upgrade-required"
    ]


def test_a_step_that_never_was() -> None:
    story = JournalBuilder("n1", "n2")
    story.mark_required("n1")
    story.mark_required("n2")
    story.step_event("n1", story.revisions[-1])
    by_others = story.label("n1", "team/colour", "red")
    story.step_event("n1", by_others)
    story.step_event("n1", msgspec.structs.replace(by_others, revision=0))
    story.event(StepEvent(pool=POOL, token=0, before="", after="upgrade-required"), node="n1")
    claim = "the event claims n1 is upgrade-required, but names revision"
    assert of_i9(story) == [
        f"{claim} {revision}, which is no write of ours to that Node"
        for revision in ("0", "104", "105", "none")
    ]


def taken(outcome: str, phase: str = "finished", op: int = 1) -> CommandEvent:
    return CommandEvent(epoch=1, token=1, op=op, command="swap", phase=phase, outcome=outcome)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (taken("failed"), "reported op 1.1 as failed, but its journal says done"),
        (taken("done", op=2), "reported op 1.2 as done, but its journal has no end of that op"),
        (taken("done"), ""),
        (taken("", phase="started", op=7), ""),
    ],
)
def test_an_agent_that_says_otherwise_than_it_wrote_down(body: CommandEvent, problem: str) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.op("n1", "driver", "swap", op=1)
    story.entry("n1", "driver", "swap", EntryPhase.FINISHED, op=2)
    story.event(body, node="n1", by="driver")
    assert of_i9(story) == ([f"driver of n1 {problem}"] if problem else [])


@pytest.mark.parametrize(
    ("outcome", "passed", "problems"),
    [(Outcome.DONE, True, 0), (Outcome.FAILED, True, 1), (Outcome.FAILED, False, 0)],
)
def test_a_proof_that_the_validator_did_not_write_down(
    outcome: Outcome, passed: bool, problems: int
) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.op("n1", "validator", "validate", op=1, outcome=outcome)
    body = EvidenceEvent(token=1, op=1, label="x", passed=passed)
    story.event(body, node="n1", by="validator")
    assert len(of_i9(story)) == problems


def test_an_event_that_cannot_be_read_says_nothing() -> None:
    story = JournalBuilder("n1")
    event = story.wait_event("n1")
    story.events[0] = msgspec.structs.replace(event, body=msgspec.Raw(b'{"pool": 9}'))
    assert violations_of(story.journal()) == []
    assert judge(story.journal()).not_judged == {}


@pytest.mark.parametrize(("days", "problems"), [(364, 0), (365, 1)])
def test_a_wait_of_a_year_never_said_when_it_began(days: int, problems: int) -> None:
    at = 1e9
    waiting = {"n1": whole(since=at - days * 86_400.0)}
    assert len(list(unaccounted(["n1"], waiting, (), at=at))) == problems


def test_a_node_without_a_state_is_told_as_such() -> None:
    story = JournalBuilder("n1")
    write = story.mark_required("n1")
    story.step_event("n1", write, after="")
    other = story.apply("n1", state(None))
    story.step_event("n1", other, after="upgrade-done")
    assert of_i9(story) == [
        f"the event claims n1 is upgrade-done, but revision {other.revision} shows no state",
        (
            f"the event claims n1 is without a state, but revision {write.revision} shows"
            " upgrade-required"
        ),
    ]


def test_what_an_agent_wrote_down_before_the_end_is_no_end() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.entry("n1", "driver", "swap", EntryPhase.STARTED, op=1, outcome=Outcome.DONE)
    story.event(taken("done"), node="n1", by="driver")
    assert of_i9(story) == [
        "driver of n1 reported op 1.1 as done, but its journal has no end of that op"
    ]


def test_evidence_that_the_scheduler_tells_of_is_not_his_to_write_down() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.event(EvidenceEvent(token=1, op=1, label="x", passed=True), node="n1", by="scheduler")
    assert of_i9(story) == []
