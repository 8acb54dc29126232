"""I9: waits without a reason, and events that contradict the journal."""

from typing import Any

import msgspec
import pytest

from libs.audit import judge, unaccounted
from libs.contracts.events import CommandEvent, EvidenceEvent, StepEvent, WaitEvent
from libs.contracts.journal import EntryPhase
from libs.contracts.node import WaitCode
from libs.contracts.reports import Outcome
from tests.unit.audit.builders import POOL, JournalBuilder, messages, state, violations_of


def i9_violations(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I9")


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"code": WaitCode("moon")}, "a known code (moon)"),
        ({"detail": ""}, "details"),
        ({"since": 0.0}, "a since"),
        ({"since": 2e9}, "a since"),
        ({"who": ""}, "an owner who can end it"),
        ({"who": "", "detail": ""}, "details, an owner who can end it"),
    ],
)
def test_a_wait_with_missing_fields_is_a_violation(overrides: dict[str, Any], problem: str) -> None:
    builder = JournalBuilder("n1", time=1.7e9)
    builder.wait_event("n1", **overrides)
    assert i9_violations(builder) == [f"the wait of n1 lacks {problem}"]


def test_an_endless_wait_and_the_end_of_a_wait_are_no_violation() -> None:
    builder = JournalBuilder("n1")
    builder.wait_event("n1", WaitCode.HALTED, until=None)
    builder.wait_event("n1", WaitCode.STALE, until=builder.time + 5)
    builder.wait_event("n1", None, detail="", since=0.0, who="")
    assert i9_violations(builder) == []


def test_a_lagging_node_without_a_wait_is_a_violation() -> None:
    builder = JournalBuilder("n1", "n2", "n3", "n4")
    builder.mark_required("n1")
    builder.mark_required("n2")
    builder.mark_required("n3")
    builder.wait_event("n1", WaitCode.BUDGET)
    builder.wait_event("n3", WaitCode.BUDGET)
    builder.wait_event("n3", None)
    builder.advance(91)
    builder.mark_required("n4")
    assert i9_violations(builder) == [
        "n2 is upgrade-required, and no event gives the reason",
        "n3 is upgrade-required, and no event gives the reason",
    ]


def test_recently_written_nodes_and_nodes_in_place_need_no_wait() -> None:
    builder = JournalBuilder("n1", "n2", "n3", "n4")
    builder.upgrade("n1")
    builder.mark_required("n3")
    builder.delete("Node", "n3")
    builder.advance(1000)
    builder.mark_required("n2")
    builder.advance(90)
    builder.cordon("n4")
    assert i9_violations(builder) == []


def whole(**overrides: Any) -> WaitEvent:
    right: dict[str, Any] = {
        "pool": POOL,
        "code": WaitCode.BUDGET,
        "detail": "1 of 1",
        "since": 900.0,
        "who": "nobody has to",
    }
    return WaitEvent(**{**right, **overrides})


def test_a_decision_has_a_wait_or_an_effect_for_each_node() -> None:
    waiting = {"n1": whole(), "n2": whole(who=""), "n5": whole(code=None)}
    violations = list(unaccounted(["n1", "n2", "n3", "n4", "n5"], waiting, {"n4"}, at=1000.0))
    assert [one.message for one in violations] == [
        "n2 is not in place, and its wait lacks an owner who can end it",
        "n3 is not in place, and has neither a wait nor an effect in flight",
        "n5 is not in place, and its wait lacks a known code (None)",
    ]
    assert {(one.invariant, one.time) for one in violations} == {("I9", 1000.0)}


def test_a_step_event_with_another_state_is_a_violation() -> None:
    builder = JournalBuilder("n1", "n2")
    write = builder.mark_required("n1")
    builder.step_event("n1", write, after="upgrade-done")
    assert i9_violations(builder) == [
        f"the event claims n1 is upgrade-done, but revision {write.revision} shows upgrade-required"
    ]


def test_a_step_event_without_its_write_is_a_violation() -> None:
    builder = JournalBuilder("n1", "n2")
    builder.mark_required("n1")
    builder.mark_required("n2")
    builder.step_event("n1", builder.revisions[-1])
    by_others = builder.label("n1", "team/colour", "red")
    builder.step_event("n1", by_others)
    builder.step_event("n1", msgspec.structs.replace(by_others, revision=0))
    builder.event(StepEvent(pool=POOL, token=0, before="", after="upgrade-required"), node="n1")
    claim = "the event claims n1 is upgrade-required, but names revision"
    assert i9_violations(builder) == [
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
def test_a_command_event_against_the_journal_is_a_violation(
    body: CommandEvent, problem: str
) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.op("n1", "driver", "swap", op=1)
    builder.entry("n1", "driver", "swap", EntryPhase.FINISHED, op=2)
    builder.event(body, node="n1", by="driver")
    assert i9_violations(builder) == ([f"driver of n1 {problem}"] if problem else [])


@pytest.mark.parametrize(
    ("outcome", "passed", "problems"),
    [(Outcome.DONE, True, 0), (Outcome.FAILED, True, 1), (Outcome.FAILED, False, 0)],
)
def test_an_evidence_event_without_an_entry_is_a_violation(
    outcome: Outcome, passed: bool, problems: int
) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.op("n1", "validator", "validate", op=1, outcome=outcome)
    body = EvidenceEvent(token=1, op=1, label="x", passed=passed)
    builder.event(body, node="n1", by="validator")
    assert len(i9_violations(builder)) == problems


def test_a_malformed_event_is_ignored() -> None:
    builder = JournalBuilder("n1")
    event = builder.wait_event("n1")
    builder.events[0] = msgspec.structs.replace(event, body=msgspec.Raw(b'{"pool": 9}'))
    assert violations_of(builder.journal()) == []
    assert judge(builder.journal()).not_judged == {}


@pytest.mark.parametrize(("days", "problems"), [(364, 0), (365, 1)])
def test_a_wait_older_than_a_year_has_no_valid_since(days: int, problems: int) -> None:
    at = 1e9
    waiting = {"n1": whole(since=at - days * 86_400.0)}
    assert len(list(unaccounted(["n1"], waiting, (), at=at))) == problems


def test_a_step_event_without_a_state_is_compared() -> None:
    builder = JournalBuilder("n1")
    write = builder.mark_required("n1")
    builder.step_event("n1", write, after="")
    other = builder.apply("n1", state(None))
    builder.step_event("n1", other, after="upgrade-done")
    assert i9_violations(builder) == [
        f"the event claims n1 is upgrade-done, but revision {other.revision} shows no state",
        (
            f"the event claims n1 is without a state, but revision {write.revision} shows"
            " upgrade-required"
        ),
    ]


def test_only_finished_entries_are_compared_with_events() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.entry("n1", "driver", "swap", EntryPhase.STARTED, op=1, outcome=Outcome.DONE)
    builder.event(taken("done"), node="n1", by="driver")
    assert i9_violations(builder) == [
        "driver of n1 reported op 1.1 as done, but its journal has no end of that op"
    ]


def test_evidence_events_of_the_scheduler_need_no_entry() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.event(EvidenceEvent(token=1, op=1, label="x", passed=True), node="n1", by="scheduler")
    assert i9_violations(builder) == []
