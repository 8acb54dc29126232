"""I1: who was made unavailable beyond the limit, and who only seems so."""

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


def of_i1(journal: Any) -> list[int]:
    return [revision for invariant, _, revision in violations_of(journal) if invariant == "I1"]


def facts(story: JournalBuilder, **otherwise: Any) -> PoolFacts:
    base = story.journal(failure_threshold=100).pools[0]
    return msgspec.structs.replace(base, **otherwise)


@pytest.mark.parametrize(
    ("limit", "allowed"), [(0, 0), (1, 1), ("1%", 1), ("25%", 2), ("26%", 3), (5, 5), ("100%", 8)]
)
def test_the_first_lease_beyond_the_limit_and_every_later_one(
    limit: int | str, allowed: int
) -> None:
    story = JournalBuilder(*FLEET)
    leases = [story.take_lease(name).revision for name in FLEET]
    journal = story.journal(max_unavailable=limit, failure_threshold=100)
    assert of_i1(journal) == leases[allowed:]


def test_it_says_what_where_and_why() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    story.take_lease("n1")
    (message,) = messages(story.journal(failure_threshold=100), "I1")
    assert message == (
        f"n1 was made unavailable, which makes 2 of pool {POOL}; its limit is 1"
        " (decided on revision 109)"
    )


def test_nodes_that_people_cordoned_count() -> None:
    story = JournalBuilder(*FLEET)
    story.cordon("n7")
    lease = story.take_lease("n0")
    assert of_i1(story.journal()) == [lease.revision]


def test_nodes_that_failed_count() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n7")
    story.start("n7")
    story.fail("n7", cordoned(None))
    lease = story.take_lease("n0")
    assert of_i1(story.journal(failure_threshold=2)) == [lease.revision]


def test_nodes_behind_a_shut_gate_count_where_it_is_known() -> None:
    story = JournalBuilder(*FLEET)
    lease = story.take_lease("n0")
    shut = facts(story, max_unavailable=1, driverless=frozenset({"uid-n7"}))
    assert of_i1(story.journal(pools=(shut,))) == [lease.revision]


def test_of_whom_nobody_can_say_whether_it_was_known_to_have_no_driver_nothing_is_held() -> None:
    story = JournalBuilder(*FLEET)
    doubt = facts(story, max_unavailable=1, doubtful=frozenset({"uid-n1"}))
    story.take_lease("n0")
    story.take_lease("n1")
    over = story.take_lease("n2")
    assert of_i1(story.journal(pools=(doubt,))) == [over.revision]


def test_a_node_that_is_to_have_no_driver_yet_misses_none() -> None:
    story = JournalBuilder("n0", "n1")
    story.label("n1", DRIVER_LABEL, None)
    shut = facts(story, max_unavailable=1, driverless=frozenset({"uid-n1"}))
    story.take_lease("n0")
    assert of_i1(story.journal(pools=(shut,))) == []
    story.take_lease("n1", operation=Operation.BRING_UP, cordon=False)
    story.start("n1")
    story.release_unchanged("n0")
    story.take_lease("n0")
    assert of_i1(story.journal(pools=(shut,))) == []


@pytest.mark.parametrize("by", ["cordon", "shut", "failed"])
def test_a_node_that_is_unavailable_already_costs_nothing(by: str) -> None:
    story = JournalBuilder(*FLEET)
    if by == "cordon":
        story.cordon("n1")
    if by == "failed":
        story.take_lease("n1")
        story.start("n1")
        story.fail("n1")
    story.take_lease("n1")
    shut = frozenset({"uid-n1"}) if by == "shut" else frozenset[str]()
    pools = (facts(story, max_unavailable=0 if by != "failed" else 1, driverless=shut),)
    assert of_i1(story.journal(pools=pools)) == []


def test_a_node_that_turned_not_ready_before_the_snapshot_counts() -> None:
    story = JournalBuilder(*FLEET)
    story.ready("n7", "False")
    lease = story.take_lease("n0")
    assert of_i1(story.journal()) == [lease.revision]


