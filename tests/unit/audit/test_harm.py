"""I8: grants and starts beyond the failure allowance of a target."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.audit import AuditJournal, PoolFacts, judge
from libs.audit.harm_counts import TargetCounts
from tests.unit.audit.builders import (
    FLEET,
    LABEL,
    POOL,
    TARGET,
    JournalBuilder,
    annotated,
    cases,
    messages,
    revisions_of,
    shown,
)

PROVEN = "pass_upgrade n0; pass_upgrade n1;"
FAILURES = "fail_upgrade n2; fail_upgrade n3; advance 10;"
HALTED = f"{PROVEN} lease n4; {FAILURES}"
"""A proven target with two failures; n4 was in flight before."""
EARLIER = "target=t1 label=label-1"
OF_TARGET = f"target {TARGET} of pool {POOL}"
UNKNOWN = f"the failureThreshold of pool {POOL} when target {TARGET} began"


class RolloutBuilder(JournalBuilder):
    """Steps in which the scheduler writes what vanished."""

    def vanish(self, target: str, *names: str) -> None:
        gone = {f"uid-{name}": {"node": name, "since": self.time} for name in names}
        self.rollout(shown(base=10, targets={target: {"threshold": 2, "vanished": gone}}))


def journal(builder: JournalBuilder, threshold: int | str = 2, **sources: Any) -> AuditJournal:
    sources = {"events": None, **sources}
    return builder.journal(max_unavailable="100%", failure_threshold=threshold, **sources)


def i8_revisions(builder: JournalBuilder, threshold: int | str = 2, **sources: Any) -> list[int]:
    return revisions_of(journal(builder, threshold, **sources), "I8", faults=True)


@pytest.mark.parametrize(
    ("threshold", "allowed"), [(0, 1), (1, 1), (2, 2), ("1%", 1), ("5%", 1), ("21%", 3), (10, 10)]
)
def test_an_unproven_target_has_at_most_the_threshold_in_flight(
    threshold: int | str, allowed: int
) -> None:
    builder = JournalBuilder(*FLEET)
    leases = [builder.lease(name).revision for name in FLEET]
    assert i8_revisions(builder, threshold) == leases[allowed:]


@cases(
    "story",
    a_failure_counts_like_a_node_in_flight=("fail_upgrade n0; lease n0; lease n1; !lease n2"),
    a_proven_target_is_bounded_by_the_budget_alone=(
        f"{PROVEN} begin_upgrade n2; begin_upgrade n3; begin_upgrade n4"
    ),
    a_successful_retry_proves_nothing=(
        "fail_upgrade n0; pass_upgrade n0; pass_upgrade n1; lease n2; !lease n3"
    ),
    failed_evidence_proves_nothing=(
        "pass_upgrade n0; begin_upgrade n1; validate n1; finish n1 passed=False;"
        "lease n2; lease n3; !lease n4"
    ),
    a_release_before_the_start_frees_its_place=(
        "lease n0; release n0; lease n1; release n1; lease n2; release n2"
    ),
    a_failure_before_the_start_does_not_count=(
        "lease n0; fail n0 cause=eviction; lease n1; fail n1 cause=eviction;"
        "lease n2; fail n2 cause=eviction"
    ),
    a_deleted_node_frees_its_place=(
        "lease n0; lease n1; delete Node n0; node n0 uid=again; lease n2; !lease n3"
    ),
    a_node_that_vanishes_after_its_start_keeps_its_place=(
        "begin_upgrade n0; lease n1; delete Node n0; node n0 uid=again; !lease n2"
    ),
    so_does_one_that_vanishes_beside_a_failure=(
        "fail_upgrade n0; begin_upgrade n1; delete Node n1; advance 100; !lease n2"
    ),
    nodes_that_vanish_from_a_proven_target_do_not_count=(
        f"{PROVEN} begin_upgrade n2; delete Node n2; begin_upgrade n3; delete Node n3; advance 100;"
        "lease n4; start n4"
    ),
    a_proof_ends_the_count_of_those_that_vanished=(
        "begin_upgrade n0; delete Node n0; pass_upgrade n1; pass_upgrade n2; lease n3; lease n4;"
        "lease n5"
    ),
    a_node_that_is_deleted_after_its_end_did_not_vanish=(
        "begin_upgrade n0; prove n0; finish n0; delete Node n0; lease n1; lease n2; !lease n3"
    ),
    nodes_that_vanished_halt_the_target=(
        "accept 1; lease n2; begin_upgrade n0; delete Node n0; begin_upgrade n1; delete Node n1;"
        "accept 0; advance 200; !start n2"
    ),
    accepted_nodes_that_vanished_free_their_places_and_keep_the_proof=(
        "pass_upgrade n5; begin_upgrade n0; delete Node n0; begin_upgrade n1; delete Node n1;"
        "advance 100; accept 2; pass_upgrade n2; lease n3; lease n4; lease n6"
    ),
    a_node_outside_the_counts_does_not_vanish_from_them=(
        f"fail_upgrade n0 {EARLIER}; begin_upgrade n0 outside=True; delete Node n0; lease n1;"
        "lease n2; !lease n3"
    ),
    failures_outlive_nodes_and_policy_edits=(
        "fail_upgrade n0; fail_upgrade n1; delete Node n0; delete Node n1; advance 100;"
        "pass_upgrade n2 target=t3 label=label-3; pass_upgrade n3 target=t3 label=label-3;"
        "!lease n4"
    ),
    a_node_that_changes_its_target_is_counted_there=(
        "lease n0; lease n1; lease n2 target=t3 label=label-3; lease n3 target=t3 label=label-3;"
        "!rewrite n1 target=t3 label=label-3; lease n4"
    ),
    a_halted_target_grants_and_starts_no_node=f"{HALTED} !lease n5; !start n4",
    a_halted_target_restarts_no_unproven_node=(
        f"{HALTED} !lease n2 operation=same-label; !start n2 restart=True; validate n2"
    ),
    a_halted_target_restarts_no_unproven_node_with_its_lease=(
        f"{HALTED} !!lease n2 operation=same-label started=True; validate n2"
    ),
    a_halted_target_takes_no_retry_and_no_new_node=(
        f"{HALTED} !lease n2; node n10 driver=; !lease n10 operation=bring-up"
    ),
    an_empty_label_is_never_proven=(f"{HALTED} node n10 driver=; !lease n10 label=; !start n10"),
    a_moved_label_is_a_start_even_without_the_flag=f"{HALTED} !rewrite n4 driver={LABEL}",
    a_node_started_before_the_halt_finishes=(
        f"{PROVEN} begin_upgrade n4; {FAILURES} advance 90; label_driver None n4;"
        f"rewrite n4 driver={LABEL}; prove n4; finish n4"
    ),
    a_decision_of_the_same_round_is_allowed=f"{HALTED} advance -10; start n4",
    a_restart_of_a_proven_driver_is_no_start=(
        f"{PROVEN} {FAILURES} advance 90; label_driver None n0;"
        "begin_upgrade n0 operation=same-label"
    ),
    a_restart_of_a_failed_driver_is_a_start=(
        f"{PROVEN} {FAILURES} advance 90; label_driver None n3;"
        "!lease n3 operation=same-label; !start n3"
    ),
    a_label_written_by_others_at_rest_is_not_proven=(
        f"pass_upgrade n0 {EARLIER}; label_driver {LABEL} n0; rewrite n0 state=upgrade-done;"
        "begin_upgrade n1; begin_upgrade n2; fail n1; fail n2; advance 100;"
        "!lease n0 operation=same-label"
    ),
    a_validation_or_removal_is_not_counted=(
        f"{HALTED} lease n2 operation=validate; prove n2; finish n2;"
        "lease n3 operation=remove target= label="
    ),
    a_failed_validation_at_rest_is_of_no_target=(
        f"{PROVEN} pass_upgrade n2; fail_upgrade n3; advance 100; lease n0 operation=validate;"
        "fail n0 outside=True; fail_upgrade n0; advance 100; lease n4; start n4"
    ),
    a_failure_after_a_failed_validation_at_rest_counts=(
        f"{PROVEN} pass_upgrade n2; fail_upgrade n3; advance 100; lease n0 operation=validate;"
        "fail n0; fail_upgrade n0; advance 100; !lease n4; !start n4"
    ),
    accepted_failures_end_the_halt=f"{HALTED} accept 1; start n4; !lease n5",
    another_accepted_number_restarts_the_proof=(
        f"{PROVEN} accept 1; advance 1; lease n2; lease n3; lease n4; !lease n5"
    ),
    only_later_validations_count_for_the_restarted_proof=(
        f"{PROVEN} accept 1; advance 1; lease n0; release n0; lease n1; release n1;"
        "label_state drain-required n0; rewrite n0 state=upgrade-done;"
        "label_state drain-required n1; rewrite n1 state=upgrade-done;"
        "lease n2; lease n3; lease n4; !lease n5"
    ),
    accepted_failures_are_of_one_target=f"{HALTED} accept 5 target=t9; !start n4",
    accepted_failures_are_of_one_pool=f"{HALTED} accept 5 pool=nvidiadriver-x; !start n4",
    a_lowered_number_holds_once_the_former_is_stale=(
        f"{HALTED} accept 2; advance 1; accept 0; advance 10; start n4; advance 91; !lease n5"
    ),
    a_retry_needs_no_new_place_under_a_lowered_allowance=(
        "accept 1; lease n1; lease n2; fail_upgrade n0; accept 0; advance 200; lease n0; !lease n3"
    ),
    a_lease_restored_by_others_is_no_grant_of_ours=(
        "lease n0; lease n1; lose_lease n1; lease n2; give_lease n1 token=1; !lease n3"
    ),
    a_lease_restored_by_others_on_a_halted_target_is_no_grant_of_ours=(
        f"{HALTED} lose_lease n4; give_lease n4 token=1"
    ),
    a_lease_restored_by_others_outside_the_counts_is_no_grant_of_ours=(
        f"fail_upgrade n0 {EARLIER}; fail_upgrade n1 {EARLIER}; lease n1 outside=True;"
        "lose_lease n1; lease n0 outside=True; give_lease n1 token=2"
    ),
    a_driver_label_moved_by_others_is_no_start_and_hides_none=(
        f"{HALTED} label_driver {LABEL} n4; !start n4"
    ),
    a_node_failed_on_an_earlier_target_is_outside_the_counts=(
        f"fail_upgrade n0 {EARLIER}; fail_upgrade n1 {EARLIER}; advance 100; lease n2; lease n3;"
        "lease n0 outside=True; !lease n1 outside=True"
    ),
    a_node_that_lost_its_record_in_flight_is_outside_the_counts=(
        f"begin_upgrade n0 {EARLIER}; lose_record n0; lose_lease n0; ask adopt n0; lease n1;"
        "lease n2; lease n0 outside=True; !lease n3"
    ),
    a_node_that_lost_its_lease_after_its_start_is_outside_the_counts=(
        f"begin_upgrade n0 {EARLIER}; lose_lease n0; ask adopt n0; lease n1; lease n2;"
        "lease n0 outside=True"
    ),
    a_node_that_lost_its_lease_before_its_start_is_counted=(
        f"lease n0 {EARLIER}; lose_lease n0; ask adopt n0; lease n1; lease n2;"
        "!lease n0 outside=True"
    ),
    a_record_lost_outside_the_counts_keeps_the_earlier_failure=(
        f"fail_upgrade n0 {EARLIER}; lease n2; lease n0 outside=True; lose_record n0;"
        "lose_lease n0; ask adopt n0; lease n3; lease n0 outside=True"
    ),
    a_node_that_failed_before_its_start_is_counted=(
        f"lease n0 {EARLIER}; fail n0 cause=eviction; lease n1 {EARLIER}; fail n1 cause=eviction;"
        "advance 100; lease n0; lease n1; !lease n2"
    ),
    a_failure_of_a_node_that_failed_before_its_start_counts=(
        f"lease n0 {EARLIER}; fail n0 cause=eviction; lease n1 {EARLIER}; fail n1 cause=eviction;"
        "advance 100; fail_upgrade n0; fail_upgrade n1; advance 10; !lease n2"
    ),
)
def test_two_failures_halt_a_target(story: str) -> None:
    builder = JournalBuilder(*FLEET).play(story)
    assert i8_revisions(builder) == builder.planted


@cases(
    "story texts",
    an_unproven_target=(
        "fail_upgrade n0; lease n1; lease n2",
        [
            (
                f"n2 was granted for {OF_TARGET}, which is unproven: 2 nodes were in flight or had"
                " failed already"
            )
        ],
    ),
    a_halted_target=(
        f"{HALTED} lease n5; start n4",
        [
            f"n5 was granted for {OF_TARGET}, which is halted: 2 nodes failed on it",
            f"n4 was started on {OF_TARGET}, which is halted: 2 nodes failed on it",
        ],
    ),
    a_node_outside_the_counts=(
        (
            f"fail_upgrade n0 {EARLIER}; fail_upgrade n1 {EARLIER}; lease n0 outside=True;"
            "lease n1 outside=True"
        ),
        [
            (
                f"n1 was granted for {OF_TARGET} while another node that had failed before was in"
                " flight"
            )
        ],
    ),
    a_forgotten_failure=(
        "targets t2=$both; targets t2=$one",
        [f"the Rollout of pool {POOL} forgot that uid-n2 failed on target t2"],
    ),
    a_halt_by_nodes_that_vanished=(
        (
            "accept 1; lease n2; begin_upgrade n0; delete Node n0; fail_upgrade n1; accept 0;"
            "advance 200; lease n3; start n2"
        ),
        [
            (
                f"n3 was granted for {OF_TARGET}, which is unproven: 2 nodes were in flight or had"
                " failed or vanished already"
            ),
            f"n2 was started on {OF_TARGET}, which is halted: 2 nodes failed or vanished on it",
        ],
    ),
    a_forgotten_node_that_vanished=(
        "vanish t2 n2 n3; vanish t2 n3",
        [f"the Rollout of pool {POOL} forgot that uid-n2 vanished on target t2"],
    ),
    a_dropped_target_from_which_a_node_vanished=(
        "targets t2=$none; begin_upgrade n2; delete Node n2; targets",
        [f"the Rollout of pool {POOL} dropped target t2, on which 1 nodes failed or vanished"],
    ),
    a_dropped_target=(
        "targets t2=$none; fail_upgrade n2; targets",
        [f"the Rollout of pool {POOL} dropped target t2, on which 1 nodes failed"],
    ),
)
def test_the_message_names_target_and_pool(story: str, texts: list[str]) -> None:
    builder = RolloutBuilder(*FLEET).play(story, both=["n2", "n3"], one=["n3"], none=[])
    assert messages(journal(builder), "I8") == texts


def test_a_node_outside_the_counts_neither_halts_nor_starts_on_a_halted_target() -> None:
    builder = JournalBuilder(*FLEET)
    for name in ("n0", "n1", "n2"):
        builder.play(f"fail_upgrade {name} {EARLIER}")
    for name in ("n0", "n1", "n0", "n1"):
        builder.play(f"fail_upgrade {name} outside=True")
    builder.play("advance 100; fail_upgrade n3; fail_upgrade n4; fail_upgrade n5; advance 10")
    builder.play("!lease n2 outside=True")
    assert i8_revisions(builder, 3) == builder.planted


def test_a_decision_on_earlier_revisions_is_no_violation() -> None:
    builder = JournalBuilder(*FLEET).play(HALTED)
    seen = {"nodes": str(builder.revisions[-2].revision)}
    builder.records["n4"] = replace(builder.records["n4"], seen=seen)
    builder.start("n4")
    assert i8_revisions(builder) == []
    builder.play("advance 90; !lease n5 seen=$seen", seen=seen)
    assert builder.planted[0] in i8_revisions(builder)


@pytest.mark.parametrize(("since", "problems"), [(0, 0), (10, 0), (11, 1)])
def test_facts_accept_failures_from_their_exact_time(since: float, problems: int) -> None:
    builder = JournalBuilder(*FLEET).play(HALTED)
    since += builder.time
    builder.play("advance 10; !start n4")
    facts = journal(builder).pools[0]
    accepted = builder.facts(
        failure_threshold=2, max_unavailable="100%", since=since, accepted={TARGET: 1}
    )
    assert i8_revisions(builder, pools=(facts, accepted)) == builder.planted[:problems]
    assert i8_revisions(builder, pools=(facts,)) == builder.planted


@pytest.mark.parametrize(("base", "allowed"), [(5, 1), (10, 2), (None, 2)])
def test_a_given_base_determines_the_threshold(base: int | None, allowed: int) -> None:
    builder = JournalBuilder(*FLEET)
    leases = [builder.lease(name).revision for name in FLEET]
    facts = builder.facts(failure_threshold="20%", base=base, max_unavailable=10)
    assert i8_revisions(builder, pools=(facts,)) == leases[allowed:]


@cases(
    "story",
    the_base_of_the_rollout_determines_it="base 5; lease n0; !lease n1",
    a_base_above_the_number_of_nodes_is_capped="base 1000; lease n0; lease n1; !lease n2",
    it_is_fixed_when_the_target_begins=(
        "base 10; delete Node n8; delete Node n9; lease n0; lease n1; !lease n2"
    ),
)
def test_the_threshold_is_a_share_of_the_base(story: str) -> None:
    builder = JournalBuilder(*FLEET).play(story)
    assert i8_revisions(builder, "20%") == builder.planted


@cases(
    "story",
    nodes_in_flight_are_counted="lease n0; begin; lease n1; !lease n2",
    a_node_failed_on_an_earlier_target_is_outside_the_counts=(
        f"fail_upgrade n0 {EARLIER}; begin; lease n2; lease n3; lease n0 outside=True"
    ),
    a_node_that_worked_is_counted=(
        f"pass_upgrade n0 {EARLIER}; begin; lease n2; lease n3; !lease n0 outside=True"
    ),
    a_proven_driver_may_be_restarted=(
        "pass_upgrade n0; targets t2=$two; begin; begin_upgrade n0 operation=same-label"
    ),
    a_driver_without_passed_evidence_must_not=(
        "begin_upgrade n0; finish n0 passed=False; targets t2=$two; begin; advance 100;"
        "!lease n0 operation=same-label; !start n0"
    ),
    a_failed_driver_must_not=(
        "pass_upgrade n0; fail n0; targets t2=$two; begin; advance 100;"
        "!lease n0 operation=same-label; !start n0"
    ),
    a_node_that_vanished_keeps_its_place="vanish t2 n9; begin; lease n0; !lease n1",
    a_node_that_had_started_vanishes=(
        "targets t2=$none; begin_upgrade n0; begin; delete Node n0; lease n1; !lease n2"
    ),
    a_started_node_finishes_and_another_does_not_start=(
        "begin_upgrade n0; lease n1; targets t2=$two; begin; advance 100; validate n0; !start n1"
    ),
    a_failure_forgotten_by_the_first_write_is_reported_once=(
        "targets t2=$two; begin; !targets t2=$none"
    ),
    the_rollout_gives_the_counts=(
        "fail_upgrade n0; lease n1; targets t2=$first threshold=3; begin; advance 100; start n1;"
        "lease n2; !lease n3"
    ),
)
def test_what_was_before_the_journal_counts(story: str) -> None:
    builder = RolloutBuilder(*FLEET)
    builder.play(story, two=["n8", "n9"], none=[], first=["n0"])
    assert i8_revisions(builder) == builder.planted


@cases(
    "story",
    a_failure_is_forgotten="targets t2=$both; !targets t2=$one",
    a_proven_target_is_dropped=f"targets t2=$none; {PROVEN} targets t3=$none",
    a_proven_target_with_a_failure_is_dropped=(
        f"targets t2=$none; {PROVEN} fail_upgrade n2; targets t2=$first; targets t3=$none"
    ),
    a_halted_target_is_dropped=(
        f"targets t2=$none; {PROVEN} {FAILURES} targets t2=$both; !targets t3=$none"
    ),
    an_unproven_target_with_a_failure_is_dropped=(
        "targets t2=$none; fail_upgrade n2; targets t2=$first; !targets t3=$none"
    ),
    an_unproven_target_is_dropped="targets t2=$none; targets t3=$none",
    a_dropped_target_begins_unproven=(
        f"targets t2=$none; {PROVEN} targets t3=$none; lease n2; lease n3; !lease n4"
    ),
    nodes_in_flight_prove_a_lost_target_again=(
        f"targets t2=$none; {PROVEN} begin_upgrade n2; lease n3; delete Rollout {POOL};"
        "targets t2=$none; !lease n4; start n3; prove n2; finish n2; prove n3; finish n3; lease n5"
    ),
    a_node_granted_before_the_loss_may_start=(
        f"targets t2=$none; {PROVEN} lease n2; lease n3; snapshot; delete Rollout {POOL};"
        "targets t2=$none; lease n4 seen=snapshot"
    ),
    a_node_granted_after_the_loss_must_not=(
        f"targets t2=$none; {PROVEN} lease n2; lease n3; delete Rollout {POOL};"
        "targets t2=$none; !lease n4"
    ),
    failures_that_nodes_show_outlive_a_lost_rollout=(
        f"{HALTED} targets t2=$both; delete Rollout {POOL}; targets t2=$both; !start n4"
    ),
    failures_without_their_records_end_with_a_lost_rollout=(
        f"{HALTED} targets t2=$both; lose_record n3; delete Rollout {POOL}; targets t2=$first;"
        "advance 10; lease n5"
    ),
    nodes_that_vanished_end_with_a_lost_rollout=(
        f"targets t2=$none; begin_upgrade n0; delete Node n0; delete Rollout {POOL};"
        "targets t2=$none; lease n1; lease n2; !lease n3"
    ),
    failures_without_their_records_remain_with_the_rollout=(
        f"{HALTED} targets t2=$both; lose_record n3; !targets t2=$first; advance 10; !lease n5"
    ),
)
def test_a_rollout_forgets_no_failure(story: str) -> None:
    builder = JournalBuilder(*FLEET)
    builder.play(story, none=[], first=["n2"], one=["n3"], both=["n2", "n3"])
    assert i8_revisions(builder) == builder.planted


@cases(
    "loss problems",
    of_the_rollout=(f"delete Rollout {POOL}; targets t2=$none;", 0),
    of_the_target=("targets; targets t2=$none;", 1),
    of_nothing=("", 1),
)
def test_after_a_lost_rollout_the_threshold_follows_the_present_size(
    loss: str, problems: int
) -> None:
    builder = JournalBuilder("n0", "n1")
    builder.play(f"targets t2=$none; lease n0; node n2; node n3; {loss} lease n1", none=[])
    assert len(i8_revisions(builder, "50%")) == problems


def test_only_failures_of_targets_must_not_be_forgotten() -> None:
    builder = JournalBuilder(*FLEET)
    builder.rollout(annotated("failed", "uid-n0"))
    builder.rollout(annotated("failed", "n0"))
    assert i8_revisions(builder) == []


@pytest.mark.parametrize("story", ["lease n0", "lease n0; accept 1; lease n1"])
def test_a_target_without_a_known_threshold_is_not_judged(story: str) -> None:
    builder = JournalBuilder(*FLEET).play(story)
    other = PoolFacts(key="nvidiadriver-x", members=frozenset())
    result = judge(journal(builder, pools=(other,)))
    assert result.violations == ()
    assert result.not_judged["I8"] == UNKNOWN


def test_a_complete_target_is_proven_by_one_validation_as_far_as_the_counts_agree() -> None:
    def counts() -> TargetCounts:
        return TargetCounts(pool="p", target="t", threshold=3, allowed=[(0.0, 0)])

    unvalidated, in_flight, proven = counts(), counts(), counts()
    in_flight.validate("a")
    in_flight.in_flight.add("b")
    proven.validate("a")
    for each in (unvalidated, in_flight, proven):
        each.complete()
    assert [each.is_proven for each in (unvalidated, in_flight, proven)] == [False, False, True]
    proven.accept_failures(1, 5.0)
    assert not proven.is_proven
