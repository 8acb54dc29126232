"""I8: whose writes are held against a target, and what a journal that begins midway knows of it."""

from typing import Any

import msgspec
import pytest

from libs.audit import AuditJournal, PoolFacts, judge
from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    Operation,
)
from tests.unit.audit.builders import (
    LABEL,
    POOL,
    TARGET,
    Change,
    JournalBuilder,
    annotated,
    messages,
    state,
    violations_of,
)
from tests.unit.audit.harm_builders import FLEET, halted, harm, prove

EARLIER: dict[str, Any] = {"target": "t1", "label": "label-1"}


def journal(story: JournalBuilder, **otherwise: Any) -> AuditJournal:
    otherwise.setdefault("failure_threshold", 2)
    return story.journal(max_unavailable="100%", events=None, **otherwise)


def of_i8(story: JournalBuilder, **otherwise: Any) -> list[int]:
    all_of_it = violations_of(journal(story, **otherwise), faults=True)
    return [revision for invariant, _, revision in all_of_it if invariant == "I8"]


def begin(story: JournalBuilder, name: str, **otherwise: Any) -> None:
    story.take_lease(name, **otherwise)
    story.start(name)
    story.advance(10)


def outside(story: JournalBuilder, name: str) -> int:
    story.records[name] = msgspec.structs.replace(story.records[name], outside=True)
    return story.take_lease(name).revision


def lose_lease_and_get_it_back(story: JournalBuilder, name: str) -> None:
    """Somebody takes it away and thinks better of it."""
    lease = story.objects["Node", name]["metadata"]["annotations"][LEASE_ANNOTATION]
    story.annotate(name, LEASE_ANNOTATION, None)
    story.annotate(name, LEASE_ANNOTATION, lease)


# What others write is no grant and no start of ours.


def test_a_lease_that_somebody_puts_back_is_not_granted_beyond_the_allowance_by_us() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    story.take_lease("n1")
    lease = story.objects["Node", "n1"]["metadata"]["annotations"][LEASE_ANNOTATION]
    story.annotate("n1", LEASE_ANNOTATION, None)
    story.take_lease("n2")
    story.annotate("n1", LEASE_ANNOTATION, lease)
    assert of_i8(story) == []
    over = story.take_lease("n3")
    assert of_i8(story) == [over.revision]


def test_nor_beside_another_node_that_had_failed_before() -> None:
    story = JournalBuilder(*FLEET)
    harm(story, "n0", **EARLIER)
    harm(story, "n1", **EARLIER)
    outside(story, "n1")
    lease = story.objects["Node", "n1"]["metadata"]["annotations"][LEASE_ANNOTATION]
    story.annotate("n1", LEASE_ANNOTATION, None)
    outside(story, "n0")
    story.annotate("n1", LEASE_ANNOTATION, lease)
    assert of_i8(story) == []


def test_nor_on_a_target_that_is_halted() -> None:
    story = halted()
    lose_lease_and_get_it_back(story, "n4")
    assert of_i8(story) == []


def test_a_driver_label_that_somebody_moves_is_no_start_of_ours_and_hides_none() -> None:
    story = halted()
    story.label("n4", DRIVER_LABEL, LABEL)
    assert of_i8(story) == []
    start = story.start("n4")
    assert of_i8(story) == [start.revision]


def test_a_retry_takes_no_further_place_when_the_allowance_was_lowered() -> None:
    story = JournalBuilder(*FLEET)
    story.release(1)
    story.take_lease("n1")
    story.take_lease("n2")
    harm(story, "n0")
    story.release(0)
    story.advance(200)
    story.take_lease("n0")
    assert of_i8(story) == []
    over = story.take_lease("n3")
    assert of_i8(story) == [over.revision]


def test_a_record_that_is_lost_outside_the_counts_leaves_the_earlier_failure_known() -> None:
    story = JournalBuilder(*FLEET)
    harm(story, "n0", **EARLIER)
    story.take_lease("n2")
    outside(story, "n0")
    story.annotate("n0", RECORD_ANNOTATION, "garbled")
    story.annotate("n0", LEASE_ANNOTATION, None)
    story.annotate("n0", REQUEST_ANNOTATION, "adopt")
    story.take_lease("n3")
    outside(story, "n0")
    assert of_i8(story) == []


def test_who_failed_on_an_earlier_target_before_his_start_is_in_the_counts_as_he_says() -> None:
    story = JournalBuilder(*FLEET)
    for name in ("n0", "n1", "n2"):
        story.take_lease(name, **EARLIER)
        story.fail(name, cause="eviction")
    story.advance(100)
    story.take_lease("n0")
    story.take_lease("n1")
    assert of_i8(story) == []
    over = story.take_lease("n2")
    assert of_i8(story) == [over.revision]


def test_and_its_failure_counts_there() -> None:
    story = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        story.take_lease(name, **EARLIER)
        story.fail(name, cause="eviction")
    story.advance(100)
    harm(story, "n0")
    harm(story, "n1")
    story.advance(10)
    assert of_i8(story) == []
    late = story.take_lease("n2")
    assert of_i8(story) == [late.revision]
    assert messages(journal(story), "I8")[0].startswith("n2 was granted")


def test_who_runs_nothing_was_not_proven_with_it() -> None:
    story = halted()
    story.node("n10", driver="")
    lease = story.take_lease("n10", label="")
    start = story.start("n10")
    assert of_i8(story) == [lease.revision, start.revision]


# What proves a target, and what does not.


