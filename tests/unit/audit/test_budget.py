"""I1 and I6: writes that make a pool unavailable beyond its limit, or on stale sources."""

from typing import Any

import pytest

from libs.audit import judge
from libs.contracts.node import DRIVER_LABEL
from tests.unit.audit.builders import (
    POOL,
    TARGET,
    JournalBuilder,
    cases,
    messages,
    revisions_of,
    violations_of,
)
from tests.unit.audit.test_policies import PolicyJournalBuilder

EIGHT = tuple(f"n{number}" for number in range(8))
OVER = f"was made unavailable, which makes 2 of pool {POOL}; its limit is 1"


@pytest.mark.parametrize(
    ("limit", "allowed"), [(0, 0), (1, 1), ("1%", 1), ("25%", 2), ("26%", 3), (5, 5), ("100%", 8)]
)
def test_every_lease_beyond_the_limit_is_a_violation(limit: int | str, allowed: int) -> None:
    builder = JournalBuilder(*EIGHT)
    leases = [builder.lease(name).revision for name in EIGHT]
    journal = builder.journal(max_unavailable=limit, failure_threshold=100)
    assert revisions_of(journal, "I1") == leases[allowed:]


@cases(
    "story",
    a_node_cordoned_by_a_person_counts="cordon n7; !lease n0",
    a_failed_node_counts="begin_upgrade n7; fail n7 cordon=False; !lease n0",
    a_node_not_ready_before_the_snapshot_counts="ready n7 status=False; !lease n0",
    a_node_not_ready_at_the_start_of_the_journal_counts="ready n7 status=False; begin; !lease n0",
    a_node_ready_at_the_start_of_the_journal_is_available="ready n7; begin; lease n0",
    our_own_grant_after_the_snapshot_counts=(
        "snapshot; lease n0 seen=snapshot; !lease n1 seen=snapshot"
    ),
    our_own_release_after_the_snapshot_counts=(
        "lease n0; snapshot; release n0; lease n1 seen=snapshot"
    ),
    changes_by_others_after_the_snapshot_do_not_count=(
        "snapshot; ready n7 status=False; cordon n5; lease n0 seen=snapshot"
    ),
    a_node_deleted_after_the_snapshot_does_not_count=(
        "lease n7; snapshot; cordon n6; delete Node n7; lease n0 seen=snapshot; !lease n1"
    ),
    a_recreated_node_was_deleted_once=(
        "cordon n5; !lease n7; snapshot; delete Node n7; node n7 uid=again;!lease n0 seen=snapshot"
    ),
    a_node_cordoned_in_the_snapshot_counts_once=(
        "cordon n0; snapshot; uncordon n0; lease n0 seen=snapshot"
    ),
    a_cordon_of_ours_without_a_lease_counts="cordon n7; !rewrite n0 cordon=True",
    cordoning_a_node_in_flight_again_costs_nothing=(
        "lease n0; cordon n1; uncordon n0; rewrite n0 cordon=True"
    ),
    a_cordoned_node_costs_nothing="cordon n1; lease n1",
    a_failed_node_costs_nothing="begin_upgrade n1; fail n1; lease n1",
    bring_up_and_validation_cost_nothing=(
        "cordon n7; lease n0 operation=bring-up; lease n1 operation=bring-up;"
        "lease n2 operation=validate"
    ),
    a_failure_does_not_count_as_lowering=(
        "begin_upgrade n0 operation=bring-up; cordon n1; fail n0"
    ),
    a_failure_that_cordons_does_not_count_as_lowering=(
        "cordon n1; begin_upgrade n0 operation=bring-up; fail n0 cordon=True"
    ),
    no_upgrade_starts_on_a_not_ready_node="ready n0 status=Unknown; !lease n0",
    a_node_that_turns_not_ready_under_its_lease_continues=(
        "lease n0; ready n0 status=Unknown; start n0"
    ),
    a_validation_may_start_on_a_not_ready_node=(
        "ready n0 status=Unknown; lease n0 operation=validate"
    ),
    a_lease_without_a_record_counts="rewrite n0 lease=1; !lease n1",
)
def test_one_unavailable_node_is_allowed(story: str) -> None:
    builder = JournalBuilder(*EIGHT).play(story)
    journal = builder.journal(failure_threshold=100)
    assert revisions_of(journal, "I1") == builder.planted


