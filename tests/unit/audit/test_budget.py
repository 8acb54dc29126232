"""I1: writes that make a pool unavailable beyond its limit, and writes that only seem to."""

from typing import Any

import msgspec
import pytest

from libs.audit import PoolFacts, judge
from libs.contracts.journal import Verb
from libs.contracts.node import DRIVER_LABEL, Operation
from tests.unit.audit.builders import (
    POOL,
    TARGET,
    JournalBuilder,
    cordoned,
    leased,
    messages,
    violations_of,
)

FLEET = tuple(f"n{number}" for number in range(8))


def i1_violations(journal: Any) -> list[int]:
    return [revision for invariant, _, revision in violations_of(journal) if invariant == "I1"]


def facts(builder: JournalBuilder, **overrides: Any) -> PoolFacts:
    base = builder.journal(failure_threshold=100).pools[0]
    return msgspec.structs.replace(base, **overrides)


@pytest.mark.parametrize(
    ("limit", "allowed"), [(0, 0), (1, 1), ("1%", 1), ("25%", 2), ("26%", 3), (5, 5), ("100%", 8)]
)
def test_every_lease_beyond_the_limit_is_a_violation(limit: int | str, allowed: int) -> None:
    builder = JournalBuilder(*FLEET)
    leases = [builder.take_lease(name).revision for name in FLEET]
    journal = builder.journal(max_unavailable=limit, failure_threshold=100)
    assert i1_violations(journal) == leases[allowed:]


def test_the_message_names_node_pool_limit_and_revision() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    builder.take_lease("n1")
    (message,) = messages(builder.journal(failure_threshold=100), "I1")
    assert message == (
        f"n1 was made unavailable, which makes 2 of pool {POOL}; its limit is 1"
        " (decided on revision 109)"
    )


def test_nodes_cordoned_by_people_count() -> None:
    builder = JournalBuilder(*FLEET)
    builder.cordon("n7")
    lease = builder.take_lease("n0")
    assert i1_violations(builder.journal()) == [lease.revision]


def test_failed_nodes_count() -> None:
    builder = JournalBuilder(*FLEET)
    builder.lease_and_start("n7")
    builder.fail("n7", cordoned(None))
    lease = builder.take_lease("n0")
    assert i1_violations(builder.journal(failure_threshold=2)) == [lease.revision]


def test_nodes_known_to_lack_a_driver_count() -> None:
    builder = JournalBuilder(*FLEET)
    lease = builder.take_lease("n0")
    shut = facts(builder, max_unavailable=1, driverless=frozenset({"uid-n7"}))
    assert i1_violations(builder.journal(pools=(shut,))) == [lease.revision]


def test_a_node_with_a_doubtful_driver_does_not_count() -> None:
    builder = JournalBuilder(*FLEET)
    doubt = facts(builder, max_unavailable=1, doubtful=frozenset({"uid-n1"}))
    builder.take_lease("n0")
    builder.take_lease("n1")
    over = builder.take_lease("n2")
    assert i1_violations(builder.journal(pools=(doubt,))) == [over.revision]


def test_a_node_that_expects_no_driver_is_available_without_one() -> None:
    builder = JournalBuilder("n0", "n1")
    builder.label("n1", DRIVER_LABEL, None)
    shut = facts(builder, max_unavailable=1, driverless=frozenset({"uid-n1"}))
    builder.take_lease("n0")
    assert i1_violations(builder.journal(pools=(shut,))) == []
    builder.lease_and_start("n1", operation=Operation.BRING_UP, cordon=False)
    builder.release_unchanged("n0")
    builder.take_lease("n0")
    assert i1_violations(builder.journal(pools=(shut,))) == []


@pytest.mark.parametrize("by", ["cordon", "shut", "failed"])
def test_a_node_that_is_already_unavailable_costs_nothing(by: str) -> None:
    builder = JournalBuilder(*FLEET)
    if by == "cordon":
        builder.cordon("n1")
    if by == "failed":
        builder.lease_and_start("n1")
        builder.fail("n1")
    builder.take_lease("n1")
    shut = frozenset({"uid-n1"}) if by == "shut" else frozenset[str]()
    pools = (facts(builder, max_unavailable=0 if by != "failed" else 1, driverless=shut),)
    assert i1_violations(builder.journal(pools=pools)) == []


def test_a_node_not_ready_before_the_snapshot_counts() -> None:
    builder = JournalBuilder(*FLEET)
    builder.ready("n7", "False")
    lease = builder.take_lease("n0")
    assert i1_violations(builder.journal()) == [lease.revision]


