"""I4: cordons and fields of others stay, except for the listed takeovers."""

from typing import Any

import pytest

from libs.contracts.journal import Verb
from libs.contracts.node import (
    DRIVER_LABEL,
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    MANAGER,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    STATE_LABEL,
)
from tests.unit.audit.builders import (
    LABEL,
    Change,
    JournalBuilder,
    annotated,
    cases,
    labelled,
    messages,
    violations_of,
)

UPGRADE = "begin_upgrade; prove; finish"
KEEP = f"label n1 {KEEP_CORDONED_LABEL} true"
LEFT = "n1 was released with our cordon left on it"
DROPPED = "n1 was uncordoned, although kubectl had cordoned it"
CORDONED = "n1 was cordoned without a lease, after {} had uncordoned it"


def i4_messages(builder: JournalBuilder, **sources: Any) -> list[str]:
    return messages(builder.journal(**sources), "I4")


@cases(
    "story texts",
    a_persons_cordon_is_dropped=(f"cordon; {UPGRADE}", [DROPPED]),
    a_cordon_set_midway_is_dropped=("lease; uncordon; cordon; release", [DROPPED]),
    a_persons_cordon_is_dropped_after_a_lost_record=(
        "cordon; begin_upgrade; lose_record; lose_lease; ask adopt; release",
        [DROPPED],
    ),
    our_cordon_is_left_after_an_upgrade=(f"{UPGRADE} cordon=True", [LEFT]),
    our_cordon_is_left_after_an_aborted_attempt=("lease; release cordon=True", [LEFT]),
    our_cordon_is_left_after_a_failure_of_the_gpu_operator=(
        "label_state upgrade-failed by=gpu-operator; require; lease; release cordon=True",
        [LEFT],
    ),
    our_cordon_is_left_after_a_successful_retry=(
        f"begin_upgrade; fail; {UPGRADE} cordon=True",
        [LEFT],
    ),
    our_cordon_is_left_in_the_attempt_after_a_successful_retry=(
        f"begin_upgrade; fail; {UPGRADE}; lease; release cordon=True",
        [LEFT],
    ),
    our_cordon_is_left_after_a_forgotten_attempt_without_one=(
        "lease; ask forget; release clears=True; lease; release cordon=True",
        [LEFT],
    ),
    our_cordon_is_left_twice=("lease; release cordon=True; lease; release cordon=True", [LEFT] * 2),
    a_kept_cordon_is_dropped=(
        f"{KEEP}; {UPGRADE}",
        ["n1 was uncordoned despite its label sluice.dev/keep-cordoned"],
    ),
    a_failed_node_is_cordoned_again=(
        "begin_upgrade; fail; uncordon; rewrite cordon=True",
        [CORDONED.format("kubectl")],
    ),
    a_node_is_cordoned_that_nobody_ever_cordoned=(
        "begin; rewrite cordon=True",
        [CORDONED.format("another manager")],
    ),
    a_node_is_cordoned_that_we_uncordoned=(
        "lease; release; rewrite cordon=True",
        [CORDONED.format("another manager")],
    ),
    a_cordon_is_dropped_that_the_gpu_operator_had_handed_over=(
        "cordon; label_state drain-required by=gpu-operator;"
        "label_state upgrade-done by=gpu-operator; require; " + UPGRADE,
        [DROPPED],
    ),
    an_adopted_cordon_is_left=(
        (
            "cordon; label_state upgrade-failed by=gpu-operator; require cordon_adopted=True;"
            f"{UPGRADE} cordon=True"
        ),
        [LEFT],
    ),
)
def test_a_node_is_not_cordoned_as_others_want_it(story: str, texts: list[str]) -> None:
    assert i4_messages(JournalBuilder("n1").play(story)) == texts


@cases(
    "story",
    a_persons_cordon_stays=f"cordon; {UPGRADE} cordon=True",
    a_cordon_that_a_person_removes_midway_is_gone=(
        "cordon; lease; uncordon; rewrite cordon=True; release"
    ),
    the_keep_cordoned_label_keeps_our_cordon=f"{KEEP}; {UPGRADE} cordon=True",
    the_keep_cordoned_label_needs_no_cordon=f"{KEEP}; require",
    a_failed_node_keeps_its_cordon_until_a_person_removes_it="begin_upgrade; fail; uncordon",
    a_failing_node_is_cordoned_again="begin_upgrade; uncordon; fail cordon=True",
    a_failed_node_keeps_its_cordon_through_an_aborted_retry=(
        "begin_upgrade; fail; lease; release cordon=True"
    ),
    a_forgotten_node_keeps_its_cordon_through_an_aborted_attempt=(
        "lease; ask forget; release cordon=True clears=True; lease; release cordon=True"
    ),
    the_owner_of_an_adopted_cordon_is_unknown_after_a_lost_record=(
        "cordon; label_state upgrade-failed by=gpu-operator; require cordon_adopted=True;"
        f"lose_record; ask adopt; require; {UPGRADE} cordon=True"
    ),
)
def test_a_node_is_cordoned_exactly_where_others_want_it(story: str) -> None:
    assert i4_messages(JournalBuilder("n1").play(story)) == []


