"""I9: waits without a reason, and events that contradict the journal."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from libs.audit import judge, unaccounted
from libs.contracts.events import CommandEvent, EventBody, EvidenceEvent, StepEvent, WaitEvent
from libs.contracts.waits import WaitCode
from tests.unit.audit.builders import POOL, JournalBuilder, cases, messages

NO_REASON = "is upgrade-required, and no event gives the reason"


def i9_messages(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I9")


@cases(
    "overrides problem",
    an_unknown_code=({"code": WaitCode("moon")}, "a known code (moon)"),
    no_details=({"detail": ""}, "details"),
    no_since=({"since": 0.0}, "a since"),
    a_future_since=({"since": 2e9}, "a since"),
    a_since_of_a_year_ago=({"since": 1.7e9 - 365 * 86_400.0}, "a since"),
    nobody_who_can_end_it=({"who": ""}, "an owner who can end it"),
    nobody_and_no_details=({"who": "", "detail": ""}, "details, an owner who can end it"),
    a_since_of_less_than_a_year_ago=({"since": 1.7e9 - 364 * 86_400.0}, ""),
    an_endless_wait=({"code": WaitCode.HALTED, "until": None}, ""),
    a_wait_with_an_end=({"code": WaitCode.STALE, "until": 1.7e9 + 5}, ""),
    the_end_of_a_wait=({"code": None, "detail": "", "since": 0.0, "who": ""}, ""),
)
def test_a_wait_with_missing_fields_is_a_violation(overrides: dict[str, Any], problem: str) -> None:
    builder = JournalBuilder("n1", time=1.7e9)
    builder.wait_event("n1", **overrides)
    assert i9_messages(builder) == ([f"the wait of n1 lacks {problem}"] if problem else [])


@cases(
    "story texts",
    a_lagging_node_without_a_wait=("require; advance 91; require n2", [f"n1 {NO_REASON}"]),
    a_lagging_node_with_a_wait=("require; wait_event n1; advance 91; require n2", []),
    a_lagging_node_whose_wait_ended=(
        "require; wait_event n1; wait_event n1 None; advance 91; require n2",
        [f"n1 {NO_REASON}"],
    ),
    a_recently_written_node=("require; advance 90; cordon n2", []),
    a_node_in_place=("upgrade; advance 1000; cordon n2", []),
    a_deleted_node=("require; delete Node n1; advance 1000; cordon n2", []),
)
def test_a_lagging_node_has_a_wait(story: str, texts: list[str]) -> None:
    assert i9_messages(JournalBuilder("n1", "n2").play(story)) == texts


def test_a_decision_has_a_wait_or_an_effect_for_each_node() -> None:
    wait = WaitEvent(pool=POOL, code=WaitCode.BUDGET, detail="1 of 1", since=900.0, who="a person")
    waiting = {
        "n1": wait,
        "n2": replace(wait, who=""),
        "n5": replace(wait, code=None),
    }
    violations = list(unaccounted(["n1", "n2", "n3", "n4", "n5"], waiting, {"n4"}, at=1000.0))
    assert [violation.message for violation in violations] == [
        "n2 is not in place, and its wait lacks an owner who can end it",
        "n3 is not in place, and has neither a wait nor an effect in flight",
        "n5 is not in place, and its wait lacks a known code (None)",
    ]
    assert {(violation.invariant, violation.time) for violation in violations} == {("I9", 1000.0)}


def step(after: str, revision: str) -> StepEvent:
    return StepEvent(pool=POOL, token=0, before="", after=after, revision=revision)


@cases(
    "after revision problem",
    the_state_of_the_revision=("upgrade-required", "103", ""),
    another_state=("upgrade-done", "103", "revision 103 shows upgrade-required"),
    no_state_instead=("", "103", "revision 103 shows upgrade-required"),
    a_state_instead_of_none=("upgrade-done", "106", "revision 106 shows no state"),
    of_another_node=("upgrade-required", "104", "104"),
    of_another_writer=("upgrade-required", "105", "105"),
    of_no_revision=("upgrade-required", "", "none"),
    of_revision_zero=("upgrade-required", "0", "0"),
)
def test_a_step_event_names_the_write_that_shows_it(
    after: str, revision: str, problem: str
) -> None:
    builder = JournalBuilder("n1", "n2")
    builder.play("require; require n2; label n1 team/colour red; rewrite state=None")
    builder.event(step(after, revision), node="n1")
    if problem in ("104", "105", "none", "0"):
        problem = f"names revision {problem}, which is no write of ours to that Node"
    claim = f"the event claims n1 is {after or 'without a state'}"
    assert i9_messages(builder) == ([f"{claim}, but {problem}"] if problem else [])


def command(outcome: str, phase: str = "finished", op: int = 1) -> CommandEvent:
    return CommandEvent(epoch=1, token=1, op=op, command="swap", phase=phase, outcome=outcome)


EVIDENCE = EvidenceEvent(token=1, op=1, label="x", passed=True)
NO_END = "but its journal has no end of that op"


@cases(
    "story body by problem",
    another_outcome=(
        "finished",
        command("failed"),
        "driver",
        "driver of n1 reported op 1.1 as failed, but its journal records done",
    ),
    another_op=(
        "finished",
        command("done", op=2),
        "driver",
        f"driver of n1 reported op 1.2 as done, {NO_END}",
    ),
    no_finished_entry=(
        "entry started outcome=done",
        command("done"),
        "driver",
        f"driver of n1 reported op 1.1 as done, {NO_END}",
    ),
    no_result=(
        "entry finished",
        command("done"),
        "driver",
        f"driver of n1 reported op 1.1 as done, {NO_END}",
    ),
    the_same_outcome=("finished", command("done"), "driver", ""),
    an_outcome_before_the_journal_was_lost=(
        "op driver swap; lose_journal; advance 1; op driver swap outcome=superseded",
        command("done"),
        "driver",
        "",
    ),
    another_outcome_than_before_and_after_the_loss=(
        "op driver swap; lose_journal; advance 1; op driver swap outcome=superseded",
        command("failed"),
        "driver",
        "driver of n1 reported op 1.1 as failed, but its journal records done and superseded",
    ),
    a_start=("finished", command("", phase="started", op=7), "driver", ""),
    passed_evidence=("op validator validate", EVIDENCE, "validator", ""),
    passed_evidence_of_a_failed_op=(
        "op validator validate outcome=failed",
        EVIDENCE,
        "validator",
        "validator of n1 reported op 1.1 as done, but its journal records failed",
    ),
    failed_evidence=(
        "op validator validate outcome=failed",
        replace(EVIDENCE, passed=False),
        "validator",
        "",
    ),
    evidence_repeated_by_the_scheduler=("", EVIDENCE, "scheduler", ""),
)
def test_an_event_of_an_agent_agrees_with_its_journal(
    story: str, body: EventBody, by: str, problem: str
) -> None:
    builder = JournalBuilder("n1").play(f"lease; {story}")
    builder.event(body, node="n1", by=by)
    assert i9_messages(builder) == [problem] * bool(problem)


@pytest.mark.parametrize("body", [b'{"pool": 9}', b"[]"])
def test_a_malformed_event_is_ignored(body: bytes) -> None:
    builder = JournalBuilder("n1")
    event = builder.wait_event("n1")
    builder.events[0] = replace(event, body=msgspec.Raw(body))
    assert messages(builder.journal()) == []
    assert judge(builder.journal()).not_judged == {}