@pytest.mark.parametrize(("ready", "problems"), [("False", 1), ("True", 0)])
def test_and_one_that_was_so_when_the_journal_began(ready: str, problems: int) -> None:
    story = JournalBuilder(*FLEET)
    story.ready("n7", ready)
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    pools = story.journal().pools
    begun = len(story.revisions)
    story.take_lease("n0")
    later = story.journal(revisions=tuple(story.revisions[begun:]), start=start, pools=pools)
    assert len(of_i1(later)) == problems


def test_one_that_turns_not_ready_between_snapshot_and_write_is_nobodys_fault() -> None:
    story = JournalBuilder(*FLEET)
    seen = {"nodes": str(story.revision)}
    story.ready("n7", "False")
    story.ready("n6", "Unknown")
    story.cordon("n5")
    story.take_lease("n0", seen=seen)
    assert violations_of(story.journal()) == []


def test_who_was_deleted_since_the_snapshot_may_have_been_seen_gone() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n7")
    seen = {"nodes": str(story.revision)}
    story.cordon("n6")
    story.delete("Node", "n7")
    story.take_lease("n0", seen=seen)
    assert of_i1(story.journal(max_unavailable=1)) == []
    lease = story.take_lease("n1")
    assert of_i1(story.journal(max_unavailable=1)) == [lease.revision]


def test_a_deletion_between_snapshot_and_write_is_nobodys_fault() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    seen = {"nodes": str(story.revision)}
    for name in ("n4", "n5", "n6", "n7"):
        story.delete("Node", name)
    story.take_lease("n1", seen=seen)
    assert of_i1(story.journal(max_unavailable="25%", failure_threshold=100)) == []
    again = story.take_lease("n2")
    assert of_i1(story.journal(max_unavailable="25%", failure_threshold=100)) == [again.revision]


def test_our_own_later_grants_count_whatever_was_seen() -> None:
    story = JournalBuilder(*FLEET)
    seen = {"nodes": str(story.revision)}
    story.take_lease("n0", seen=seen)
    lease = story.take_lease("n1", seen=seen)
    assert of_i1(story.journal(failure_threshold=100)) == [lease.revision]


def test_and_so_do_our_own_later_releases() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    seen = {"nodes": str(story.revision)}
    story.release_unchanged("n0")
    story.take_lease("n1", seen=seen)
    assert violations_of(story.journal()) == []


def test_a_cordon_of_ours_without_a_lease_counts() -> None:
    story = JournalBuilder(*FLEET)
    story.cordon("n7")
    write = story.apply("n0", cordoned(True))
    assert of_i1(story.journal()) == [write.revision]


def test_a_person_who_uncordons_a_node_in_flight_makes_it_no_new_one() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    story.cordon("n1")
    story.cordon("n0", False)
    story.apply("n0", cordoned(True), record=story.records["n0"])
    assert violations_of(story.journal()) == []


def test_a_first_bring_up_and_a_validation_cost_nothing() -> None:
    story = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        story.take_lease(name, operation=Operation.BRING_UP, cordon=False)
    story.take_lease("n2", operation=Operation.VALIDATE, cordon=False)
    assert of_i1(story.journal(max_unavailable=0, failure_threshold=100)) == []


def test_a_failure_is_no_write_that_lowers_capacity() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0", operation=Operation.BRING_UP, cordon=False)
    story.start("n0")
    story.cordon("n1")
    story.fail("n0")
    assert of_i1(story.journal()) == []


def test_a_limit_that_was_lowered_just_now_is_nobodys_fault_for_long() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    lowered = story.time + 10
    story.advance(10)
    story.take_lease("n1")
    story.advance(91)
    late = story.take_lease("n2")
    before = facts(story, max_unavailable=2)
    after = facts(story, max_unavailable=1, since=lowered)
    assert of_i1(story.journal(pools=(after, before))) == [late.revision]


def test_the_base_bounds_the_limit() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    lease = story.take_lease("n1")
    pool = facts(story, max_unavailable="25%", base=4)
    assert of_i1(story.journal(pools=(pool,))) == [lease.revision]


@pytest.mark.parametrize(("base", "allowed"), [(4, 1), (8, 2), (80, 2)])
def test_the_base_of_the_rollout_does_but_never_raises_it(base: int, allowed: int) -> None:
    story = JournalBuilder(*FLEET)
    story.rollout(lambda rollout: rollout.update(status={"base": base}))
    leases = [story.take_lease(name).revision for name in ("n0", "n1", "n2")]
    journal = story.journal(max_unavailable="25%", failure_threshold=100)
    assert of_i1(journal) == leases[allowed:]


