"""I11: results and events that come twice."""

import msgspec
import pytest

from libs.audit import LostJournal
from libs.contracts.events import LeaderEvent
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome
from tests.unit.audit.builders import JournalBuilder, messages

STARTED, FINISHED = EntryPhase.STARTED, EntryPhase.FINISHED


def leased() -> JournalBuilder:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    return story


def of_i11(story: JournalBuilder) -> list[str]:
    return messages(story.journal(), "I11")


def ended(story: JournalBuilder, op: int, *, component: str = "driver") -> None:
    story.entry("n1", component, "swap", FINISHED, op=op, outcome=Outcome.DONE)


def begun(story: JournalBuilder, op: int, *, component: str = "driver") -> None:
    story.entry("n1", component, "swap", STARTED, op=op)


def test_a_result_that_comes_twice() -> None:
    story = leased()
    begun(story, 1)
    ended(story, 1)
    ended(story, 1)
    assert of_i11(story) == ["driver of n1: swap 1.1 ended again"]


def test_results_out_of_order() -> None:
    story = leased()
    begun(story, 1)
    begun(story, 2)
    ended(story, 2)
    ended(story, 1)
    assert of_i11(story) == ["driver of n1: swap 1.1 ended after the later op 1.2"]


def test_an_op_that_is_run_again_after_its_end_even_in_another_boot() -> None:
    story = leased()
    begun(story, 1)
    ended(story, 1)
    story.reboot("n1", "second")
    begun(story, 1)
    assert of_i11(story) == ["driver of n1: swap 1.1 started again after it had ended"]


@pytest.mark.parametrize(("component", "problems"), [("driver", 0), ("validator", 2)])
def test_who_lost_his_journal_cannot_know_that_it_had_ended(component: str, problems: int) -> None:
    story = leased()
    begun(story, 1)
    ended(story, 1)
    story.advance(10)
    loss = LostJournal(node_uid="uid-n1", component=component, time=story.time)
    story.advance(10)
    begun(story, 1)
    ended(story, 1)
    journal = msgspec.structs.replace(story.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I11")) == problems
    ended(story, 1)
    journal = msgspec.structs.replace(story.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I11")) == problems + 1


def test_a_result_of_what_never_began() -> None:
    story = leased()
    begun(story, 1)
    ended(story, 2)
    assert of_i11(story) == ["driver of n1: swap 1.2 ended without having started"]


def test_what_began_before_the_journal_may_end_in_it() -> None:
    story = leased()
    ended(story, 1)
    begun(story, 2)
    ended(story, 2)
    assert of_i11(story) == []


def test_an_op_that_is_resumed_after_a_crash_is_one() -> None:
    story = leased()
    begun(story, 1)
    begun(story, 1)
    ended(story, 1)
    assert of_i11(story) == []


def test_components_and_nodes_are_told_apart() -> None:
    story = leased()
    for component in ("driver", "validator", "plugin"):
        begun(story, 1, component=component)
        ended(story, 1, component=component)
    story.delete("Node", "n1")
    story.node("n1", uid="uid-other")
    story.take_lease("n1", token=1)
    begun(story, 1)
    ended(story, 1)
    assert of_i11(story) == []


def test_an_event_may_come_twice_but_not_with_two_contents() -> None:
    story = leased()
    event = story.event(LeaderEvent(holder="a", epoch=1), id="one")
    story.events.append(event)
    assert of_i11(story) == []
    story.events.append(msgspec.structs.replace(event, message="Leader of b"))
    assert of_i11(story) == ["event one has two contents: 'LeaderEvent of ' and 'Leader of b'"]


def test_an_op_that_ends_late_does_not_make_the_later_one_forgotten() -> None:
    story = leased()
    begun(story, 1)
    begun(story, 2)
    ended(story, 2)
    ended(story, 1)
    ended(story, 2)
    assert of_i11(story) == [
        "driver of n1: swap 1.1 ended after the later op 1.2",
        "driver of n1: swap 1.2 ended again",
    ]