@pytest.mark.parametrize(
    ("state", "initially", "cordon", "problems"),
    [
        ("drain-required", False, False, 0),
        ("drain-required", True, True, 0),
        ("drain-required", True, False, 1),
        ("drain-required", False, True, 1),
        ("upgrade-failed", False, False, 0),
        ("upgrade-done", False, False, 1),
        ("upgrade-done", False, True, 0),
        ("cordon-required", False, True, 0),
    ],
)
def test_the_cordon_of_the_gpu_operator_ends_and_a_persons_stays(
    state: str, initially: bool, cordon: bool, problems: int
) -> None:
    builder = JournalBuilder("n1")
    builder.play(f"cordon by=gpu-operator; label_state {state} by=gpu-operator")
    if initially:
        builder.annotate("n1", INITIALLY_CORDONED_ANNOTATION, "true", by="gpu-operator")
    builder.play(f"require; {UPGRADE} cordon={cordon}")
    assert len(i4_messages(builder)) == problems


def test_initially_cordoned_means_nothing_without_a_cordon() -> None:
    builder = JournalBuilder("n1").play("label_state drain-required by=gpu-operator")
    builder.annotate("n1", INITIALLY_CORDONED_ANNOTATION, "true", by="gpu-operator")
    assert i4_messages(builder.play(f"require; {UPGRADE}")) == []


@pytest.mark.parametrize(
    ("owners", "problems"),
    [([MANAGER], 0), (["kubectl"], 1), ([MANAGER, "kubectl"], 1), ([], 0)],
)
def test_managed_fields_name_the_owner_of_a_cordon_at_the_start(
    owners: list[str], problems: int
) -> None:
    builder = JournalBuilder("n1").play("lease")
    cordon = {"f:spec": {"f:unschedulable": {}}}
    builder.objects["Node", "n1"]["metadata"]["managedFields"] = [
        {"manager": manager, "fieldsV1": cordon} for manager in owners
    ]
    assert len(i4_messages(builder.play("begin; release"))) == problems


@pytest.mark.parametrize(("first", "problems"), [(0, 1), (1, 0)])
def test_a_node_first_seen_midway_has_an_unknown_cordon_owner(first: int, problems: int) -> None:
    builder = JournalBuilder("n1").play(f"{UPGRADE} cordon=True")
    assert len(i4_messages(builder, revisions=tuple(builder.revisions[first:]))) == problems


def test_a_missing_deletion_is_not_taken_for_an_uncordon() -> None:
    builder = JournalBuilder("n1").play("cordon; delete Node n1; node uid=again; require")
    del builder.revisions[2:4]
    assert i4_messages(builder) == []


@cases(
    "change paths",
    a_label_changed=(labelled("team/colour", "red"), ['metadata.labels["team/colour"]']),
    a_label_removed=(labelled("team/colour", None), ['metadata.labels["team/colour"]']),
    an_annotation_changed=(annotated("team/note", "x"), ['metadata.annotations["team/note"]']),
    an_annotation_removed=(annotated("team/note", None), ['metadata.annotations["team/note"]']),
    a_label_of_nobody_added=(labelled("team/other", "x"), []),
)
def test_fields_of_others_are_not_changed(change: Change, paths: list[str]) -> None:
    builder = JournalBuilder("n1")
    builder.label("n1", "team/colour", "blue")
    builder.annotate("n1", "team/note", "keep")
    write = builder.apply("n1", change)
    assert violations_of(builder.journal()) == [("I4", "n1", write.revision)] * len(paths)
    found = sorted(i4_messages(builder))
    for path, message in zip(paths, found, strict=True):
        assert message.startswith(f"n1: {path}, last written by kubectl, was changed by us from ")


