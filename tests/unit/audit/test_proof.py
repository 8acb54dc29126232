"""I3: returns to service with and without proof, and returns that need none."""

from typing import Any

import pytest

from libs.audit import judge
from libs.contracts.node import NodeRecord, UpgradeState
from tests.unit.audit.builders import (
    LABEL,
    OLD_LABEL,
    JournalBuilder,
    cases,
    messages,
)

UNDERWAY = "begin_upgrade; advance 60; prove;"
DONE = f"{UNDERWAY} finish;"
FAILED = f"{UNDERWAY} fail;"
RETRY = "lease operation=same-label; release;"
REMOVAL = "begin_upgrade operation=remove target= label=;"

WITHOUT = "n1 returned to service without proof:"
NO_EVIDENCE = f"{WITHOUT} its record has no evidence"
NOT_JOURNALED = f"{WITHOUT} its validator did not journal validation 1.1 as passed on this boot"
NEEDS_NEW = f"{WITHOUT} its evidence is of token 1, but token 2 needs new evidence"
NOT_REMOVED = "n1 was released without proof: no driver agent journaled a finished swap under token"


def i3_messages(builder: JournalBuilder, **sources: Any) -> list[str]:
    return messages(builder.journal(max_unavailable=2, failure_threshold=9, **sources), "I3")


@cases(
    "overrides problem",
    a_failed_validation=({"passed": False}, "is of a failed validation"),
    another_node=({"node_uid": "uid-n9"}, "is of node uid uid-n9"),
    another_boot=({"boot_id": "old"}, "is of boot old, but the node runs boot boot-n1"),
    another_label=(
        {"label": OLD_LABEL},
        f"is for label {OLD_LABEL!r}, but the node runs {LABEL!r}",
    ),
    an_older_token=({"token": 0}, "is of token 0, but token 1 needs new evidence"),
    a_later_token=({"token": 2}, "is of token 2, which was never issued"),
    no_instance=({"driver_pod_uid": "", "driver_started": 0.0}, "names no instance of the driver"),
    an_earlier_driver=({"at": 999_990.0}, "is of 999990, older than the last change of the driver"),
)
def test_wrong_evidence_is_a_violation(overrides: dict[str, Any], problem: str) -> None:
    builder = JournalBuilder("n1").play(UNDERWAY)
    builder.finish("n1", **overrides)
    assert i3_messages(builder) == [f"{WITHOUT} its evidence {problem}"]


@cases(
    "fields problems",
    as_asked=({"divided": "seven", "mig_digest": "seven"}, []),
    not_asked=({"mig_digest": "seven"}, []),
    failed=({"divided": "seven", "not_divided": "in-use", "mig_digest": "none"}, []),
    otherwise=(
        {"divided": "seven", "mig_digest": "none"},
        [f"{WITHOUT} its evidence names the MIG geometry 'none', but 'seven' was asked"],
    ),
)
def test_evidence_names_the_geometry_that_was_asked(
    fields: dict[str, Any], problems: list[str]
) -> None:
    builder = JournalBuilder("n1").play(UNDERWAY)
    builder.finish("n1", **fields)
    assert i3_messages(builder) == problems


