"""I5: ops of driver agents after the answer of the kernel."""

from collections.abc import Sequence

import pytest

from libs.audit import DeviceHold
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome
from tests.unit.audit.builders import JournalBuilder, messages

SAID = "the driver agent of n1, at swap 1.1, "


def swap(steps: Sequence[str], outcome: Outcome = Outcome.DONE) -> JournalBuilder:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.op("n1", "driver", "swap", op=1, steps=steps, outcome=outcome)
    return builder


def i5_violations(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I5")


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
def test_continuing_after_busy_is_a_violation(
    steps: Sequence[str], outcome: Outcome, problem: str
) -> None:
    assert i5_violations(swap(steps, outcome)) == [SAID + problem]


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
def test_obeying_the_kernel_is_no_violation(steps: Sequence[str], outcome: Outcome) -> None:
    assert i5_violations(swap(steps, outcome)) == []


def test_a_refusal_does_not_continue_an_op() -> None:
    builder = swap(("unload: busy",), Outcome.FAILED)
    builder.entry("n1", "driver", "swap", EntryPhase.REFUSED, op=1, detail="gate: open")
    assert i5_violations(builder) == []


def test_another_op_and_a_resumed_op_start_over() -> None:
    builder = swap(("unload: busy",), Outcome.FAILED)
    builder.op("n1", "driver", "swap", op=2, steps=("gate: open",))
    assert i5_violations(builder) == []


@pytest.mark.parametrize(
    ("since", "until", "held"),
    [(-5.0, None, True), (-5.0, 5.0, True), (-5.0, 1.0, False), (1.0, None, False)],
)
def test_unloading_a_held_driver_is_a_violation(
    since: float, until: float | None, held: bool
) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    begun = builder.time
    builder.op("n1", "driver", "swap", op=1, steps=("unload: ok",))
    ended = None if until is None else begun + until
    builder.device_holds.append(
        DeviceHold(node_uid="uid-n1", since=begun + since, until=ended, holder="python 4711")
    )
    builder.device_holds.append(DeviceHold(node_uid="uid-n2", since=begun - 5))
    assert i5_violations(builder) == (
        [f"{SAID}unloaded the driver while python 4711 held the device"] if held else []
    )


def test_a_refused_unload_of_a_held_driver_is_no_violation() -> None:
    builder = swap(("unload: busy",), Outcome.FAILED)
    builder.device_holds.append(DeviceHold(node_uid="uid-n1", since=builder.time - 10))
    assert i5_violations(builder) == []


def test_steps_of_other_components_are_ignored() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.op("n1", "plugin", "quiesce", op=1, steps=("unload: forced",))
    assert i5_violations(builder) == []


def test_a_process_without_a_name_holds_the_device() -> None:
    builder = swap(("unload: ok",))
    builder.device_holds.append(DeviceHold(node_uid="uid-n1", since=builder.time - 10))
    assert i5_violations(builder) == [f"{SAID}unloaded the driver while a process held the device"]