def test_pools_have_their_limits_each_for_itself() -> None:
    story = JournalBuilder(*FLEET)
    story.cordon("n7")
    lease = story.take_lease("n0")
    other = facts(story, key="nvidiadriver-b", members=frozenset({"uid-n6", "uid-n7"}))
    mine = facts(story, members=frozenset({"uid-n0", "uid-n1"}), max_unavailable=1)
    assert of_i1(story.journal(pools=(mine, other))) == []
    assert of_i1(story.journal()) == [lease.revision]


def test_where_nobody_says_who_belongs_to_a_pool_its_records_do() -> None:
    story = JournalBuilder(*FLEET)
    for name in ("n0", "n1"):
        story.take_lease(name, cordon=False)
    lease = story.revisions[-1]
    pool = facts(story, members=None, max_unavailable="50%", base=None)
    assert of_i1(story.journal(pools=(pool,))) == [lease.revision]


def test_who_is_said_to_have_left_counts_no_more_from_that_moment_on() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0", cordon=False)
    story.release_unchanged("n0")
    story.cordon("n0")
    story.advance(1)
    left = story.write("Pod", "p0", lambda pod: None, manager="kubelet", verb=Verb.CREATE)
    story.advance(1)
    story.write("Pod", "p1", lambda pod: None, manager="kubelet", verb=Verb.CREATE)
    lease = story.take_lease("n1", seen={"nodes": str(left.revision)})
    both = facts(story, members=frozenset({"uid-n0", "uid-n1"}), max_unavailable=1)
    alone = msgspec.structs.replace(both, members=frozenset({"uid-n1"}), since=left.time)
    assert of_i1(story.journal(pools=(both,))) == [lease.revision]
    assert of_i1(story.journal(pools=(both, alone))) == []
    assert of_i1(
        story.journal(pools=(both, alone, msgspec.structs.replace(both, since=left.time)))
    ) == [lease.revision]


def test_a_pool_without_known_limits_is_not_judged() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    verdict = judge(story.journal(pools=()))
    assert verdict.violations == ()
    assert verdict.not_judged == {
        "I1": f"the limits of pool {POOL}",
        "I8": f"the failureThreshold of pool {POOL} when target {TARGET} began",
    }


def test_a_not_ready_node_is_not_begun_with() -> None:
    story = JournalBuilder(*FLEET)
    story.ready("n0", "Unknown")
    lease = story.take_lease("n0")
    assert messages(story.journal(), "I1") == ["n0 was leased while it was NotReady"]
    assert of_i1(story.journal()) == [lease.revision]


def test_but_one_that_turns_not_ready_under_its_lease_goes_on() -> None:
    story = JournalBuilder(*FLEET)
    story.take_lease("n0")
    story.ready("n0", "Unknown")
    story.start("n0")
    assert violations_of(story.journal()) == []


def test_a_validation_takes_nothing_away_and_may_begin_on_a_not_ready_node() -> None:
    story = JournalBuilder(*FLEET)
    story.ready("n0", "Unknown")
    story.take_lease("n0", operation=Operation.VALIDATE, cordon=False)
    assert violations_of(story.journal()) == []


def test_a_failure_that_cordons_is_no_write_that_lowers_capacity() -> None:
    story = JournalBuilder(*FLEET)
    story.cordon("n1")
    story.take_lease("n0", operation=Operation.BRING_UP, cordon=False)
    story.start("n0")
    story.fail("n0", cordoned(True))
    assert of_i1(story.journal()) == []


def test_a_write_that_does_not_say_what_it_saw_is_judged_as_of_the_moment_before() -> None:
    story = JournalBuilder(*FLEET)
    story.cordon("n7")
    story.take_lease("n0", seen={})
    assert messages(story.journal(), "I1") == [
        (
            f"n0 was made unavailable, which makes 2 of pool {POOL}; its limit is 1"
            " (decided on revision unknown)"
        )
    ]