@pytest.mark.parametrize(("ready", "problems"), [("False", 1), ("True", 0)])
def test_a_node_not_ready_at_the_start_of_the_journal_counts(ready: str, problems: int) -> None:
    builder = JournalBuilder(*FLEET)
    builder.ready("n7", ready)
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    pools = builder.journal().pools
    begun = len(builder.revisions)
    builder.take_lease("n0")
    later = builder.journal(revisions=tuple(builder.revisions[begun:]), start=start, pools=pools)
    assert len(i1_violations(later)) == problems


def test_a_node_that_turns_not_ready_after_the_snapshot_does_not_count() -> None:
    builder = JournalBuilder(*FLEET)
    seen = {"nodes": str(builder.revision)}
    builder.ready("n7", "False")
    builder.ready("n6", "Unknown")
    builder.cordon("n5")
    builder.take_lease("n0", seen=seen)
    assert violations_of(builder.journal()) == []


def test_a_node_deleted_after_the_snapshot_does_not_count() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n7")
    seen = {"nodes": str(builder.revision)}
    builder.cordon("n6")
    builder.delete("Node", "n7")
    builder.take_lease("n0", seen=seen)
    assert i1_violations(builder.journal(max_unavailable=1)) == []
    lease = builder.take_lease("n1")
    assert i1_violations(builder.journal(max_unavailable=1)) == [lease.revision]


def test_deletions_after_the_snapshot_do_not_lower_the_limit() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    seen = {"nodes": str(builder.revision)}
    for name in ("n4", "n5", "n6", "n7"):
        builder.delete("Node", name)
    builder.take_lease("n1", seen=seen)
    assert i1_violations(builder.journal(max_unavailable="25%", failure_threshold=100)) == []
    again = builder.take_lease("n2")
    assert i1_violations(builder.journal(max_unavailable="25%", failure_threshold=100)) == [
        again.revision
    ]


def test_our_own_grants_after_the_snapshot_count() -> None:
    builder = JournalBuilder(*FLEET)
    seen = {"nodes": str(builder.revision)}
    builder.take_lease("n0", seen=seen)
    lease = builder.take_lease("n1", seen=seen)
    assert i1_violations(builder.journal(failure_threshold=100)) == [lease.revision]


def test_our_own_releases_after_the_snapshot_count() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    seen = {"nodes": str(builder.revision)}
    builder.release_unchanged("n0")
    builder.take_lease("n1", seen=seen)
    assert violations_of(builder.journal()) == []


def test_a_cordon_of_ours_without_a_lease_counts() -> None:
    builder = JournalBuilder(*FLEET)
    builder.cordon("n7")
    write = builder.apply("n0", cordoned(True))
    assert i1_violations(builder.journal()) == [write.revision]


def test_cordoning_a_node_in_flight_again_costs_nothing() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    builder.cordon("n1")
    builder.cordon("n0", False)
    builder.apply("n0", cordoned(True), record=builder.records["n0"])
    assert violations_of(builder.journal()) == []


def test_bring_up_and_validation_cost_nothing() -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        builder.take_lease(name, operation=Operation.BRING_UP, cordon=False)
    builder.take_lease("n2", operation=Operation.VALIDATE, cordon=False)
    assert i1_violations(builder.journal(max_unavailable=0, failure_threshold=100)) == []


def test_a_failure_does_not_count_as_lowering() -> None:
    builder = JournalBuilder(*FLEET)
    builder.lease_and_start("n0", operation=Operation.BRING_UP, cordon=False)
    builder.cordon("n1")
    builder.fail("n0")
    assert i1_violations(builder.journal()) == []


def test_the_former_limit_holds_until_it_is_stale() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    lowered = builder.time + 10
    builder.advance(10)
    builder.take_lease("n1")
    builder.advance(91)
    late = builder.take_lease("n2")
    before = facts(builder, max_unavailable=2)
    after = facts(builder, max_unavailable=1, since=lowered)
    assert i1_violations(builder.journal(pools=(after, before))) == [late.revision]


def test_the_base_bounds_the_limit() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    lease = builder.take_lease("n1")
    pool = facts(builder, max_unavailable="25%", base=4)
    assert i1_violations(builder.journal(pools=(pool,))) == [lease.revision]