def test_a_node_that_is_done_on_evidence_that_did_not_pass_proves_nothing() -> None:
    story = JournalBuilder(*FLEET)
    prove(story, "n0")
    begin(story, "n1")
    story.validate("n1")
    story.finish("n1", evidence=story.evidence("n1", passed=False))
    story.take_lease("n2")
    story.take_lease("n3")
    over = story.take_lease("n4")
    assert of_i8(story) == [over.revision]


def test_a_label_that_somebody_wrote_at_rest_is_not_what_the_node_was_proven_with() -> None:
    story = JournalBuilder(*FLEET)
    prove(story, "n0", **EARLIER)
    story.label("n0", DRIVER_LABEL, LABEL)
    story.apply("n0", state("upgrade-done"), record=story.records["n0"])
    for name in ("n1", "n2", "n3"):
        begin(story, name)
    story.fail("n1")
    story.fail("n2")
    story.advance(100)
    lease = story.take_lease("n0", operation=Operation.SAME_LABEL)
    assert lease.revision in of_i8(story)


# What people accept, for which pool and from when on.


def test_failures_that_are_accepted_in_another_pool_end_no_halt_here() -> None:
    story = halted()

    def release(rollout: dict[str, Any]) -> None:
        rollout["spec"] = {"release": {"target": TARGET, "failures": 5}}

    story.rollout(release, pool="nvidiadriver-x", by="kubectl")
    start = story.start("n4")
    assert of_i8(story) == [start.revision]


def test_facts_hold_from_their_very_moment_on() -> None:
    story = halted()
    start = story.start("n4")
    members = journal(story).pools[0]
    accepted = msgspec.structs.replace(members, since=story.time, accepted={TARGET: 1})
    assert of_i8(story, pools=(members, accepted)) == []
    later = msgspec.structs.replace(accepted, since=story.time + 1)
    assert of_i8(story, pools=(members, later)) == [start.revision]


def test_a_release_in_a_pool_whose_threshold_nobody_knows_makes_it_no_better_known() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    story.release(1)
    story.take_lease("n1")
    verdict = judge(journal(story, pools=(PoolFacts(key="nvidiadriver-x", members=frozenset()),)))
    assert verdict.violations == ()
    assert verdict.not_judged["I8"] == (
        f"the failureThreshold of pool {POOL} when target {TARGET} began"
    )


# A journal that begins midway.


def known(**failed: list[str]) -> Change:
    def change(rollout: dict[str, Any]) -> None:
        targets = {key: {"threshold": 2, "failed": uids} for key, uids in failed.items()}
        rollout["status"] = {"base": 10, "targets": targets}

    return change


def test_what_a_rollout_forgets_beside_its_targets_is_no_failure() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(annotated("failed", "uid-n0"))
    story.rollout(annotated("failed", "n0"))
    assert of_i8(story) == []


class JournalFromNow:
    """The objects as they are now, and all that is written from now on."""

    def __init__(self, story: JournalBuilder) -> None:
        self._story = story
        self._start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
        self._begun = len(story.revisions)
        self._pools = journal(story).pools
        story.advance(100)

    def journal(self) -> AuditJournal:
        revisions = tuple(self._story.revisions[self._begun :])
        return journal(self._story, revisions=revisions, start=self._start, pools=self._pools)

    def of_i8(self) -> list[int]:
        return [
            number for one, _, number in violations_of(self.journal(), faults=True) if one == "I8"
        ]


@pytest.mark.parametrize(("failed", "problems"), [(True, 0), (False, 1)])
def test_who_had_failed_on_an_earlier_target_at_the_start_is_outside_the_counts(
    failed: bool, problems: int
) -> None:
    story = JournalBuilder(*FLEET)
    (harm if failed else prove)(story, "n0", **EARLIER)
    midway = JournalFromNow(story)
    story.take_lease("n2")
    story.take_lease("n3")
    lease = outside(story, "n0")
    assert midway.of_i8() == [lease] * problems


@pytest.mark.parametrize(
    ("ended", "passed", "problems"),
    [("done", True, 0), ("done", False, 2), ("failed", True, 2), ("failed", False, 2)],
)
def test_what_a_node_runs_at_the_start_may_be_restarted_if_it_was_proven(
    ended: str, passed: bool, problems: int
) -> None:
    story = JournalBuilder(*FLEET)
    begin(story, "n0")
    story.validate("n0")
    story.finish("n0", evidence=story.evidence("n0", passed=passed))
    if ended == "failed":
        story.fail("n0")
    story.rollout(known(t2=["uid-n8", "uid-n9"]))
    midway = JournalFromNow(story)
    lease = story.take_lease("n0", operation=Operation.SAME_LABEL)
    start = story.start("n0")
    assert midway.of_i8() == [lease.revision, start.revision][:problems]


def test_who_was_started_before_the_journal_finishes() -> None:
    story = JournalBuilder(*FLEET)
    begin(story, "n0")
    story.take_lease("n1")
    story.rollout(known(t2=["uid-n8", "uid-n9"]))
    midway = JournalFromNow(story)
    story.validate("n0")
    assert midway.of_i8() == []
    start = story.start("n1")
    assert midway.of_i8() == [start.revision]


def test_a_failure_that_the_first_revision_forgets_is_said_once() -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(known(t2=["uid-n0"]))
    midway = JournalFromNow(story)
    write = story.rollout(known(t2=[]))
    assert midway.of_i8() == [write.revision]
    assert messages(midway.journal(), "I8") == [
        f"the Rollout of pool {POOL} forgot that uid-n0 failed on target t2"
    ]
