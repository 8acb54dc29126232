"""Clocks that are put back within a journal: nothing is accused for a time alone."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.audit import AuditResult, judge
from libs.audit.clocks import SKEW_SECONDS, UNSEEN_SECONDS, ClockSteps, clocks_ahead
from libs.contracts.events import Event, EvictionEvent
from libs.contracts.journal import Revision, Verb
from tests.unit.audit.builders import JournalBuilder, cases, messages

HOUR = 3600.0
SHOWN = "; advance 1; ready n2 status=True"
"""A write that shows the time of the server."""


class PutBackBuilder(JournalBuilder):
    """All clocks go back by an hour before the record of this number."""

    def __init__(self, *nodes: str, before: int) -> None:
        self.until_step = before
        super().__init__(*nodes)

    def _step(self) -> None:
        self.until_step -= 1
        if self.until_step == 0:
            self.time -= HOUR

    def write(self, *arguments: Any, **options: Any) -> Revision:
        self._step()
        return super().write(*arguments, **options)

    def entry(self, *arguments: Any, **options: Any) -> None:
        self._step()
        super().entry(*arguments, **options)


GOOD = (
    "upgrade; upgrade n2; upgrade n1",
    (
        "require; lease; op plugin quiesce; advance 60; hold_device until=-1; start;"
        "op driver swap unload:ok; advance 60; prove; finish; advance 60; upgrade n2"
    ),
    (
        "lease; op plugin quiesce; advance 20; release; advance 60; lose_record; ask adopt;"
        "advance 1; lease token=2; op plugin quiesce; start; op driver swap unload:ok; prove;"
        "finish; release; advance 20; ask adopt; lease token=3; op plugin quiesce"
    ),
    (
        "lease; started driver swap epoch=2; advance 10; finished driver swap epoch=2;"
        "op validator validate op=2; advance 10; entry step driver swap op=2 epoch=3;"
        "entry step driver validate op=3 epoch=3; advance 10;"
        "entry step validator validate op=3 epoch=3; advance 10"
    ),
)


@pytest.mark.parametrize("story", GOOD)
def test_a_clock_that_is_put_back_accuses_nobody(story: str) -> None:
    whole = PutBackBuilder("n1", "n2", before=0).play(story + SHOWN)
    assert judge(whole.journal()) == AuditResult()
    for before in range(1, -whole.until_step + 1):
        builder = PutBackBuilder("n1", "n2", before=before).play(story + SHOWN)
        assert judge(builder.journal()).violations == (), before


@cases(
    "story invariant problem",
    two_unavailable=("lease n2; {back}; lease", "I1", "its limit is 1"),
    an_older_op=("lease; started op=2; {back}; started", "I2", "after it had seen the later op"),
    a_lease_replaced=("lease; {back}; lease", "I2", "which was still held"),
    no_proof=("begin_upgrade; {back}; finish token=0", "I3", "token 1 needs new evidence"),
    busy=("lease; op driver swap unload:busy; {back}", "I5", "the kernel had answered busy"),
    ended_again=("lease; started; finished; {back}; finished", "I11", "ended again"),
)
def test_what_has_an_order_is_judged_by_it(story: str, invariant: str, problem: str) -> None:
    back = f"advance -{HOUR}; ready n2 status=True"
    builder = JournalBuilder("n1", "n2").play(story.format(back=back))
    assert any(problem in each for each in messages(builder.journal(), invariant))


def test_a_wait_may_have_begun_before_the_clock_was_put_back() -> None:
    builder = JournalBuilder("n1")
    began = builder.time
    builder.play(f"advance 10; cordon; advance -{HOUR}; uncordon")
    builder.wait_event("n1", since=began)
    assert messages(builder.journal(), "I9") == []


def test_only_times_that_the_step_hides_are_not_judged() -> None:
    late = f"lease; advance 10; release; advance 7200; started {SHOWN}"
    builder = JournalBuilder("n1", "n2").play(f"{late}; advance -{HOUR} {SHOWN}")
    assert len(messages(builder.journal(), "I2")) == 1
    builder.play(f"advance -{HOUR} {SHOWN}")
    assert messages(builder.journal(), "I2") == []


def test_a_clock_is_put_back_for_its_own_node_only() -> None:
    builder = JournalBuilder("n1", "n2").play("lease; started; lease n2; started name=n2")
    builder.play("advance -100; entry finished; advance 100; entry finished name=n2")
    clocks = ClockSteps(builder.revisions, builder.entries)
    assert clocks.put_back("uid-n1") == 100 + UNSEEN_SECONDS
    assert clocks.put_back("uid-n2") == clocks.put_back() == 0
    assert clocks.skew("uid-n2") == SKEW_SECONDS
    unjudged = judge(builder.journal()).not_judged
    apart = "the order of what is less than 160 s apart: a clock is wrong, or was put back"
    assert unjudged == dict.fromkeys(("I1", "I2", "I3", "I5", "I10"), apart)
    builder.play(f"advance -{SKEW_SECONDS}; cordon")
    assert ClockSteps(builder.revisions, ()).put_back() == 0


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_machine_whose_clock_is_wrong_is_not_accused(ahead: float) -> None:
    builder = JournalBuilder("n1").play("lease; op plugin quiesce; start; op driver swap unload:ok")
    builder.play("prove; finish; release; advance 60; cordon")
    wrong = [replace(entry, time=entry.time + ahead) for entry in builder.entries]
    journal = builder.journal(entries=tuple(wrong))
    assert judge(journal).violations
    known = replace(journal, clocks_ahead={"uid-n1": ahead})
    assert judge(known).violations == ()


def test_the_clocks_of_machines_are_told_by_when_their_events_were_stored() -> None:
    def event(uid: str, at: float, writer: str = "driver") -> Event:
        body = EvictionEvent(namespace="a", pod="p", pod_uid="u", answer="evicted")
        return Event.of(body, id="x", at=at, writer=writer, node="n", node_uid=uid, message="m")

    late = (1_500.0, event("ahead", 1_600.0))
    stored = (
        (1_000.0, event("right", 999.0)),
        (1_600.0, event("right", 1_000.0)),
        (1_000.0, event("ahead", 1_300.0)),
        late,
        (1_000.0, event("behind", 900.0)),
    )
    assert clocks_ahead(stored) == {"ahead": 300.0, "behind": -100.0}
    of_leader = (1_000.0, event("", 1_300.0, writer="scheduler"))  # NATS is 300 s behind
    assert clocks_ahead((*stored, of_leader)) == {"right": -301.0, "behind": -400.0}


def test_a_write_that_changes_nothing_shows_no_step_back() -> None:
    write = Revision(
        revision=5, time=10.0, user="u", verb=Verb.PATCH, code=200, kind="Node", name="n1",
        changed={"spec.a": (None, 1)},
    )  # fmt: skip
    same = replace(write, time=write.time + 9.0, changed={})
    after = replace(write, revision=write.revision + 1, time=write.time + 1.0)
    assert ClockSteps([write, same, after], []).put_back() == 0.0
    assert ClockSteps([replace(write, time=same.time), after], []).put_back() > UNSEEN_SECONDS
