"""I2 on machines: agents start ops in order, and under the current lease."""

import msgspec
import pytest

from libs.audit import LostJournal
from libs.contracts.journal import EntryPhase
from tests.unit.audit.builders import JournalBuilder, messages

STARTED = EntryPhase.STARTED


def leased() -> JournalBuilder:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.advance(10)
    return builder


def test_starting_under_an_older_epoch_is_a_violation() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=1, epoch=3)
    builder.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    assert messages(builder.journal()) == [
        "driver of n1 started swap 1.2 under epoch 2, after it had seen epoch 3"
    ]


def test_an_epoch_of_a_step_counts() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=1, epoch=2)
    builder.entry("n1", "driver", "swap", EntryPhase.STEP, op=1, epoch=3, detail="gate: open")
    builder.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    assert messages(builder.journal()) == [
        "driver of n1 started swap 1.2 under epoch 2, after it had seen epoch 3"
    ]


def test_starting_an_older_op_is_a_violation() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=3)
    builder.entry("n1", "driver", "swap", STARTED, op=2)
    assert messages(builder.journal()) == [
        "driver of n1 started swap 1.2 after it had seen the later op 1.3"
    ]


def test_resumed_and_refused_ops_are_no_violation() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    builder.entry("n1", "driver", "swap", EntryPhase.REFUSED, op=1, epoch=1)
    builder.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    assert messages(builder.journal()) == []


def test_boots_and_components_are_judged_separately() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=5, epoch=5)
    builder.entry("n1", "validator", "validate", STARTED, op=1, epoch=4)
    builder.reboot("n1", "another boot")
    builder.entry("n1", "driver", "swap", STARTED, op=6, epoch=4)
    assert messages(builder.journal()) == []


def test_starting_under_the_older_token_of_two_components_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", token=1)
    builder.release_unchanged("n1")
    builder.take_lease("n1", token=2)
    builder.advance(10)
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    builder.entry("n1", "plugin", "quiesce", STARTED, op=1, token=1)
    assert messages(builder.journal()) == [
        "plugin of n1 started quiesce 1.1 under token 1 when the lease had token 2",
        "plugin of n1 started quiesce 1.1 when driver already had token 2",
    ]


def test_an_op_may_end_after_another_component_has_a_newer_token() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", token=1)
    builder.entry("n1", "plugin", "quiesce", STARTED, op=1)
    builder.release_unchanged("n1")
    builder.take_lease("n1", token=2)
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    builder.entry("n1", "plugin", "quiesce", EntryPhase.FINISHED, op=1, token=1)
    assert messages(builder.journal()) == []


@pytest.mark.parametrize("command", ["swap", "install", "validate", "quiesce"])
def test_starting_under_a_token_without_a_lease_is_a_violation(command: str) -> None:
    builder = leased()
    builder.entry("n1", "driver", command, STARTED, op=1, token=2)
    assert messages(builder.journal(), "I2") == [
        f"driver of n1 started {command} 2.1 under token 2 when the lease had token 1"
    ]


@pytest.mark.parametrize(
    ("command", "late"),
    [("swap", True), ("install", True), ("validate", False), ("quiesce", False)],
)
def test_changing_commands_need_the_current_lease(command: str, late: bool) -> None:
    builder = leased()
    builder.release_unchanged("n1")
    builder.advance(1)
    builder.entry("n1", "driver", command, STARTED, op=1)
    assert messages(builder.journal()) == []
    builder.advance(2)
    builder.entry("n1", "driver", command, STARTED, op=2)
    assert messages(builder.journal()) == (
        [f"driver of n1 started {command} 1.2 under token 1 when the node had no lease"]
        if late
        else []
    )


def test_idle_needs_no_lease() -> None:
    builder = leased()
    builder.release_unchanged("n1")
    builder.advance(100)
    builder.entry("n1", "driver", "idle", STARTED, op=1)
    builder.entry("n1", "plugin", "idle", STARTED, op=1, token=0)
    assert messages(builder.journal()) == []


def test_a_node_without_revisions_is_not_judged_by_its_lease() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    strange = builder.journal(revisions=())
    assert messages(strange) == []


def test_refused_ops_do_not_raise_the_order() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", EntryPhase.REFUSED, op=9, epoch=9, token=9)
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    assert messages(builder.journal()) == []


def two_tokens() -> JournalBuilder:
    builder = JournalBuilder("n1")
    builder.take_lease("n1", token=1)
    builder.release_unchanged("n1")
    builder.take_lease("n1", token=2)
    builder.entry("n1", "driver", "validate", STARTED, op=1)
    return builder


def test_one_component_going_back_is_reported_once() -> None:
    builder = two_tokens()
    builder.entry("n1", "driver", "validate", STARTED, op=2, token=1)
    assert messages(builder.journal()) == [
        "driver of n1 started validate 1.2 after it had seen the later op 2.1"
    ]


def test_the_message_names_the_latest_component_under_a_token() -> None:
    builder = two_tokens()
    builder.entry("n1", "plugin", "quiesce", STARTED, op=1)
    builder.entry("n1", "driver", "validate", STARTED, op=2, token=1)
    assert "driver of n1 started validate 1.2 when plugin already had token 2" in (
        messages(builder.journal())
    )


def test_an_op_may_end_after_its_lease() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    builder.release_unchanged("n1")
    builder.advance(100)
    builder.entry("n1", "driver", "swap", EntryPhase.FINISHED, op=1)
    assert messages(builder.journal(), "I2") == []


@pytest.mark.parametrize(("at", "problems"), [(-2.5, 1), (-2.0, 0), (12.0, 0), (12.5, 1)])
def test_clock_skew_is_tolerated(at: float, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.advance(10)
    builder.release_unchanged("n1")
    builder.advance(at - 10)
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    assert len(messages(builder.journal(), "I2")) == problems


@pytest.mark.parametrize(
    ("node", "component", "ago", "problems"),
    [
        ("n1", "driver", 30.0, 0),
        ("n1", "driver", 90.0, 1),
        ("n1", "driver", 0.0, 1),
        ("n1", "validator", 30.0, 1),
        ("n2", "driver", 30.0, 1),
    ],
)
def test_an_agent_that_lost_its_journal_may_restart_its_op_without_a_lease(
    node: str, component: str, ago: float, problems: int
) -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    builder.advance(20)
    builder.release_unchanged("n1")
    builder.advance(60)
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    loss = LostJournal(node_uid=f"uid-{node}", component=component, time=builder.time - ago)
    journal = msgspec.structs.replace(builder.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I2")) == problems


def test_an_agent_that_lost_its_journal_starts_no_other_op_without_a_lease() -> None:
    builder = leased()
    builder.entry("n1", "driver", "swap", STARTED, op=1)
    builder.release_unchanged("n1")
    builder.advance(60)
    loss = LostJournal(node_uid="uid-n1", component="driver", time=builder.time - 30)
    builder.entry("n1", "driver", "swap", STARTED, op=2)
    journal = msgspec.structs.replace(builder.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I2")) == 1