@cases(
    "story texts",
    no_evidence=(f"{UNDERWAY} rewrite state=upgrade-done cordon=False lease=0", [NO_EVIDENCE]),
    no_record=(f"{UNDERWAY} drop_record state=upgrade-done cordon=False lease=0", [NO_EVIDENCE]),
    a_reboot_after_the_validation=(
        f"{UNDERWAY} save_evidence; reboot; finish saved=True",
        [f"{WITHOUT} its evidence is of boot boot-n1, but the node runs boot second"],
    ),
    a_validation_on_another_boot=(f"{UNDERWAY} reboot; finish", [NOT_JOURNALED]),
    no_entry_of_the_validator=(f"{UNDERWAY} forget_entries; finish", [NOT_JOURNALED]),
    a_failed_entry_of_the_validator=(
        "begin_upgrade; validate; op validator validate outcome=failed; finish",
        [NOT_JOURNALED],
    ),
    a_superseded_entry_of_the_validator=(
        "begin_upgrade; validate; op validator validate outcome=superseded; finish",
        [NOT_JOURNALED],
    ),
    an_entry_that_is_not_finished=(
        "begin_upgrade; validate; entry started validator validate outcome=done; finish",
        [NOT_JOURNALED],
    ),
    an_entry_after_the_return=(
        "begin_upgrade; validate; finish; advance 2.5; op validator validate",
        [NOT_JOURNALED],
    ),
    an_entry_within_clock_skew=(
        "begin_upgrade; validate; finish; advance 2; op validator validate",
        [],
    ),
    a_failure_without_a_new_validation=(f"{FAILED} advance 60; finish", [NEEDS_NEW]),
    a_failed_node_uncordoned_by_us=(f"{FAILED} rewrite cordon=False", [NO_EVIDENCE]),
    a_failed_node_returned_once=(f"{FAILED} rewrite cordon=False; {RETRY}", [NO_EVIDENCE]),
    a_failed_node_released_from_its_validation=(
        f"{FAILED} lease operation=validate; release",
        [NO_EVIDENCE],
    ),
    a_failed_node_shown_by_its_label_alone=(
        f"{UNDERWAY} rewrite state=upgrade-failed lease=0; rewrite cordon=False",
        [NO_EVIDENCE],
    ),
    a_dropped_record_of_a_failed_node=(
        (
            f"{UNDERWAY} save_evidence; drop_record state=upgrade-failed lease=0; require token=1;"
            "finish saved=True"
        ),
        [NEEDS_NEW],
    ),
    a_changed_node_released_even_cordoned=(
        "cordon; begin_upgrade; release cordon=True",
        [NO_EVIDENCE],
    ),
    a_moved_label=("begin_upgrade; release", [NO_EVIDENCE]),
    a_moved_label_without_the_started_flag=(
        f"lease; rewrite driver={LABEL}; release",
        [NO_EVIDENCE],
    ),
    a_started_flag_dropped=("begin_upgrade; rewrite started=False; release", [NO_EVIDENCE]),
    a_start_with_the_first_record=("lease started=True; release", [NO_EVIDENCE]),
    a_cordon_dropped_midway=("begin_upgrade; rewrite cordon=False", [NO_EVIDENCE]),
    a_label_written_again=(
        (
            f"{UNDERWAY} save_evidence; advance 10; label_driver None; start; validate;"
            "finish saved=True"
        ),
        [f"{WITHOUT} its evidence is of 1000060, older than the last change of the driver"],
    ),
    a_restart_with_the_lease=(
        f"{FAILED} advance 100; lease operation=restart started=True; prove; finish at=1000150",
        [f"{WITHOUT} its evidence is of 1000150, older than the last change of the driver"],
    ),
    another_present_label=(
        f"{UNDERWAY} save_evidence; label_driver mine; finish saved=True",
        [f"{WITHOUT} its evidence is for label {LABEL!r}, but the node runs 'mine'"],
    ),
    a_first_bring_up=(
        "begin_upgrade operation=bring-up; finish passed=False",
        [f"{WITHOUT} its evidence is of a failed validation"],
    ),
    an_upgrade_withdrawn_after_a_reboot=(
        f"{DONE} save_evidence; require; reboot; finish saved=True",
        [f"{WITHOUT} its evidence is of boot boot-n1, but the node runs boot second"],
    ),
    a_division_that_began=(
        f"{DONE} save_evidence; lease operation=mig; start restart=True; finish saved=True",
        [NEEDS_NEW],
    ),
    an_aborted_validation=(
        f"{DONE} save_evidence; lease operation=validate; finish saved=True",
        [NEEDS_NEW],
    ),
    a_validation_that_ends_in_place=(
        (
            f"{DONE} rewrite lease=2 token=2 operation=validate; rewrite;"
            "rewrite lease=0 operation=None"
        ),
        [NEEDS_NEW],
    ),
    a_removal_without_an_entry=(
        f"{REMOVAL} drop_record lease=0 cordon=False",
        [f"{NOT_REMOVED} 1"],
    ),
    a_removal_that_failed=(
        f"{REMOVAL} op driver swap outcome=failed; drop_record lease=0 cordon=False",
        [f"{NOT_REMOVED} 1"],
    ),
    a_removal_by_another_component=(
        f"{REMOVAL} op discovery swap; drop_record lease=0 cordon=False",
        [f"{NOT_REMOVED} 1"],
    ),
    a_removal_by_another_command=(
        f"{REMOVAL} op driver idle; drop_record lease=0 cordon=False",
        [f"{NOT_REMOVED} 1"],
    ),
    a_removal_that_ends_as_done=(
        f"{REMOVAL} op driver swap; finish passed=False",
        [f"{WITHOUT} its evidence is of a failed validation"],
    ),
    a_person_who_only_labels_a_failed_node=(
        f"{FAILED} label n1 team/colour red; {RETRY}",
        [NO_EVIDENCE],
    ),
    a_person_who_labels_a_failed_node_without_a_cordon=(
        f"{UNDERWAY} uncordon; fail; label n1 team/colour red; {RETRY}",
        [NO_EVIDENCE],
    ),
    a_person_who_uncordons_before_the_failure=(
        f"{UNDERWAY} uncordon; fail cordon=True; {RETRY}",
        [NO_EVIDENCE],
    ),
    a_retry_without_a_cordon=(
        f"{UNDERWAY} uncordon; fail; lease operation=same-label cordon=False; release",
        [NO_EVIDENCE],
    ),
    a_retry_that_starts_after_a_person_uncordoned=(
        f"{FAILED} uncordon; lease operation=same-label; start restart=True; release",
        [NO_EVIDENCE],
    ),
    a_node_changed_at_the_start_of_the_journal=(
        "begin_upgrade; begin; rewrite cordon=False",
        [NO_EVIDENCE],
    ),
    a_node_failed_at_the_start_of_the_journal=(
        "begin_upgrade; fail; begin; rewrite cordon=False",
        [NO_EVIDENCE],
    ),
    an_old_token_after_a_failure_at_the_start=(f"{FAILED} begin; finish token=1", [NEEDS_NEW]),
    an_old_token_after_a_start_at_the_start=(
        f"{DONE} begin_upgrade; begin; finish token=1",
        [NEEDS_NEW],
    ),
)
def test_a_return_without_proof_is_a_violation(story: str, texts: list[str]) -> None:
    assert i3_messages(JournalBuilder("n1").play(story)) == texts