def test_a_node_of_no_pool_that_is_known_is_not_judged() -> None:
    story = JournalBuilder(*FLEET)
    story.apply("n0", cordoned(True))
    verdict = judge(story.journal(pools=()))
    assert verdict.not_judged["I1"] == "the limits of pool without a name"


def test_who_was_cordoned_when_it_was_looked_at_does_not_count_beside_itself() -> None:
    story = JournalBuilder(*FLEET)
    story.cordon("n0")
    seen = {"nodes": str(story.revision)}
    story.cordon("n0", False)
    story.take_lease("n0", seen=seen)
    assert violations_of(story.journal()) == []


@pytest.mark.parametrize("at_the_start", [False, True])
def test_whoever_is_named_by_a_record_at_some_time_was_of_that_pool_all_along(
    at_the_start: bool,
) -> None:
    names = FLEET[:4]
    story = JournalBuilder(*names)
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    leases = [story.take_lease(name, cordon=False).revision for name in names]
    pool = facts(story, members=None, max_unavailable="50%")
    journal = story.journal(pools=(pool,))
    if at_the_start:
        later = tuple(story.revisions[len(names) :])
        journal = msgspec.structs.replace(journal, revisions=later, start=start)
    assert of_i1(journal) == leases[2:]


def test_until_another_record_names_it_a_node_is_of_the_pool_of_its_first_one() -> None:
    story = JournalBuilder("n0", "n1")
    story.take_lease("n0")
    story.release_unchanged("n0")
    story.cordon("n0")
    start = tuple({"kind": kind, **whole} for (kind, _), whole in story.objects.items())
    begun = len(story.revisions)
    over = story.take_lease("n1")
    story.take_lease("n0", pool="nvidiadriver-x")
    pool = facts(story, members=None, max_unavailable=1)
    other = facts(story, key="nvidiadriver-x", members=None)
    revisions = tuple(story.revisions[begun:])
    assert of_i1(story.journal(pools=(pool, other), revisions=revisions, start=start)) == [
        over.revision
    ]


def test_who_is_no_member_counts_only_under_its_lease_whatever_its_record_says() -> None:
    story = JournalBuilder("n0", "n1")
    story.take_lease("n0")
    story.release_unchanged("n0")
    story.cordon("n0")
    story.take_lease("n1")
    pool = facts(story, members=frozenset({"uid-n1"}), max_unavailable=1)
    assert of_i1(story.journal(pools=(pool,))) == []


def test_under_a_lease_without_a_record_a_node_is_of_the_pool_that_is_given() -> None:
    story = JournalBuilder("n0", "n1")
    story.apply("n0", leased(story.lease("n0", 1)))
    over = story.take_lease("n1")
    assert of_i1(story.journal()) == [over.revision]


@pytest.mark.parametrize(("left_at", "problems"), [(10, 1), (1, 0)])
def test_who_is_said_to_have_left_counts_until_that_very_moment(
    left_at: float, problems: int
) -> None:
    story = JournalBuilder("n0", "n1")
    story.cordon("n0")
    begun = story.time
    story.advance(1)
    story.take_lease("n1")
    story.advance(20)
    story.cordon("n1", False)
    both = facts(story, max_unavailable=1)
    alone = msgspec.structs.replace(both, members=frozenset({"uid-n1"}), since=begun + left_at)
    assert len(of_i1(story.journal(pools=(both, alone)))) == problems


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
def test_who_got_his_driver_after_the_newest_revision_that_was_seen_counts_no_more(
    got: frozenset[str], others: str, problems: int
) -> None:
    story = JournalBuilder(*FLEET)
    story.label("n7", DRIVER_LABEL, "some", by="sluice-scheduler")
    if others.endswith("cordoned"):
        story.cordon(others.split(maxsplit=1)[0])
    shut = facts(story, max_unavailable=1, driverless=frozenset({"uid-n7", "uid-of-nobody"}))
    story.advance(5)
    later = facts(story, max_unavailable=1, driverless=got, since=story.time)
    seen = {"nodes": str(story.revision)}
    story.advance(5)
    if others == "n7 deleted":
        story.delete("Node", "n7")
    story.take_lease("n0", seen=seen)
    assert len(of_i1(story.journal(pools=(shut, later)))) == problems
