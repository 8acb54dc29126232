"""I11: repeated results and events."""

import msgspec
import pytest

from libs.audit import LostJournal
from libs.contracts.events import LeaderEvent
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome
from tests.unit.audit.builders import JournalBuilder, messages

STARTED, FINISHED = EntryPhase.STARTED, EntryPhase.FINISHED


def leased() -> JournalBuilder:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    return builder


def i11_violations(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I11")


def ended(builder: JournalBuilder, op: int, *, component: str = "driver") -> None:
    builder.entry("n1", component, "swap", FINISHED, op=op, outcome=Outcome.DONE)


def begun(builder: JournalBuilder, op: int, *, component: str = "driver") -> None:
    builder.entry("n1", component, "swap", STARTED, op=op)


def test_a_repeated_result_is_a_violation() -> None:
    builder = leased()
    begun(builder, 1)
    ended(builder, 1)
    ended(builder, 1)
    assert i11_violations(builder) == ["driver of n1: swap 1.1 ended again"]


def test_results_out_of_order_are_a_violation() -> None:
    builder = leased()
    begun(builder, 1)
    begun(builder, 2)
    ended(builder, 2)
    ended(builder, 1)
    assert i11_violations(builder) == ["driver of n1: swap 1.1 ended after the later op 1.2"]


def test_an_op_that_starts_again_after_its_end_is_a_violation_on_any_boot() -> None:
    builder = leased()
    begun(builder, 1)
    ended(builder, 1)
    builder.reboot("n1", "second")
    begun(builder, 1)
    assert i11_violations(builder) == ["driver of n1: swap 1.1 started again after it had ended"]


@pytest.mark.parametrize(("component", "problems"), [("driver", 0), ("validator", 2)])
def test_an_agent_that_lost_its_journal_may_repeat_an_op(component: str, problems: int) -> None:
    builder = leased()
    begun(builder, 1)
    ended(builder, 1)
    builder.advance(10)
    loss = LostJournal(node_uid="uid-n1", component=component, time=builder.time)
    builder.advance(10)
    begun(builder, 1)
    ended(builder, 1)
    journal = msgspec.structs.replace(builder.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I11")) == problems
    ended(builder, 1)
    journal = msgspec.structs.replace(builder.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I11")) == problems + 1


def test_a_result_without_a_start_is_a_violation() -> None:
    builder = leased()
    begun(builder, 1)
    ended(builder, 2)
    assert i11_violations(builder) == ["driver of n1: swap 1.2 ended without having started"]


def test_an_op_started_before_the_journal_may_end_in_it() -> None:
    builder = leased()
    ended(builder, 1)
    begun(builder, 2)
    ended(builder, 2)
    assert i11_violations(builder) == []


def test_an_op_resumed_after_a_crash_is_one_op() -> None:
    builder = leased()
    begun(builder, 1)
    begun(builder, 1)
    ended(builder, 1)
    assert i11_violations(builder) == []


def test_components_and_nodes_are_judged_separately() -> None:
    builder = leased()
    for component in ("driver", "validator", "plugin"):
        begun(builder, 1, component=component)
        ended(builder, 1, component=component)
    builder.delete("Node", "n1")
    builder.node("n1", uid="uid-other")
    builder.take_lease("n1", token=1)
    begun(builder, 1)
    ended(builder, 1)
    assert i11_violations(builder) == []


def test_a_repeated_event_has_the_same_content() -> None:
    builder = leased()
    event = builder.event(LeaderEvent(holder="a", epoch=1), id="one")
    builder.events.append(event)
    assert i11_violations(builder) == []
    builder.events.append(msgspec.structs.replace(event, message="Leader of b"))
    assert i11_violations(builder) == [
        "event one has two contents: 'LeaderEvent of ' and 'Leader of b'"
    ]


def test_a_late_result_does_not_hide_a_repeated_one() -> None:
    builder = leased()
    begun(builder, 1)
    begun(builder, 2)
    ended(builder, 2)
    ended(builder, 1)
    ended(builder, 2)
    assert i11_violations(builder) == [
        "driver of n1: swap 1.1 ended after the later op 1.2",
        "driver of n1: swap 1.2 ended again",
    ]
