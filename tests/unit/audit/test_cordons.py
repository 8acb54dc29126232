"""I4, the cordon: it stays after a release exactly where others want it."""

import msgspec
import pytest

from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    STATE_LABEL,
    UpgradeState,
)
from tests.unit.audit.builders import (
    Change,
    JournalBuilder,
    annotated,
    cordoned,
    messages,
    violations_of,
)

CORDON = "spec.unschedulable"


def finish(builder: JournalBuilder, *changes: Change) -> int:
    """Run an upgrade from the lease to done."""
    builder.lease_and_start("n1")
    builder.pass_validation("n1")
    return builder.finish("n1", *changes).revision


def i4_violations(builder: JournalBuilder) -> list[str]:
    return messages(builder.journal(), "I4")


def test_dropping_a_persons_cordon_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    write = finish(builder)
    assert i4_violations(builder) == ["n1 was uncordoned, although kubectl had cordoned it"]
    assert violations_of(builder.journal()) == [("I4", "n1", write)]


def test_dropping_a_cordon_set_midway_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    builder.cordon("n1", False)
    builder.cordon("n1")
    builder.release_unchanged("n1")
    assert i4_violations(builder) == ["n1 was uncordoned, although kubectl had cordoned it"]


def test_leaving_our_cordon_behind_is_a_violation() -> None:
    builder = JournalBuilder("n1")
    finish(builder, cordoned(True))
    assert i4_violations(builder) == ["n1 was released with our cordon left on it"]


def test_a_cordon_that_a_person_removes_midway_is_gone() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    builder.take_lease("n1")
    builder.cordon("n1", False)
    builder.apply("n1", cordoned(True), record=builder.records["n1"])
    builder.release_unchanged("n1")
    assert violations_of(builder.journal()) == []


@pytest.mark.parametrize(("stays", "problems"), [(True, 0), (None, 1)])
def test_the_keep_cordoned_label_keeps_the_cordon(stays: bool | None, problems: int) -> None:
    builder = JournalBuilder("n1")
    builder.label("n1", KEEP_CORDONED_LABEL, "true")
    finish(builder, cordoned(stays))
    assert len(i4_violations(builder)) == problems


def test_a_failed_node_keeps_its_cordon_until_a_person_removes_it() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.fail("n1")
    builder.cordon("n1", False)
    assert violations_of(builder.journal()) == []
    builder.apply("n1", cordoned(True), record=builder.records["n1"])
    assert i4_violations(builder) == [
        "n1 was cordoned without a lease, after kubectl had uncordoned it"
    ]


def test_a_failing_node_is_cordoned_again_after_a_person_uncordoned_it() -> None:
    builder = JournalBuilder("n1")
    builder.lease_and_start("n1")
    builder.cordon("n1", False)
    builder.fail("n1", cordoned(True))
    assert violations_of(builder.journal()) == []


def from_the_gpu_operator(
    state: UpgradeState, *, initially_cordoned: bool, now: bool = True
) -> JournalBuilder:
    builder = JournalBuilder("n1")
    if now:
        builder.cordon("n1", by="gpu-operator")
    builder.label("n1", STATE_LABEL, state, by="gpu-operator")
    if initially_cordoned:
        builder.annotate("n1", INITIALLY_CORDONED_ANNOTATION, "true", by="gpu-operator")
    builder.mark_required("n1")
    return builder


@pytest.mark.parametrize(
    ("state", "initially", "stays", "problems"),
    [
        (UpgradeState.DRAIN_REQUIRED, False, None, 0),
        (UpgradeState.DRAIN_REQUIRED, True, True, 0),
        (UpgradeState.DRAIN_REQUIRED, True, None, 1),
        (UpgradeState.DRAIN_REQUIRED, False, True, 1),
        (UpgradeState.UPGRADE_FAILED, False, None, 0),
        (UpgradeState.UPGRADE_DONE, False, None, 1),
        (UpgradeState.UPGRADE_DONE, False, True, 0),
        (UpgradeState.CORDON_REQUIRED, False, True, 0),
    ],
)
def test_the_cordon_of_the_gpu_operator_ends_and_a_persons_stays(
    state: UpgradeState, initially: bool, stays: bool | None, problems: int
) -> None:
    builder = from_the_gpu_operator(state, initially_cordoned=initially)
    finish(builder, cordoned(stays), annotated(INITIALLY_CORDONED_ANNOTATION, None))
    assert len(i4_violations(builder)) == problems


def test_initially_cordoned_means_nothing_without_a_cordon() -> None:
    builder = from_the_gpu_operator(UpgradeState.DRAIN_REQUIRED, initially_cordoned=True, now=False)
    finish(builder, annotated(INITIALLY_CORDONED_ANNOTATION, None))
    assert i4_violations(builder) == []


def managed(builder: JournalBuilder, owners: dict[str, list[str]]) -> list[dict[str, object]]:
    """Return the present Nodes, with these owners of `spec.unschedulable`."""
    return [
        {
            "kind": kind,
            **whole,
            "metadata": {
                **whole["metadata"],
                "managedFields": [
                    {"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
                    for manager in owners[name]
                ],
            },
        }
        for (kind, name), whole in builder.objects.items()
    ]


@pytest.mark.parametrize(
    ("owners", "problems"),
    [
        (["sluice-scheduler"], 0),
        (["kubectl"], 1),
        (["sluice-scheduler", "kubectl"], 1),
        ([], 0),
    ],
)
def test_managed_fields_name_the_owner_of_a_cordon_at_the_start(
    owners: list[str], problems: int
) -> None:
    builder = JournalBuilder("n1")
    builder.take_lease("n1")
    start = managed(builder, {"n1": owners})
    begun = len(builder.revisions)
    builder.release_unchanged("n1")
    journal = builder.journal(revisions=tuple(builder.revisions[begun:]), start=tuple(start))
    assert len(messages(journal, "I4")) == problems


def test_a_node_that_is_first_seen_midway_is_not_judged() -> None:
    builder = JournalBuilder("n1")
    builder.cordon("n1")
    finish(builder)
    journal = msgspec.structs.replace(builder.journal(), revisions=tuple(builder.revisions[3:]))
    assert messages(journal, "I4") == []