@cases(
    "story",
    a_failed_node_after_a_new_validation=f"{FAILED} lease operation=validate; prove; finish",
    a_failed_node_that_keeps_its_cordon_after_a_retry=(
        f"{FAILED} lease operation=same-label cordon=False; release cordon=True"
    ),
    a_failed_node_that_keeps_its_cordon_after_a_validation=(
        f"{FAILED} lease operation=validate; release cordon=True"
    ),
    a_failed_node_uncordoned_by_a_person=f"{FAILED} uncordon; {RETRY} {RETRY}",
    a_failed_node_uncordoned_and_labelled=f"{FAILED} uncordon; label n1 team/colour red; {RETRY}",
    a_failure_before_the_start="lease; fail cordon=False cause=eviction",
    a_release_before_the_start="lease; release",
    a_division_released_before_the_start=(
        f"{DONE} save_evidence; lease operation=mig; reboot; finish saved=True"
    ),
    a_release_before_the_start_of_a_node_leased_at_the_start="lease; begin; release",
    a_release_before_the_start_after_a_reboot=(
        f"{DONE} reboot; rewrite lease=2 token=2 operation=same-label;"
        "rewrite lease=0 operation=None"
    ),
    a_reverted_edit_of_the_state=(
        f"{DONE} reboot; label_state drain-required; rewrite state=upgrade-done"
    ),
    an_upgrade_withdrawn=f"{DONE} save_evidence; require; finish saved=True",
    an_upgrade_withdrawn_under_its_lease=f"{DONE} save_evidence; lease; finish saved=True",
    a_running_validation=f"{DONE} reboot; rewrite lease=2 token=2 operation=validate; rewrite",
    a_validation_shown_as_done_before_its_lease_ends=(
        f"{DONE} lease operation=validate; rewrite state=upgrade-done"
    ),
    a_validation_with_the_started_flag=f"{DONE} lease operation=validate started=True; release",
    evidence_without_a_time="begin_upgrade; prove; finish at=0.0",
    evidence_within_clock_skew="begin_upgrade; op validator validate; finish at=999998.0",
    a_driver_without_a_pod=f"{UNDERWAY} finish driver_pod_uid=",
    evidence_after_a_restart=(
        f"{DONE} advance 100; lease operation=same-label; start restart=True; advance 60; prove;"
        "finish"
    ),
    a_removal_with_an_entry=f"{REMOVAL} op driver swap unload:ok; drop_record lease=0 cordon=False",
)
def test_a_return_with_proof_or_without_a_change_is_no_violation(story: str) -> None:
    assert i3_messages(JournalBuilder("n1").play(story)) == []


