"""I8: writes that do not count against a target, and journals that begin midway."""

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
from tests.unit.audit.harm_builders import FLEET, fail_upgrade, halted_target, upgrade_successfully

EARLIER: dict[str, Any] = {"target": "t1", "label": "label-1"}


def journal(builder: JournalBuilder, **overrides: Any) -> AuditJournal:
    overrides.setdefault("failure_threshold", 2)
    return builder.journal(max_unavailable="100%", events=None, **overrides)


def i8_violations(builder: JournalBuilder, **overrides: Any) -> list[int]:
    all_of_it = violations_of(journal(builder, **overrides), faults=True)
    return [revision for invariant, _, revision in all_of_it if invariant == "I8"]


def begin(builder: JournalBuilder, name: str, **overrides: Any) -> None:
    builder.take_lease(name, **overrides)
    builder.start(name)
    builder.advance(10)


def outside(builder: JournalBuilder, name: str) -> int:
    builder.records[name] = msgspec.structs.replace(builder.records[name], outside=True)
    return builder.take_lease(name).revision


def lose_lease_and_get_it_back(builder: JournalBuilder, name: str) -> None:
    """Remove and restore a lease as a person."""
    lease = builder.objects["Node", name]["metadata"]["annotations"][LEASE_ANNOTATION]
    builder.annotate(name, LEASE_ANNOTATION, None)
    builder.annotate(name, LEASE_ANNOTATION, lease)


def test_a_lease_restored_by_others_is_no_grant_of_ours() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    builder.take_lease("n1")
    lease = builder.objects["Node", "n1"]["metadata"]["annotations"][LEASE_ANNOTATION]
    builder.annotate("n1", LEASE_ANNOTATION, None)
    builder.take_lease("n2")
    builder.annotate("n1", LEASE_ANNOTATION, lease)
    assert i8_violations(builder) == []
    over = builder.take_lease("n3")
    assert i8_violations(builder) == [over.revision]


def test_a_lease_restored_by_others_outside_the_counts_is_no_grant_of_ours() -> None:
    builder = JournalBuilder(*FLEET)
    fail_upgrade(builder, "n0", **EARLIER)
    fail_upgrade(builder, "n1", **EARLIER)
    outside(builder, "n1")
    lease = builder.objects["Node", "n1"]["metadata"]["annotations"][LEASE_ANNOTATION]
    builder.annotate("n1", LEASE_ANNOTATION, None)
    outside(builder, "n0")
    builder.annotate("n1", LEASE_ANNOTATION, lease)
    assert i8_violations(builder) == []


def test_a_lease_restored_by_others_on_a_halted_target_is_no_grant_of_ours() -> None:
    builder = halted_target()
    lose_lease_and_get_it_back(builder, "n4")
    assert i8_violations(builder) == []


def test_a_driver_label_moved_by_others_is_no_start_and_hides_none() -> None:
    builder = halted_target()
    builder.label("n4", DRIVER_LABEL, LABEL)
    assert i8_violations(builder) == []
    start = builder.start("n4")
    assert i8_violations(builder) == [start.revision]


def test_a_retry_needs_no_new_place_under_a_lowered_allowance() -> None:
    builder = JournalBuilder(*FLEET)
    builder.release(1)
    builder.take_lease("n1")
    builder.take_lease("n2")
    fail_upgrade(builder, "n0")
    builder.release(0)
    builder.advance(200)
    builder.take_lease("n0")
    assert i8_violations(builder) == []
    over = builder.take_lease("n3")
    assert i8_violations(builder) == [over.revision]


def test_a_record_lost_outside_the_counts_keeps_the_earlier_failure() -> None:
    builder = JournalBuilder(*FLEET)
    fail_upgrade(builder, "n0", **EARLIER)
    builder.take_lease("n2")
    outside(builder, "n0")
    builder.annotate("n0", RECORD_ANNOTATION, "garbled")
    builder.annotate("n0", LEASE_ANNOTATION, None)
    builder.annotate("n0", REQUEST_ANNOTATION, "adopt")
    builder.take_lease("n3")
    outside(builder, "n0")
    assert i8_violations(builder) == []


def test_a_node_that_failed_before_its_start_is_counted() -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1", "n2"):
        builder.take_lease(name, **EARLIER)
        builder.fail(name, cause="eviction")
    builder.advance(100)
    builder.take_lease("n0")
    builder.take_lease("n1")
    assert i8_violations(builder) == []
    over = builder.take_lease("n2")
    assert i8_violations(builder) == [over.revision]


def test_a_failure_of_a_node_that_failed_before_its_start_counts() -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        builder.take_lease(name, **EARLIER)
        builder.fail(name, cause="eviction")
    builder.advance(100)
    fail_upgrade(builder, "n0")
    fail_upgrade(builder, "n1")
    builder.advance(10)
    assert i8_violations(builder) == []
    late = builder.take_lease("n2")
    assert i8_violations(builder) == [late.revision]
    assert messages(journal(builder), "I8")[0].startswith("n2 was granted")


def test_an_empty_label_is_never_proven() -> None:
    builder = halted_target()
    builder.node("n10", driver="")
    lease = builder.take_lease("n10", label="")
    start = builder.start("n10")
    assert i8_violations(builder) == [lease.revision, start.revision]