@cases(
    "story text",
    the_budget=(
        "lease n0; lease n1",
        f"n1 {OVER} (decided on revision 109)",
    ),
    without_a_snapshot=(
        "cordon n7; lease n0 seen=$nothing",
        f"n0 {OVER} (decided on revision unknown)",
    ),
    readiness=("ready n0 status=Unknown; lease n0", "n0 was leased while it was NotReady"),
)
def test_the_message_names_node_pool_limit_and_revision(story: str, text: str) -> None:
    builder = JournalBuilder(*EIGHT).play(story, nothing={})
    assert messages(builder.journal(failure_threshold=100), "I1") == [text]


@cases(
    "story facts problems",
    a_driverless_node_counts=("lease n0", {"driverless": {"uid-n7"}}, 1),
    a_driverless_node_costs_nothing=(
        "cordon n7; lease n1",
        {"max_unavailable": 1, "driverless": {"uid-n1"}},
        0,
    ),
    a_node_with_a_doubtful_driver_counts_neither_way=(
        "lease n0; lease n1; !lease n2",
        {"doubtful": {"uid-n1"}},
        1,
    ),
    a_node_that_expects_no_driver_is_available_without_one=(
        f"label n1 {DRIVER_LABEL} None; lease n0",
        {"driverless": {"uid-n1"}},
        0,
    ),
    a_first_bring_up_expects_no_driver_yet=(
        f"label n1 {DRIVER_LABEL} None; begin_upgrade n1 operation=bring-up; lease n0",
        {"driverless": {"uid-n1"}},
        0,
    ),
    the_base_bounds_the_limit=("lease n0; lease n1", {"max_unavailable": "25%", "base": 4}, 1),
    without_given_members_the_records_name_the_pool=(
        "lease n0 cordon=False; lease n1 cordon=False",
        {"members": None, "max_unavailable": "50%"},
        1,
    ),
    nodes_of_another_pool_do_not_count=(
        "cordon n7; lease n0",
        {"members": {"uid-n0", "uid-n1"}},
        0,
    ),
    a_node_that_leaves_exceeds_the_limit=(
        "cordon n1; lease n0",
        {"members": {"uid-n1"}, "max_unavailable": "99%"},
        1,
    ),
    all_nodes_include_one_that_leaves=(
        "cordon n1; lease n0",
        {"members": {"uid-n1"}, "max_unavailable": "100%"},
        0,
    ),
    a_node_that_leaves_exceeds_a_number=(
        "cordon n1; lease n0",
        {"members": {"uid-n1"}, "max_unavailable": "1"},
        1,
    ),
    a_node_outside_the_members_counts_only_under_its_lease=(
        "lease n0; release n0; cordon n0; lease n1",
        {"members": {"uid-n1"}},
        0,
    ),
)
def test_facts_bound_the_budget(story: str, facts: dict[str, Any], problems: int) -> None:
    builder = JournalBuilder(*EIGHT).play(story)
    frozen = {
        name: frozenset[str](value) if isinstance(value, set) else value
        for name, value in facts.items()
    }
    journal = builder.journal(pools=(builder.facts(**frozen),))
    assert len(revisions_of(journal, "I1")) == problems


def test_deletions_after_the_snapshot_do_not_lower_the_limit() -> None:
    gone = "; ".join(f"delete Node n{number}" for number in (4, 5, 6, 7))
    builder = JournalBuilder(*EIGHT)
    builder.play(f"lease n0; snapshot; {gone}; lease n1 seen=snapshot; !lease n2")
    journal = builder.journal(max_unavailable="25%", failure_threshold=100)
    assert revisions_of(journal, "I1") == builder.planted


def test_the_former_limit_holds_until_it_is_stale() -> None:
    builder = JournalBuilder(*EIGHT).play("lease n0; advance 10")
    lowered = builder.time
    builder.play("lease n1; advance 91; !lease n2")
    former, lower = builder.facts(max_unavailable=2), builder.facts(since=lowered)
    assert revisions_of(builder.journal(pools=(lower, former)), "I1") == builder.planted