@pytest.mark.parametrize(("label", "problems"), [("as-it-came", 0), ("other", 1)])
def test_without_a_driver_label_the_label_of_the_record_needs_proof(
    label: str, problems: int
) -> None:
    builder = JournalBuilder()
    builder.play(
        f"node driver=; lease operation=validate label=as-it-came; prove; finish label={label}"
    )
    assert len(i3_messages(builder)) == problems


def test_a_failure_needs_evidence_of_a_later_token_than_its_record_says() -> None:
    builder = JournalBuilder("n1")
    builder.records["n1"] = NodeRecord(
        node_uid="uid-n1", epoch=1, token=3, target="t2", label=OLD_LABEL
    )
    builder.play("fail; op validator validate; finish")
    assert i3_messages(builder) == [
        f"{WITHOUT} its evidence is of token 3, but token 4 needs new evidence"
    ]


def test_an_adopted_node_needs_no_proof_until_its_cordon_is_dropped() -> None:
    builder = JournalBuilder("n1").play("begin_upgrade; lose_record value=None; ask adopt")
    builder.records["n1"] = NodeRecord(
        node_uid="uid-n1", epoch=1, token=1, state=UpgradeState.UPGRADE_REQUIRED
    )
    builder.play("rewrite lease=0 state=upgrade-required clears=True")
    assert i3_messages(builder) == []
    builder.play("rewrite cordon=False")
    assert i3_messages(builder) == [NO_EVIDENCE]


def test_a_removal_ignores_evidence_left_in_the_record() -> None:
    builder = JournalBuilder("n1").play(f"{DONE} {REMOVAL}")
    left = builder.evidence("n1", op=7)
    builder.play("op driver swap unload:ok; rewrite evidence=$left", left=left)
    builder.play("release")
    assert i3_messages(builder) == []


def test_without_entries_a_removal_is_not_judged() -> None:
    builder = JournalBuilder("n1").play(f"{REMOVAL} release")
    assert i3_messages(builder, entries=None) == []
    assert judge(builder.journal(entries=None)).not_judged["I3"] == "entries"


def test_missing_boot_ids_are_reported_as_a_missing_source() -> None:
    builder = JournalBuilder("n1")
    del builder.revisions[0].changed["status.nodeInfo.bootID"]
    builder.upgrade("n1")
    result = judge(builder.journal())
    assert result.violations == ()
    assert result.not_judged == {"I3": "status.nodeInfo.bootID of n1"}
