"""I5: what a driver agent did after the kernel had spoken."""

from collections.abc import Sequence

import pytest

from libs.audit import DeviceHold
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome
from tests.unit.audit.builders import JournalBuilder, messages

SAID = "the driver agent of n1, at swap 1.1, "


def swap(steps: Sequence[str], outcome: Outcome = Outcome.DONE) -> JournalBuilder:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.op("n1", "driver", "swap", op=1, steps=steps, outcome=outcome)
    return story


def of_i5(story: JournalBuilder) -> list[str]:
    return messages(story.journal(), "I5")


@pytest.mark.parametrize(
    ("steps", "outcome", "problem"),
    [
        (
            ("unload: forced",),
            Outcome.DONE,
            "unloaded as 'forced', which is no answer of the kernel",
        ),
        (
            ("unload: busy", "gate: open"),
            Outcome.DONE,
            "continued (gate: open) although the kernel had answered busy",
        ),
        (
            ("unload: busy, python 4711",),
            Outcome.DONE,
            "continued (ended as done) although the kernel had answered busy",
        ),
        (
            ("unload: ok", "unload: busy", "driver root cleared"),
            Outcome.FAILED,
            "continued (driver root cleared) although the kernel had answered busy",
        ),
    ],
)
def test_against_the_word_of_the_kernel(
    steps: Sequence[str], outcome: Outcome, problem: str
) -> None:
    assert of_i5(swap(steps, outcome)) == [SAID + problem]


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        (("unload: ok", "gate: open"), Outcome.DONE),
        (("unload: none", "gate: open"), Outcome.DONE),
        (("gate: open",), Outcome.DONE),
        (("unload: busy", "unload: busy", "unload: ok", "gate: open"), Outcome.DONE),
        (("unload: busy", "unload once more", "unload: ok"), Outcome.DONE),
        (("unload: busy: python 4711",), Outcome.FAILED),
        (("unload: busy",), Outcome.SUPERSEDED),
    ],
)
def test_as_the_kernel_says(steps: Sequence[str], outcome: Outcome) -> None:
    assert of_i5(swap(steps, outcome)) == []


def test_a_refusal_is_no_step() -> None:
    story = swap(("unload: busy",), Outcome.FAILED)
    story.entry("n1", "driver", "swap", EntryPhase.REFUSED, op=1, detail="gate: open")
    assert of_i5(story) == []


def test_another_op_and_a_resumed_one_begin_anew() -> None:
    story = swap(("unload: busy",), Outcome.FAILED)
    story.op("n1", "driver", "swap", op=2, steps=("gate: open",))
    assert of_i5(story) == []


@pytest.mark.parametrize(
    ("since", "until", "held"),
    [(-5.0, None, True), (-5.0, 5.0, True), (-5.0, 1.0, False), (1.0, None, False)],
)
def test_a_driver_that_goes_under_a_process_that_holds_it(
    since: float, until: float | None, held: bool
) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    begun = story.time
    story.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    ended = None if until is None else begun + until
    story.held.append(
        DeviceHold(node_uid="uid-n1", since=begun + since, until=ended, holder="python 4711")
    )
    story.held.append(DeviceHold(node_uid="uid-n2", since=begun - 5))
    assert of_i5(story) == (
        [f"{SAID}unloaded the driver while python 4711 held the device"] if held else []
    )


def test_a_refused_unload_with_holders_is_as_it_should_be() -> None:
    story = swap(("unload: busy",), Outcome.FAILED)
    story.held.append(DeviceHold(node_uid="uid-n1", since=story.time - 10))
    assert of_i5(story) == []


def test_what_another_component_says_is_no_word_of_the_kernel() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.op("n1", "plugin", "quiesce", op=1, steps=("unload: forced",))
    assert of_i5(story) == []


def test_a_process_without_a_name_holds_it_too() -> None:
    story = swap(("unload: ok",))
    story.held.append(DeviceHold(node_uid="uid-n1", since=story.time - 10))
    assert of_i5(story) == [f"{SAID}unloaded the driver while a process held the device"]