@cases(
    "seen problems",
    older_policies=("before", 0),
    policies_of_another_kind=("at_once", 0),
    the_policies=("later", 1),
    nodes_alone=("", 1),
)
def test_a_limit_that_the_decision_had_not_seen_does_not_bind_it(seen: str, problems: int) -> None:
    """The watches of policies and of Nodes show their changes at different moments."""
    builder = PolicyJournalBuilder()
    builder.play("racks aaaa; policy maxUnavailable=2; strategy 100; lease n0; advance 10")
    revisions = {"before": builder.revision}
    builder.play("policy maxUnavailable=1; advance 0.02; label n3 team red")
    revisions["at_once"] = builder.revision
    builder.play("advance 2; label n3 team blue")
    nodes = revisions["later"] = builder.revision
    sources = {"nodes": str(nodes), **({"policies": str(revisions[seen])} if seen else {})}
    builder.play("advance 0.02; lease n1 seen=$sources", sources=sources)
    assert len(revisions_of(builder.journal(pools=()), "I1")) == problems


@pytest.mark.parametrize(("base", "allowed"), [(4, 1), (8, 2), (80, 2)])
def test_the_base_of_the_rollout_bounds_the_limit_and_never_raises_it(
    base: int, allowed: int
) -> None:
    builder = JournalBuilder(*EIGHT)
    builder.base(base)
    leases = [builder.lease(name).revision for name in ("n0", "n1", "n2")]
    journal = builder.journal(max_unavailable="25%", failure_threshold=100)
    assert revisions_of(journal, "I1") == leases[allowed:]


@pytest.mark.parametrize(("left_at", "problems"), [(10, 1), (1, 0)])
def test_a_node_counts_until_the_moment_it_leaves_the_pool(left_at: float, problems: int) -> None:
    builder = JournalBuilder("n0", "n1").play("cordon n0")
    left_at += builder.time
    builder.play("advance 1; lease n1; advance 20; uncordon n1")
    remaining = builder.facts(members=frozenset({"uid-n1"}), since=left_at)
    journal = builder.journal(pools=(builder.facts(), remaining))
    assert len(revisions_of(journal, "I1")) == problems
    rejoined = builder.facts(since=left_at)
    journal = builder.journal(pools=(builder.facts(), remaining, rejoined))
    assert len(revisions_of(journal, "I1")) == 1


def test_a_node_that_left_before_the_decision_does_not_count() -> None:
    builder = JournalBuilder(*EIGHT)
    builder.play("lease n0 cordon=False; release n0; cordon n0; advance 1; pod p0; snapshot")
    left_at = builder.time
    builder.play("advance 1; pod p1; lease n1 seen=snapshot")
    all_members = builder.facts(members=frozenset({"uid-n0", "uid-n1"}))
    remaining = builder.facts(members=frozenset({"uid-n1"}), since=left_at)
    assert len(revisions_of(builder.journal(pools=(all_members,)), "I1")) == 1
    assert revisions_of(builder.journal(pools=(all_members, remaining)), "I1") == []


@pytest.mark.parametrize("begin", ["", "begin;"])
def test_a_node_belongs_to_the_pool_of_its_record_from_the_start(begin: str) -> None:
    leases = "lease n0 cordon=False; lease n1 cordon=False; !lease n2 cordon=False"
    builder = JournalBuilder("n0", "n1", "n2", "n3").play(f"{begin} {leases}; !lease n3")
    facts = builder.facts(members=None, max_unavailable="50%")
    assert revisions_of(builder.journal(pools=(facts,)), "I1") == builder.planted


def test_a_node_stays_in_the_pool_of_its_first_record_until_the_next() -> None:
    builder = JournalBuilder("n0", "n1")
    builder.play("lease n0; release n0; cordon n0; begin; !lease n1; lease n0 pool=nvidiadriver-x")
    pools = (
        builder.facts(members=None),
        builder.facts(key="nvidiadriver-x", members=None, max_unavailable="25%"),
    )
    assert revisions_of(builder.journal(pools=pools), "I1") == builder.planted


@cases(
    "driverless other problems",
    still_driverless=({"uid-n7"}, "", 1),
    equipped=(set[str](), "", 0),
    equipped_but_cordoned=(set[str](), "cordon n7", 1),
    equipped_and_another_cordoned=(set[str](), "cordon n6", 1),
    equipped_and_deleted=(set[str](), "snapshot; delete Node n7", 0),
    another_lacks_one_now=({"uid-unknown"}, "", 0),
)
def test_a_node_that_got_its_driver_after_the_snapshot_does_not_count(
    driverless: set[str], other: str, problems: int
) -> None:
    builder = JournalBuilder(*EIGHT)
    before = "" if "delete" in other else other
    builder.play(f"label n7 {DRIVER_LABEL} some by=sluice-scheduler; {before}; advance 5; snapshot")
    facts = builder.facts(driverless=frozenset({"uid-n7", "uid-unknown"}))
    later = builder.facts(driverless=frozenset(driverless), since=builder.time)
    builder.play(f"advance 5; {other if 'delete' in other else ''}; lease n0 seen=snapshot")
    assert len(revisions_of(builder.journal(pools=(facts, later)), "I1")) == problems


