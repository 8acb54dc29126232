"""I2 on machines: what an agent begins is in order, and under the lease of the moment."""

import msgspec
import pytest

from libs.audit import LostJournal
from libs.contracts.journal import EntryPhase
from tests.unit.audit.builders import JournalBuilder, messages

STARTED = EntryPhase.STARTED


def leased() -> JournalBuilder:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.advance(10)
    return story


def test_an_older_epoch() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=1, epoch=3)
    story.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    assert messages(story.journal()) == [
        "driver of n1 started swap 1.2 under epoch 2, after it had seen epoch 3"
    ]


def test_an_epoch_that_was_seen_midway_counts() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=1, epoch=2)
    story.entry("n1", "driver", "swap", EntryPhase.STEP, op=1, epoch=3, detail="gate: open")
    story.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    assert messages(story.journal()) == [
        "driver of n1 started swap 1.2 under epoch 2, after it had seen epoch 3"
    ]


def test_an_older_op() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=3)
    story.entry("n1", "driver", "swap", STARTED, op=2)
    assert messages(story.journal()) == [
        "driver of n1 started swap 1.2 after it had seen the later op 1.3"
    ]


def test_an_op_that_is_resumed_or_refused_is_none() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    story.entry("n1", "driver", "swap", EntryPhase.REFUSED, op=1, epoch=1)
    story.entry("n1", "driver", "swap", STARTED, op=2, epoch=2)
    assert messages(story.journal()) == []


def test_every_boot_and_every_component_begins_for_itself() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=5, epoch=5)
    story.entry("n1", "validator", "validate", STARTED, op=1, epoch=4)
    story.reboot("n1", "another boot")
    story.entry("n1", "driver", "swap", STARTED, op=6, epoch=4)
    assert messages(story.journal()) == []


def test_two_components_under_two_tokens() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1", token=1)
    story.release_unchanged("n1")
    story.take_lease("n1", token=2)
    story.advance(10)
    story.entry("n1", "driver", "swap", STARTED, op=1)
    story.entry("n1", "plugin", "quiesce", STARTED, op=1, token=1)
    assert messages(story.journal()) == [
        "plugin of n1 started quiesce 1.1 under token 1 when the lease had token 2",
        "plugin of n1 started quiesce 1.1 when driver already had token 2",
    ]


def test_what_one_began_before_it_may_end_when_the_other_is_further_on() -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1", token=1)
    story.entry("n1", "plugin", "quiesce", STARTED, op=1)
    story.release_unchanged("n1")
    story.take_lease("n1", token=2)
    story.entry("n1", "driver", "swap", STARTED, op=1)
    story.entry("n1", "plugin", "quiesce", EntryPhase.FINISHED, op=1, token=1)
    assert messages(story.journal()) == []


@pytest.mark.parametrize("command", ["swap", "install", "validate", "quiesce"])
def test_a_token_that_was_never_leased(command: str) -> None:
    story = leased()
    story.entry("n1", "driver", command, STARTED, op=1, token=2)
    assert messages(story.journal(), "I2") == [
        f"driver of n1 started {command} 2.1 under token 2 when the lease had token 1"
    ]


@pytest.mark.parametrize(
    ("command", "late"),
    [("swap", True), ("install", True), ("validate", False), ("quiesce", False)],
)
def test_an_op_that_begins_when_the_lease_has_ended(command: str, late: bool) -> None:
    story = leased()
    story.release_unchanged("n1")
    story.advance(1)
    story.entry("n1", "driver", command, STARTED, op=1)
    assert messages(story.journal()) == []
    story.advance(2)
    story.entry("n1", "driver", command, STARTED, op=2)
    assert messages(story.journal()) == (
        [f"driver of n1 started {command} 1.2 under token 1 when the node had no lease"]
        if late
        else []
    )


def test_idle_needs_no_lease() -> None:
    story = leased()
    story.release_unchanged("n1")
    story.advance(100)
    story.entry("n1", "driver", "idle", STARTED, op=1)
    story.entry("n1", "plugin", "idle", STARTED, op=1, token=0)
    assert messages(story.journal()) == []


def test_a_node_of_which_no_revision_tells_is_not_judged_by_its_lease() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=1)
    strange = story.journal(revisions=())
    assert messages(strange) == []


def test_what_was_refused_was_not_seen() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", EntryPhase.REFUSED, op=9, epoch=9, token=9)
    story.entry("n1", "driver", "swap", STARTED, op=1)
    assert messages(story.journal()) == []


def two_tokens() -> JournalBuilder:
    story = JournalBuilder("n1")
    story.take_lease("n1", token=1)
    story.release_unchanged("n1")
    story.take_lease("n1", token=2)
    story.entry("n1", "driver", "validate", STARTED, op=1)
    return story


def test_one_component_that_goes_back_is_told_once() -> None:
    story = two_tokens()
    story.entry("n1", "driver", "validate", STARTED, op=2, token=1)
    assert messages(story.journal()) == [
        "driver of n1 started validate 1.2 after it had seen the later op 2.1"
    ]


def test_who_began_last_under_a_token_is_the_one_that_another_lags_behind() -> None:
    story = two_tokens()
    story.entry("n1", "plugin", "quiesce", STARTED, op=1)
    story.entry("n1", "driver", "validate", STARTED, op=2, token=1)
    assert "driver of n1 started validate 1.2 when plugin already had token 2" in (
        messages(story.journal())
    )


def test_what_was_begun_under_a_lease_may_end_long_after_it() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=1)
    story.release_unchanged("n1")
    story.advance(100)
    story.entry("n1", "driver", "swap", EntryPhase.FINISHED, op=1)
    assert messages(story.journal(), "I2") == []


@pytest.mark.parametrize(("at", "problems"), [(-2.5, 1), (-2.0, 0), (12.0, 0), (12.5, 1)])
def test_clocks_of_machines_differ_by_so_much(at: float, problems: int) -> None:
    story = JournalBuilder("n1")
    story.take_lease("n1")
    story.advance(10)
    story.release_unchanged("n1")
    story.advance(at - 10)
    story.entry("n1", "driver", "swap", STARTED, op=1)
    assert len(messages(story.journal(), "I2")) == problems


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
def test_who_lost_his_journal_begins_again_what_he_had_begun_under_the_lease(
    node: str, component: str, ago: float, problems: int
) -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=1)
    story.advance(20)
    story.release_unchanged("n1")
    story.advance(60)
    story.entry("n1", "driver", "swap", STARTED, op=1)
    loss = LostJournal(node_uid=f"uid-{node}", component=component, time=story.time - ago)
    journal = msgspec.structs.replace(story.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I2")) == problems


def test_who_lost_his_journal_begins_nothing_else_without_a_lease() -> None:
    story = leased()
    story.entry("n1", "driver", "swap", STARTED, op=1)
    story.release_unchanged("n1")
    story.advance(60)
    loss = LostJournal(node_uid="uid-n1", component="driver", time=story.time - 30)
    story.entry("n1", "driver", "swap", STARTED, op=2)
    journal = msgspec.structs.replace(story.journal(), lost_journals=(loss,))
    assert len(messages(journal, "I2")) == 1