@pytest.mark.parametrize(("base", "allowed"), [(4, 1), (8, 2), (80, 2)])
def test_the_base_of_the_rollout_bounds_the_limit_and_never_raises_it(
    base: int, allowed: int
) -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(lambda rollout: rollout.update(status={"base": base}))
    leases = [builder.take_lease(name).revision for name in ("n0", "n1", "n2")]
    journal = builder.journal(max_unavailable="25%", failure_threshold=100)
    assert i1_violations(journal) == leases[allowed:]


def test_each_pool_has_its_own_limit() -> None:
    builder = JournalBuilder(*FLEET)
    builder.cordon("n7")
    lease = builder.take_lease("n0")
    other = facts(builder, key="nvidiadriver-b", members=frozenset({"uid-n6", "uid-n7"}))
    mine = facts(builder, members=frozenset({"uid-n0", "uid-n1"}), max_unavailable=1)
    assert i1_violations(builder.journal(pools=(mine, other))) == []
    assert i1_violations(builder.journal()) == [lease.revision]


def test_without_given_members_records_name_the_pool() -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        builder.take_lease(name, cordon=False)
    lease = builder.revisions[-1]
    pool = facts(builder, members=None, max_unavailable="50%", base=None)
    assert i1_violations(builder.journal(pools=(pool,))) == [lease.revision]


def test_a_node_stops_counting_when_it_leaves_the_pool() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0", cordon=False)
    builder.release_unchanged("n0")
    builder.cordon("n0")
    builder.advance(1)
    left = builder.write("Pod", "p0", lambda pod: None, manager="kubelet", verb=Verb.CREATE)
    builder.advance(1)
    builder.write("Pod", "p1", lambda pod: None, manager="kubelet", verb=Verb.CREATE)
    lease = builder.take_lease("n1", seen={"nodes": str(left.revision)})
    both = facts(builder, members=frozenset({"uid-n0", "uid-n1"}), max_unavailable=1)
    alone = msgspec.structs.replace(both, members=frozenset({"uid-n1"}), since=left.time)
    assert i1_violations(builder.journal(pools=(both,))) == [lease.revision]
    assert i1_violations(builder.journal(pools=(both, alone))) == []
    assert i1_violations(
        builder.journal(pools=(both, alone, msgspec.structs.replace(both, since=left.time)))
    ) == [lease.revision]


def test_a_pool_without_known_limits_is_not_judged() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    verdict = judge(builder.journal(pools=()))
    assert verdict.violations == ()
    assert verdict.not_judged == {
        "I1": f"the limits of pool {POOL}",
        "I8": f"the failureThreshold of pool {POOL} when target {TARGET} began",
    }


def test_no_upgrade_starts_on_a_not_ready_node() -> None:
    builder = JournalBuilder(*FLEET)
    builder.ready("n0", "Unknown")
    lease = builder.take_lease("n0")
    assert messages(builder.journal(), "I1") == ["n0 was leased while it was NotReady"]
    assert i1_violations(builder.journal()) == [lease.revision]


def test_a_node_that_turns_not_ready_under_its_lease_continues() -> None:
    builder = JournalBuilder(*FLEET)
    builder.take_lease("n0")
    builder.ready("n0", "Unknown")
    builder.start("n0")
    assert violations_of(builder.journal()) == []


def test_a_validation_may_start_on_a_not_ready_node() -> None:
    builder = JournalBuilder(*FLEET)
    builder.ready("n0", "Unknown")
    builder.take_lease("n0", operation=Operation.VALIDATE, cordon=False)
    assert violations_of(builder.journal()) == []


def test_a_failure_that_cordons_does_not_count_as_lowering() -> None:
    builder = JournalBuilder(*FLEET)
    builder.cordon("n1")
    builder.lease_and_start("n0", operation=Operation.BRING_UP, cordon=False)
    builder.fail("n0", cordoned(True))
    assert i1_violations(builder.journal()) == []


def test_a_write_without_seen_revisions_is_judged_at_the_position_before() -> None:
    builder = JournalBuilder(*FLEET)
    builder.cordon("n7")
    builder.take_lease("n0", seen={})
    assert messages(builder.journal(), "I1") == [
        (
            f"n0 was made unavailable, which makes 2 of pool {POOL}; its limit is 1"
            " (decided on revision unknown)"
        )
    ]


def test_a_node_without_a_known_pool_is_not_judged() -> None:
    builder = JournalBuilder(*FLEET)
    builder.apply("n0", cordoned(True))
    verdict = judge(builder.journal(pools=()))
    assert verdict.not_judged["I1"] == "the limits of pool without a name"