def test_a_pool_without_known_limits_is_not_judged() -> None:
    builder = JournalBuilder(*EIGHT).play("lease n0")
    result = judge(builder.journal(pools=()))
    assert result.violations == ()
    assert result.not_judged == {
        "I1": f"the limits of pool {POOL}",
        "I8": f"the failureThreshold of pool {POOL} when target {TARGET} began",
    }
    builder = JournalBuilder(*EIGHT).play("rewrite n0 cordon=True")
    result = judge(builder.journal(pools=()))
    assert result.not_judged["I1"] == "the limits of pool without a name"


STALE = "n1 was made unavailable on the stale revision"
NAMELESS = "n1 was made unavailable by a write whose record names no revision of the Nodes"


def i6_messages(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(max_unavailable=2, failure_threshold=100), "I6")


@cases(
    "seen texts",
    no_source=({}, [NAMELESS]),
    another_source=({"pods": "101"}, [NAMELESS]),
    an_empty_revision=(
        {"nodes": ""},
        [NAMELESS, "n1 was made unavailable on '' of nodes, which is no revision number"],
    ),
    other_digits=(
        {"nodes": "\N{SUPERSCRIPT TWO}"},
        [
            NAMELESS,
            "n1 was made unavailable on '\xb2' of nodes, which is no revision number",
        ],
    ),
    no_number_and_a_future_revision=(
        {"nodes": "102", "pods": "soon"},
        [
            "n1 was made unavailable on 'soon' of pods, which is no revision number",
            "n1 was made unavailable on revision 102 of nodes, which did not exist yet",
        ],
    ),
)
def test_a_lowering_write_names_the_revisions_that_it_saw(
    seen: dict[str, str], texts: list[str]
) -> None:
    builder = JournalBuilder("n1").play("lease n1 seen=$seen", seen=seen)
    assert sorted(i6_messages(builder)) == sorted(texts)


@pytest.mark.parametrize(("seconds", "stale"), [(90, False), (91, True)])
def test_a_source_may_lag_up_to_the_limit(seconds: int, stale: bool) -> None:
    builder = JournalBuilder("n1", "n2")
    builder.play(f"snapshot; advance 1000; cordon n2; advance {seconds}; lease n1 seen=snapshot")
    text = f"{STALE} 102 of nodes: revision 103 of a Node was 91 s old"
    assert i6_messages(builder) == ([text] if stale else [])


@cases(
    "source stale",
    of_all_namespaces=("pods", ["Pod"]),
    of_the_same_namespace=("pods/web", ["Pod"]),
    of_another_namespace=("pods/gpu", []),
    of_policies_without_rollouts=("policies", ["ClusterPolicy"]),
    of_rollouts=("rollouts", ["Rollout"]),
    unknown=("moons", []),
)
def test_sources_are_judged_by_kind_and_namespace(source: str, stale: list[str]) -> None:
    builder = JournalBuilder("n1", "n2")
    seen = {"nodes": "105", source: str(builder.revision)}
    builder.pod("p1", namespace="web")
    builder.write("ClusterPolicy", "main", lambda _: None)
    builder.accept(0)
    builder.advance(91)
    builder.lease("n1", seen=seen)
    assert [message.split(" of a ")[1].split()[0] for message in i6_messages(builder)] == stale


@cases(
    "story",
    an_unchanged_source_is_never_stale="advance 100000; lease n1",
    a_bring_up_needs_no_revisions="lease n1 operation=bring-up seen=$nothing",
    a_cordoned_node_needs_no_revisions="cordon n1; lease n1 seen=$nothing",
    a_validation_needs_no_revisions="lease n1 operation=validate seen=$nothing",
    a_write_without_a_revision_is_not_compared="lease n1; edit_last revision=0",
)
def test_other_writes_need_no_fresh_source(story: str) -> None:
    builder = JournalBuilder("n1").play(story, nothing={})
    assert i6_messages(builder) == []
    assert violations_of(builder.journal()) == []
