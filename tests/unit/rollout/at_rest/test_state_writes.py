"""Step 1: stamping a node that wants a change, and withdrawing the stamp."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation, WaitCode
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, NodeApplyConfiguration, Step, Wait, WriteNode
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    BOOT,
    EPOCH,
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    apply_step,
    done,
    driver_pod,
    evidence,
    failed,
    idle_components,
    instant,
    label_of,
    pool,
    record,
    required,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, only_action, step_of, wait_of


def applied(step: object) -> NodeApplyConfiguration:
    assert isinstance(step, Step)
    write = only_action(step, WriteNode)
    assert not write.lowers_capacity
    return write.applied


def record_of(step: object) -> NodeRecord:
    record = applied(step).record
    assert record is not None
    return record


def test_a_stamp_changes_only_state_and_record() -> None:
    proof = evidence(OLD)
    assert applied(
        step_at_rest(done(target=OLD), pool(), instant(epoch=5))
    ) == NodeApplyConfiguration(
        state="upgrade-required",
        driver_label=label_of(OLD),
        record=NodeRecord(
            node_uid="uid-node-1",
            epoch=5,
            token=TOKEN,
            pool=POOL,
            target=OLD,
            label=label_of(OLD),
            state="upgrade-required",
            since=NOW,
            boot_id=BOOT,
            evidence=proof,
        ),
    )


WISHES = {
    "another target": done(target=OLD),
    "its driver waits to load": done(safe_load=True),
    "a new kernel": done(kernel="6.8.0-48-generic", boot_id="boot-2"),
}


@pytest.mark.parametrize("case", WISHES)
def test_a_wanted_change_is_stamped_once(case: str) -> None:
    step = step_of(step_at_rest(WISHES[case], pool(), instant()))
    assert record_of(step).state == "upgrade-required"
    assert isinstance(step_at_rest(apply_step(WISHES[case], step), pool(), instant()), Candidate)


@pytest.mark.parametrize("case", WISHES)
def test_nothing_is_stamped_where_auto_upgrade_was_never_on(case: str) -> None:
    never = pool(standing={"may_mark_required": False, "paused": "autoUpgrade is off"})
    assert isinstance(step_at_rest(WISHES[case], never, instant()), Candidate)


def test_a_skipped_node_is_stamped_but_not_for_a_missing_target() -> None:
    assert (
        record_of(step_at_rest(done(target=OLD, skip=True), pool(), instant())).state
        == "upgrade-required"
    )
    outcome = wait_of(step_at_rest(done(target=OLD), pool("target-third"), instant()))
    assert outcome.code == "target-missing"


# The policy goes back to what the node runs.


def test_a_stamp_is_withdrawn_when_the_proven_target_is_wanted_again() -> None:
    wishing = required(target=NEW)
    wishing = with_record(wishing, back_off_seconds=600.0, cause="x")
    step = step_at_rest(wishing, pool(), instant())
    assert record_of(step) == NodeRecord(
        node_uid="uid-node-1",
        epoch=EPOCH,
        token=TOKEN,
        pool=POOL,
        target=NEW,
        label=label_of(NEW),
        state="upgrade-done",
        since=NOW,
        boot_id=BOOT,
        evidence=evidence(NEW),
    )
    assert isinstance(step, Step)
    assert step_at_rest(apply_step(wishing, step), pool(), instant()) is None


NOT_PROVEN_NOW = {
    "in another boot": required(target=NEW, boot_id="boot-2"),
    "of another run": required(target=NEW, driver_pods=(driver_pod(started=NOW - 60),)),
    "under an earlier token": required(
        target=NEW, record=record(state="upgrade-required", token=TOKEN + 1, evidence=evidence(NEW))
    ),
}


@pytest.mark.parametrize("case", NOT_PROVEN_NOW)
def test_done_is_written_only_on_a_proof_of_the_current_run(case: str) -> None:
    outcome = candidate_of(step_at_rest(NOT_PROVEN_NOW[case], pool(), instant()))
    assert (outcome.operation, outcome.outside) == (Operation.VALIDATE, True)


def test_a_stamped_node_without_a_driver_pod_waits() -> None:
    outcome = wait_of(step_at_rest(required(target=NEW, driver_pods=()), pool(), instant()))
    assert outcome.code == "gate"


@pytest.mark.parametrize(
    "keeps",
    [{"asked": True}, {"evidence": None, "started": True}],
    ids=["a person asked", "it is broken"],
)
def test_a_requested_or_broken_stamp_is_not_withdrawn(keeps: dict[str, bool | None]) -> None:
    wishing = required(target=NEW)
    wishing = with_record(wishing, **keeps)
    if "evidence" in keeps:
        wishing = replace(wishing, components=idle_components())
    assert candidate_of(step_at_rest(wishing, pool(), instant())).operation is Operation.SAME_LABEL


def test_an_earlier_proof_does_not_make_a_failed_node_done() -> None:
    """It failed before its label moved; then the policy went back to what it runs."""
    kept = record(
        state="upgrade-failed", evidence=evidence(OLD), cause="eviction: ml/train-0", unproven=True
    )
    broken = failed(
        target=OLD,
        record=kept,
        driver_label=label_of(OLD),
        components=idle_components(proven=label_of(OLD)),
    )
    third = pool("target-third", targets=(OLD, "target-third"))
    stamped = step_at_rest(broken, third, instant())
    assert record_of(stamped).evidence == evidence(OLD)
    assert isinstance(stamped, Step)
    back = candidate_of(step_at_rest(apply_step(broken, stamped), pool(OLD), instant()))
    assert back.operation is Operation.VALIDATE
    assert candidate_of(step_at_rest(broken, pool(OLD), instant())).operation is Operation.VALIDATE


def wait_at_rest(view: NodeView, where: PoolView | None = None) -> Wait:
    return wait_of(step_at_rest(view, where or pool(), instant()))


@pytest.mark.parametrize(("ready", "validated"), [(True, True), (False, False)])
def test_a_matching_driver_is_only_validated_when_it_is_ready(
    *, ready: bool, validated: bool
) -> None:
    view = done(record=None, field_managers={}, driver_pods=(driver_pod(NEW, ready=ready),))
    outcome = candidate_of(
        step_at_rest(replace(view, components=idle_components()), pool(), instant())
    )
    assert (outcome.operation is Operation.VALIDATE) is validated


@pytest.mark.parametrize(("target", "runs"), [(OLD, OLD), ("", "another driver")])
def test_a_stamp_names_the_running_and_the_wanted_target(target: str, runs: str) -> None:
    outcome = step_of(step_at_rest(with_record(done(target=OLD), target=target), pool(), instant()))
    assert runs in outcome.because
    assert NEW in outcome.because


def test_a_node_on_its_wanted_driver_waits_until_the_driver_is_ready() -> None:
    view = required(target=NEW, boot_id="boot-2", driver_pods=(driver_pod(NEW, ready=False),))
    assert wait_at_rest(view).code is WaitCode.DRIVER_START
    up = candidate_of(
        step_at_rest(replace(view, driver_pods=(driver_pod(NEW),)), pool(), instant())
    )
    assert up.operation is Operation.VALIDATE


@pytest.mark.parametrize(
    ("pod", "revalidated", "validated"),
    [
        (driver_pod(NEW), "", True),
        (driver_pod(NEW, ready=False), "", False),
        (driver_pod(NEW, started=None), "", False),
        (driver_pod(NEW), driver_pod(NEW).instance, False),
    ],
)
def test_an_unproven_driver_is_validated_once_and_then_brought_up_again(
    pod: DriverPod, revalidated: str, *, validated: bool
) -> None:
    view = with_record(required(target=NEW), evidence=None, revalidated=revalidated)
    view = replace(view, driver_pods=(pod,), components=idle_components())
    outcome = candidate_of(step_at_rest(view, pool(), instant()))
    assert (outcome.operation is Operation.VALIDATE) is validated