def test_a_node_cordoned_in_the_snapshot_counts_once() -> None:
    builder = JournalBuilder(*FLEET)
    builder.cordon("n0")
    seen = {"nodes": str(builder.revision)}
    builder.cordon("n0", False)
    builder.take_lease("n0", seen=seen)
    assert violations_of(builder.journal()) == []


@pytest.mark.parametrize("at_the_start", [False, True])
def test_a_node_belongs_to_the_pool_of_its_record_from_the_start(
    at_the_start: bool,
) -> None:
    names = FLEET[:4]
    builder = JournalBuilder(*names)
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    leases = [builder.take_lease(name, cordon=False).revision for name in names]
    pool = facts(builder, members=None, max_unavailable="50%")
    journal = builder.journal(pools=(pool,))
    if at_the_start:
        later = tuple(builder.revisions[len(names) :])
        journal = msgspec.structs.replace(journal, revisions=later, start=start)
    assert i1_violations(journal) == leases[2:]


def test_a_node_stays_in_the_pool_of_its_first_record_until_the_next() -> None:
    builder = JournalBuilder("n0", "n1")
    builder.take_lease("n0")
    builder.release_unchanged("n0")
    builder.cordon("n0")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in builder.objects.items())
    begun = len(builder.revisions)
    over = builder.take_lease("n1")
    builder.take_lease("n0", pool="nvidiadriver-x")
    pool = facts(builder, members=None, max_unavailable=1)
    other = facts(builder, key="nvidiadriver-x", members=None)
    revisions = tuple(builder.revisions[begun:])
    assert i1_violations(
        builder.journal(pools=(pool, other), revisions=revisions, start=start)
    ) == [over.revision]


def test_a_node_outside_the_members_counts_only_under_its_lease() -> None:
    builder = JournalBuilder("n0", "n1")
    builder.take_lease("n0")
    builder.release_unchanged("n0")
    builder.cordon("n0")
    builder.take_lease("n1")
    pool = facts(builder, members=frozenset({"uid-n1"}), max_unavailable=1)
    assert i1_violations(builder.journal(pools=(pool,))) == []


def test_a_lease_without_a_record_counts_in_the_given_pool() -> None:
    builder = JournalBuilder("n0", "n1")
    builder.apply("n0", leased(builder.lease("n0", 1)))
    over = builder.take_lease("n1")
    assert i1_violations(builder.journal()) == [over.revision]


@pytest.mark.parametrize(("left_at", "problems"), [(10, 1), (1, 0)])
def test_a_node_counts_until_the_moment_it_leaves_the_pool(left_at: float, problems: int) -> None:
    builder = JournalBuilder("n0", "n1")
    builder.cordon("n0")
    begun = builder.time
    builder.advance(1)
    builder.take_lease("n1")
    builder.advance(20)
    builder.cordon("n1", False)
    both = facts(builder, max_unavailable=1)
    alone = msgspec.structs.replace(both, members=frozenset({"uid-n1"}), since=begun + left_at)
    assert len(i1_violations(builder.journal(pools=(both, alone)))) == problems


@pytest.mark.parametrize(
    ("got", "others", "problems"),
    [
        (frozenset({"uid-n7"}), "", 1),
        (frozenset[str](), "", 0),
        (frozenset[str](), "n7 cordoned", 1),
        (frozenset[str](), "n6 cordoned", 1),
        (frozenset[str](), "n7 deleted", 0),
        (frozenset({"uid-of-nobody"}), "", 0),
    ],
)
def test_a_node_that_got_its_driver_after_the_snapshot_does_not_count(
    got: frozenset[str], others: str, problems: int
) -> None:
    builder = JournalBuilder(*FLEET)
    builder.label("n7", DRIVER_LABEL, "some", by="sluice-scheduler")
    if others.endswith("cordoned"):
        builder.cordon(others.split(maxsplit=1)[0])
    shut = facts(builder, max_unavailable=1, driverless=frozenset({"uid-n7", "uid-of-nobody"}))
    builder.advance(5)
    later = facts(builder, max_unavailable=1, driverless=got, since=builder.time)
    seen = {"nodes": str(builder.revision)}
    builder.advance(5)
    if others == "n7 deleted":
        builder.delete("Node", "n7")
    builder.take_lease("n0", seen=seen)
    assert len(i1_violations(builder.journal(pools=(shut, later)))) == problems