@pytest.mark.parametrize("key", [REQUEST_ANNOTATION, REQUESTED_ANNOTATION, SAFE_LOAD_ANNOTATION])
def test_a_request_may_be_cleared_and_dropped_but_not_set(key: str) -> None:
    builder = JournalBuilder("n1")
    builder.annotate("n1", key, "true")
    builder.apply("n1", annotated(key, ""))
    builder.apply("n1", annotated(key, None))
    builder.annotate("n1", key, "true")
    assert i4_messages(builder) == []
    builder.apply("n1", annotated(key, "done"))
    assert i4_messages(builder)[0].endswith("last written by kubectl, was set by us to 'done'")


EDIT = "label_state drain-required; rewrite state=upgrade-done;"
EDIT_IN_FLIGHT = "label_state drain-required; rewrite state=pod-deletion-required;"
EDIT_DRIVER = f"label_driver mine; rewrite driver={LABEL};"
AGAIN = "last written by kubectl, was reverted by us for the second time in one attempt"
STATE_AGAIN = f'n1: metadata.labels["{STATE_LABEL}"], {AGAIN}'
DRIVER_AGAIN = f'n1: metadata.labels["{DRIVER_LABEL}"], {AGAIN}'
LOST = "n1: we wrote to it although its record is lost and there is no adopt or forget request"


@cases(
    "story texts",
    a_state_reverted_once=(f"upgrade; {EDIT}", []),
    a_state_reverted_twice=(f"upgrade; {EDIT} {EDIT}", [STATE_AGAIN]),
    a_state_reverted_once_in_each_attempt=(f"upgrade; {EDIT} upgrade; {EDIT}", []),
    a_state_reverted_in_flight_and_at_rest=(
        f"lease; {EDIT_IN_FLIGHT} start; prove; finish; {EDIT}",
        [STATE_AGAIN],
    ),
    a_state_reverted_before_and_after_a_withdrawn_mark=(
        f"upgrade; save_evidence; {EDIT} require; finish saved=True; {EDIT}",
        [STATE_AGAIN],
    ),
    a_state_reverted_before_and_after_an_adoption=(
        f"upgrade; {EDIT} lose_record; ask adopt; rewrite clears=True; {EDIT}",
        [],
    ),
    edits_reverted_by_their_author=(
        "lease;" + "label_state drain-required; label_state pod-deletion-required;" * 3 + "start;"
        "label_state $empty; label_state pod-restart-required; validate",
        [],
    ),
    the_request_upgrade_required=(
        "upgrade;" + "label_state upgrade-required; rewrite state=upgrade-done;" * 3,
        [],
    ),
    a_state_adopted_on_request=(
        "upgrade;"
        + "label_state drain-required; ask adopt; rewrite state=upgrade-done clears=True;" * 3,
        [],
    ),
    a_forgotten_node=(
        "upgrade; ask forget; drop_record state=None clears=True;"
        + "label_state drain-required; rewrite state=None;" * 2,
        [],
    ),
    a_driver_label_reverted_once_in_flight=(f"begin_upgrade; {EDIT_DRIVER}", []),
    two_labels_reverted_twice_in_flight=(
        (
            f"begin_upgrade; {EDIT_DRIVER} label_driver None; label_state None;"
            f"rewrite driver={LABEL} state=x"
        ),
        [STATE_AGAIN, DRIVER_AGAIN],
    ),
    a_driver_label_moved_under_a_lease=(
        "lease; label_driver mine; start; prove; finish; label_driver None;" * 3,
        [],
    ),
    a_driver_label_reverted_after_a_failure=(f"begin_upgrade; fail; {EDIT_DRIVER * 3}", []),
    a_state_left_by_the_gpu_operator=(
        "label_state validation-required by=gpu-operator; require",
        [],
    ),
    a_node_without_its_record=("upgrade; lose_record value=None; require", [LOST]),
    a_node_with_an_empty_record=("upgrade; lose_record value={}; require", [LOST]),
    a_node_with_a_malformed_record=("upgrade; lose_record; require", [LOST]),
    a_node_adopted_on_request=("upgrade; lose_record; ask adopt; rewrite clears=True; rewrite", []),
    a_lost_record_after_other_writes=(
        "upgrade; lose_record value=None; label n1 team/colour red; require",
        [LOST],
    ),
    an_apply_that_creates_a_node=(
        "node n9; rewrite n9 driver=x; edit_last code=201",
        ["n9: our apply created the Node: an apply must name the uid of an existing Node"],
    ),
    a_write_that_is_no_apply=(
        "require; edit_last verb=$patch",
        ["n1: we wrote it by patch instead of by an apply, which alone tracks owners"],
    ),
)
def test_takeovers_are_limited(story: str, texts: list[str]) -> None:
    builder = JournalBuilder("n1").play(story, empty="", patch=Verb.PATCH)
    assert i4_messages(builder) == texts


