"""I5 and I11: ops after the answer of the kernel, and repeated results and events."""

import pytest
from msgspec.structs import replace

from libs.contracts.events import LeaderEvent
from tests.unit.audit.builders import JournalBuilder, cases, messages

AGENT = "the driver agent of n1, at swap 1.1,"
BUSY = "although the kernel had answered busy"
HELD = f"{AGENT} unloaded the driver while python held the device"


def messages_of(story: str, invariant: str) -> list[str]:
    builder = JournalBuilder("n1").play(f"lease; {story}")
    return messages(builder.journal(), invariant)


@cases(
    "story problem",
    forced=(
        "op driver swap unload:forced",
        "unloaded as 'forced', which is no answer of the kernel",
    ),
    a_step_after_busy=(
        "op driver swap unload:busy gate:open",
        f"continued (gate: open) {BUSY}",
    ),
    done_after_busy=("op driver swap unload:busy,_python", f"continued (ended as done) {BUSY}"),
    the_last_answer_counts=(
        "op driver swap unload:ok unload:busy root_cleared outcome=failed",
        f"continued (root cleared) {BUSY}",
    ),
)
def test_continuing_after_busy_is_a_violation(story: str, problem: str) -> None:
    assert messages_of(story, "I5") == [f"{AGENT} {problem}"]


@cases(
    "story",
    unloaded="op driver swap unload:ok gate:open",
    nothing_was_loaded="op driver swap unload:none gate:open",
    no_unload="op driver swap gate:open",
    unloaded_after_busy="op driver swap unload:busy unload:busy unload:ok gate:open",
    another_step_of_the_unload="op driver swap unload:busy unload_once_more unload:ok",
    a_new_leader_after_busy="started; entry step detail=unload:busy; entry step epoch=2",
    failed_after_busy="op driver swap unload:busy:_python outcome=failed",
    superseded_after_busy="op driver swap unload:busy outcome=superseded",
    a_refusal="op driver swap unload:busy outcome=failed; entry refused detail=gate:open",
    another_op="op driver swap unload:busy outcome=failed; op driver swap gate:open op=2",
    a_resumed_op="op driver swap unload:busy outcome=failed; op driver swap gate:open",
    another_component="op plugin quiesce unload:forced",
    a_refused_unload_of_a_held_driver=("hold_device; op driver swap unload:busy outcome=failed"),
)
def test_obeying_the_kernel_is_no_violation(story: str) -> None:
    assert messages_of(story, "I5") == []


@pytest.mark.parametrize(
    ("since", "until", "texts"),
    [(-5.0, None, [HELD]), (-5.0, 5.0, [HELD]), (-5.0, 1.0, []), (1.0, None, [])],
)
def test_unloading_a_held_driver_is_a_violation(
    since: float, until: float | None, texts: list[str]
) -> None:
    hold = f"hold_device {since} {until} holder=python; hold_device node=n2"
    assert messages_of(f"{hold}; op driver swap unload:ok", "I5") == texts


def test_a_process_without_a_name_holds_the_device() -> None:
    text = HELD.replace("python", "a process")
    assert messages_of("hold_device; op driver swap unload:ok", "I5") == [text]


AGAIN = "driver of n1: swap 1.1 ended again"
LATE = "driver of n1: swap 1.1 ended after the later op 1.2"


@cases(
    "story texts",
    one_result=("started; finished", []),
    a_repeated_result=("started; finished; finished", [AGAIN]),
    a_late_result=("started; started op=2; finished op=2; finished", [LATE]),
    a_late_result_and_a_repeated_one=(
        "started; started op=2; finished op=2; finished; finished op=2",
        [LATE, "driver of n1: swap 1.2 ended again"],
    ),
    an_op_that_starts_again_after_its_end=(
        "started; finished; reboot; started",
        ["driver of n1: swap 1.1 started again after it had ended"],
    ),
    a_result_without_a_start=(
        "started; finished op=2",
        ["driver of n1: swap 1.2 ended without having started"],
    ),
    an_op_started_before_the_journal=("finished; started op=2; finished op=2", []),
    an_op_resumed_after_a_crash=("started; started; finished", []),
    another_component=("started; finished; started validator; finished validator", []),
    another_node_of_the_same_name=(
        "started; finished; delete Node n1; node uid=other; lease token=1; started; finished",
        [],
    ),
    a_lost_journal=(
        "started; finished; advance 10; lose_journal; advance 10; started; finished; finished",
        [AGAIN],
    ),
    a_lost_journal_of_another_component=(
        "started; finished; advance 10; lose_journal validator; advance 10; finished",
        [AGAIN],
    ),
)
def test_each_op_has_one_result_in_order(story: str, texts: list[str]) -> None:
    assert messages_of(story, "I11") == texts


def test_a_repeated_event_has_the_same_content() -> None:
    builder = JournalBuilder("n1")
    event = builder.event(LeaderEvent(holder="a", epoch=1), id="x")
    builder.events.append(event)
    assert messages(builder.journal(), "I11") == []
    builder.events.append(replace(event, message="Leader of b"))
    assert messages(builder.journal(), "I11") == [
        "event x has two contents: 'LeaderEvent of ' and 'Leader of b'"
    ]