def test_failed_evidence_proves_nothing() -> None:
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0")
    begin(builder, "n1")
    builder.validate("n1")
    builder.finish("n1", evidence=builder.evidence("n1", passed=False))
    builder.take_lease("n2")
    builder.take_lease("n3")
    over = builder.take_lease("n4")
    assert i8_violations(builder) == [over.revision]


def test_a_label_written_by_others_at_rest_is_not_proven() -> None:
    builder = JournalBuilder(*FLEET)
    upgrade_successfully(builder, "n0", **EARLIER)
    builder.label("n0", DRIVER_LABEL, LABEL)
    builder.apply("n0", state("upgrade-done"), record=builder.records["n0"])
    for name in ("n1", "n2", "n3"):
        begin(builder, name)
    builder.fail("n1")
    builder.fail("n2")
    builder.advance(100)
    lease = builder.take_lease("n0", operation=Operation.SAME_LABEL)
    assert lease.revision in i8_violations(builder)


def test_accepted_failures_are_of_one_pool() -> None:
    builder = halted_target()

    def release(rollout: dict[str, Any]) -> None:
        rollout["spec"] = {"release": {"target": TARGET, "failures": 5}}

    builder.rollout(release, pool="nvidiadriver-x", by="kubectl")
    start = builder.start("n4")
    assert i8_violations(builder) == [start.revision]


def test_facts_hold_from_their_exact_time() -> None:
    builder = halted_target()
    start = builder.start("n4")
    members = journal(builder).pools[0]
    accepted = msgspec.structs.replace(members, since=builder.time, accepted={TARGET: 1})
    assert i8_violations(builder, pools=(members, accepted)) == []
    later = msgspec.structs.replace(accepted, since=builder.time + 1)
    assert i8_violations(builder, pools=(members, later)) == [start.revision]


def test_a_release_does_not_reveal_an_unknown_threshold() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    builder.release(1)
    builder.take_lease("n1")
    verdict = judge(journal(builder, pools=(PoolFacts(key="nvidiadriver-x", members=frozenset()),)))
    assert verdict.violations == ()
    assert verdict.not_judged["I8"] == (
        f"the failureThreshold of pool {POOL} when target {TARGET} began"
    )


def known(**failed: list[str]) -> Change:
    def change(rollout: dict[str, Any]) -> None:
        targets = {key: {"threshold": 2, "failed": uids} for key, uids in failed.items()}
        rollout["status"] = {"base": 10, "targets": targets}

    return change


def test_only_failures_of_targets_must_not_be_forgotten() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(annotated("failed", "uid-n0"))
    builder.rollout(annotated("failed", "n0"))
    assert i8_violations(builder) == []


class JournalFromNow:
    """A journal that starts with the present objects and has the later writes."""

    def __init__(self, builder: JournalBuilder) -> None:
        self._builder = builder
        self._start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
        self._first = len(builder.revisions)
        self._pools = journal(builder).pools
        builder.advance(100)

    def journal(self) -> AuditJournal:
        revisions = tuple(self._builder.revisions[self._first :])
        return journal(self._builder, revisions=revisions, start=self._start, pools=self._pools)

    def i8_violations(self) -> list[int]:
        return [
            number for one, _, number in violations_of(self.journal(), faults=True) if one == "I8"
        ]


@pytest.mark.parametrize(("failed", "problems"), [(True, 0), (False, 1)])
def test_a_node_failed_on_an_earlier_target_at_the_start_is_outside_the_counts(
    failed: bool, problems: int
) -> None:
    builder = JournalBuilder(*FLEET)
    (fail_upgrade if failed else upgrade_successfully)(builder, "n0", **EARLIER)
    midway = JournalFromNow(builder)
    builder.take_lease("n2")
    builder.take_lease("n3")
    lease = outside(builder, "n0")
    assert midway.i8_violations() == [lease] * problems


@pytest.mark.parametrize(
    ("ended", "passed", "problems"),
    [("done", True, 0), ("done", False, 2), ("failed", True, 2), ("failed", False, 2)],
)
def test_a_driver_proven_at_the_start_may_be_restarted(
    ended: str, passed: bool, problems: int
) -> None:
    builder = JournalBuilder(*FLEET)
    begin(builder, "n0")
    builder.validate("n0")
    builder.finish("n0", evidence=builder.evidence("n0", passed=passed))
    if ended == "failed":
        builder.fail("n0")
    builder.rollout(known(t2=["uid-n8", "uid-n9"]))
    midway = JournalFromNow(builder)
    lease = builder.take_lease("n0", operation=Operation.SAME_LABEL)
    start = builder.start("n0")
    assert midway.i8_violations() == [lease.revision, start.revision][:problems]


def test_a_node_started_before_the_journal_finishes() -> None:
    builder = JournalBuilder(*FLEET)
    begin(builder, "n0")
    builder.take_lease("n1")
    builder.rollout(known(t2=["uid-n8", "uid-n9"]))
    midway = JournalFromNow(builder)
    builder.validate("n0")
    assert midway.i8_violations() == []
    start = builder.start("n1")
    assert midway.i8_violations() == [start.revision]


def test_a_failure_forgotten_by_the_first_revision_is_reported_once() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(known(t2=["uid-n0"]))
    midway = JournalFromNow(builder)
    write = builder.rollout(known(t2=[]))
    assert midway.i8_violations() == [write.revision]
    assert messages(midway.journal(), "I8") == [
        f"the Rollout of pool {POOL} forgot that uid-n0 failed on target t2"
    ]