@cases(
    "record labels problems",
    a_malformed_record_alone=("garbled", [STATE_LABEL, DRIVER_LABEL], 0),
    a_malformed_record_and_our_driver_label=("garbled", [STATE_LABEL], 1),
    a_malformed_record_and_our_state=("garbled", [DRIVER_LABEL], 1),
    nothing=(None, [STATE_LABEL, DRIVER_LABEL], 0),
    our_state=(None, [DRIVER_LABEL], 1),
    both_labels=(None, [], 1),
    our_driver_label_beside_a_foreign_state=(None, [STATE_LABEL], 1),
)
def test_a_node_without_fields_of_ours_is_like_a_new_one(
    record: str | None, labels: list[str], problems: int
) -> None:
    builder = JournalBuilder("n1").play("upgrade")
    builder.annotate("n1", RECORD_ANNOTATION, record)
    for key in labels:
        builder.label("n1", key, "theirs")
    builder.apply("n1", labelled(STATE_LABEL, "upgrade-required"))
    assert i4_messages(builder).count(LOST) == problems


@cases(
    "story problems",
    a_driver_label_alone=("upgrade; lose_record value=None; label_state None", 0),
    an_upgrade_lease=("lease; lose_record; label_state theirs; label_driver theirs", 1),
)
def test_what_else_shows_that_a_node_was_ours(story: str, problems: int) -> None:
    builder = JournalBuilder("n1").play(story)
    builder.apply("n1", labelled(STATE_LABEL, "upgrade-required"))
    assert i4_messages(builder).count(LOST) == problems


@pytest.mark.parametrize(("owner", "problems"), [(MANAGER, 1), ("kubelet", 0)])
def test_managed_fields_show_whether_a_node_was_ours_at_the_start(
    owner: str, problems: int
) -> None:
    builder = JournalBuilder("n1").play("upgrade")
    fields = {"f:metadata": {"f:labels": {f"f:{STATE_LABEL}": {}}}}
    builder.objects["Node", "n1"]["metadata"]["managedFields"] = [
        {"manager": owner, "fieldsV1": fields}
    ]
    builder.play(f"begin; {EDIT} {EDIT}")
    assert len(i4_messages(builder)) == problems


@cases(
    "story problems",
    all_that_had_a_value=("lose_record; label_driver theirs; label_state theirs", 0),
    all_but_the_state=("lose_record; label_driver theirs", 1),
    all_but_the_driver_label=("lose_record; label_state theirs", 1),
)
def test_a_node_that_was_ours_at_the_start_is_like_a_new_one_once_all_is_overwritten(
    story: str, problems: int
) -> None:
    builder = JournalBuilder("n1").play("upgrade")
    fields = {"f:metadata": {"f:labels": {f"f:{STATE_LABEL}": {}}}}
    builder.objects["Node", "n1"]["metadata"]["managedFields"] = [
        {"manager": MANAGER, "fieldsV1": fields}
    ]
    builder.play(f"begin; {story}; require")
    assert i4_messages(builder).count(LOST) == problems


@pytest.mark.parametrize(
    ("owner", "key", "problems"),
    [
        ("kubectl", "nvidia.com/gpu.deploy.dcgm", 1),
        ("gpu-operator", "nvidia.com/gpu.deploy.dcgm", 0),
        ("nfd-master", "feature.node.kubernetes.io/pci-10de.present", 0),
        ("gpu-operator", "team/colour", 1),
        ("sluice-discovery", "nvidia.com/gpu.deploy.dcgm", 0),
        (MANAGER, "nvidia.com/gpu.deploy.dcgm", 1),
    ],
)
def test_our_other_services_take_over_labels_only_from_the_gpu_operator(
    owner: str, key: str, problems: int
) -> None:
    builder = JournalBuilder("n1")
    verb = Verb.APPLY if owner == MANAGER else Verb.PATCH
    builder.write("Node", "n1", labelled(key, "true"), manager=owner, verb=verb)
    builder.label("n1", key, "paused-for-driver-upgrade", by="sluice-discovery")
    assert len(i4_messages(builder)) == problems
