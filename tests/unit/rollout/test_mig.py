"""The GPUs of a node are divided as its label asks: alone, in an upgrade, and across a reboot."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import CommandKind, Idle, Mig
from libs.contracts.facts import Gate
from libs.contracts.node import LeaseOwner, MigState, NodeRecord, Operation, UpgradeState
from libs.contracts.reports import Progress
from libs.contracts.waits import WaitCode
from libs.fleet.node import DriverState, driver_state
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.mig.geometry import NO_DIGEST
from libs.rollout.decision import Candidate, EvictPods, Step, Wait, WriteNode, WriteSlot
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.views.machine import EvictionExemption, WantedMig, WorkloadPod
from libs.rollout.views.node import MalformedAnnotation, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    done,
    evidence,
    granted,
    instant,
    label_of,
    node,
    pool,
    required,
    slot_in,
    step,
    with_record,
)
from tests.unit.rollout.in_flight.step_runner import (
    run_step,
    with_beats,
    with_component,
    written_states,
)
from tests.unit.rollout.mig import (
    DIGEST,
    SEVEN,
    at_rest,
    divided,
    divisible,
    refused,
    run_division,
)
from tests.unit.rollout.outcomes import node_write, record_in, step_of, wait_of

S = UpgradeState
GPU_POD = WorkloadPod(namespace="work", name="train", uid="pod-train", gpu=True)


def outcome(view: NodeView, pool_view: PoolView | None = None, at: float = NOW) -> object:
    return step(view, pool_view or pool(NEW), instant(at))


def commands(steps: list[Step]) -> list[tuple[str, CommandKind]]:
    return [
        (action.component, action.command.kind)
        for each in steps
        for action in each.actions
        if isinstance(action, WriteSlot)
    ]


def mig_states(steps: list[Step]) -> list[str]:
    return [
        action.applied.mig_state
        for each in steps
        for action in each.actions
        if isinstance(action, WriteNode)
    ]


# At rest.


@pytest.mark.parametrize(
    ("view", "state"),
    [
        (at_rest(replace(SEVEN, applied=True)), MigState.SUCCESS),
        (at_rest(SEVEN), MigState.PENDING),
        (at_rest(SEVEN, MigState.SUCCESS), MigState.PENDING),
        (at_rest(replace(SEVEN, error="no such name")), MigState.FAILED),
        (at_rest(None, MigState.SUCCESS), ""),
    ],
)
def test_the_state_label_is_written_without_a_lease(view: NodeView, state: str) -> None:
    write = node_write(step_of(outcome(view)))
    assert (write.applied.mig_state, write.applied.lease) == (state, None)
    assert write.applied.state == S.UPGRADE_DONE
    assert not write.lowers_capacity


@pytest.mark.parametrize(
    "view",
    [
        at_rest(None),
        at_rest(replace(SEVEN, applied=True), MigState.SUCCESS),
        with_record(at_rest(SEVEN, MigState.SUCCESS), evidence=evidence(NEW, mig_digest=DIGEST)),
    ],
)
def test_a_node_that_is_divided_so_needs_nothing(view: NodeView) -> None:
    assert outcome(view) is None


def test_a_node_that_is_divided_otherwise_asks_for_a_start() -> None:
    wanted = Candidate(operation=Operation.MIG, target="", label=label_of(NEW))
    assert outcome(at_rest(SEVEN, MigState.PENDING)) == wanted


def test_a_reboot_that_dropped_the_geometry_asks_for_a_start() -> None:
    view = at_rest(SEVEN, MigState.PENDING, boot_id="boot-2")
    candidate = outcome(view)
    assert isinstance(candidate, Candidate)
    assert candidate.operation is Operation.MIG
    kept = outcome(at_rest(replace(SEVEN, applied=True), MigState.SUCCESS, boot_id="boot-2"))
    assert isinstance(kept, Candidate)
    assert kept.operation is Operation.VALIDATE


def test_a_damaged_lease_is_named_only_where_the_gpus_are_to_be_divided() -> None:
    damaged = MalformedAnnotation("not JSON")
    for view in (at_rest(SEVEN), at_rest(SEVEN, MigState.PENDING)):
        found = wait_of(outcome(replace(view, lease=damaged)))
        assert found.code is WaitCode.SKIPPED
        assert "leased by an unknown owner" in found.detail
    in_place = at_rest(replace(SEVEN, applied=True), MigState.SUCCESS)
    assert outcome(replace(in_place, lease=damaged)) is None


def test_after_a_reboot_facts_are_awaited_unless_no_gpu_is_to_be_divided() -> None:
    unknown = replace(SEVEN, applied=None)
    found = wait_of(outcome(at_rest(unknown, MigState.PENDING, boot_id="boot-2")))
    assert found.code is WaitCode.AGENT_SILENT
    undivided = replace(unknown, digest=NO_DIGEST)
    candidate = outcome(at_rest(undivided, MigState.SUCCESS, boot_id="boot-2"))
    assert isinstance(candidate, Candidate)
    assert candidate.operation is Operation.VALIDATE


UNKNOWN = "there is no MIG configuration `all-9g`: use one of all-disabled, all-1g.10gb"


@pytest.mark.parametrize(
    ("view", "code", "detail"),
    [
        (at_rest(replace(SEVEN, error=UNKNOWN), MigState.FAILED), "mig", UNKNOWN),
        (
            with_record(
                at_rest(SEVEN, MigState.FAILED), mig_digest=DIGEST, mig_failed="in-use: by nvsm"
            ),
            "mig",
            "the GPUs could not be divided as all-1g.10gb: in-use: by nvsm",
        ),
        (at_rest(replace(SEVEN, applied=None), MigState.PENDING), "agent-silent", "discovery"),
        (at_rest(SEVEN, MigState.PENDING, ready=False), "not-ready", "not Ready"),
        (
            with_record(
                at_rest(SEVEN, MigState.PENDING),
                back_off_until=NOW + 1,
                cause="a pod did not leave",
            ),
            "back-off",
            "a pod did not leave",
        ),
        (
            replace(done(target=NEW), mig=SEVEN, mig_state=MigState.PENDING),
            "agent-silent",
            "the driver agent does not support mig",
        ),
        (
            at_rest(SEVEN, MigState.PENDING, pods=(replace(GPU_POD, bare=True),)),
            "preflight",
            "work/train",
        ),
    ],
)
def test_why_a_node_is_not_divided(view: NodeView, code: str, detail: str) -> None:
    found = wait_of(outcome(view))
    assert found.code == WaitCode(code)
    assert detail in found.detail


# Alone.


def test_one_lease_divides_the_gpus_and_proves_them() -> None:
    view = at_rest(SEVEN, MigState.PENDING, pods=(GPU_POD,))
    after, steps = run_division(view)
    first = node_write(steps[0])
    assert first.applied.lease is not None
    assert first.applied.lease.owner is LeaseOwner.MIG
    assert (first.applied.unschedulable, first.lowers_capacity) == (True, True)
    assert [action for each in steps for action in each.actions if isinstance(action, EvictPods)]
    assert written_states(steps) == [
        S.POD_DELETION_REQUIRED,
        S.POD_RESTART_REQUIRED,
        S.VALIDATION_REQUIRED,
        S.UPGRADE_DONE,
    ]
    assert mig_states(steps) == ["pending", "pending", "pending", "success"]
    to_driver = [kind for name, kind in commands(steps) if name == "driver"]
    assert to_driver == [CommandKind.MIG, CommandKind.IDLE]
    assert (after.driver_label, after.cordoned, after.driver_pods) == (
        view.driver_label,
        False,
        view.driver_pods,
    )
    assert isinstance(after.record, NodeRecord)
    assert after.record.evidence is not None
    assert after.record.evidence.mig_digest == DIGEST
    assert after.record.target == NEW
    assert outcome(after) is None


def test_the_operation_counts_for_no_target() -> None:
    view = at_rest(SEVEN, MigState.PENDING)
    pool_view = granted(pool(NEW), view, target="")
    entry = pool_view.constraints.in_flight[view.uid]
    begun, _ = run_until_state(view, S.POD_RESTART_REQUIRED)
    leased = contribution_of(begun, entry, POOL, NOW)
    assert (leased.entry, leased.entry_differs, leased.counted_targets) == (entry, False, ())
    assert leased.unavailable
    assert not leased.is_recovery
    after, _ = run_division(view)
    ended = contribution_of(after, entry, POOL, NOW)
    assert (ended.failed_on, ended.proved_on) == ("", "")
    failed = with_record(begun, state=S.UPGRADE_FAILED)
    assert contribution_of(replace(failed, lease=None), entry, POOL, NOW).failed_on == ""


def run_until_state(view: NodeView, state: UpgradeState) -> tuple[NodeView, list[NodeView]]:
    """Return the node when it enters the state, and all views before."""
    seen: list[NodeView] = []

    def look(each: NodeView) -> NodeView:
        seen.append(each)
        return each

    run_division(view, meanwhile=look)
    return next(each for each in seen if each.state == state), seen


@pytest.mark.parametrize("code", ["in-use", "reboot-required"])
def test_a_failed_division_returns_with_the_state_failed(code: str) -> None:
    after, steps = run_division(at_rest(SEVEN, MigState.PENDING), answer=refused(code))
    assert mig_states(steps)[-1] == MigState.FAILED
    assert (after.state, after.cordoned) == (S.UPGRADE_DONE, False)
    found = wait_of(outcome(after))
    assert found.code is WaitCode.MIG
    assert "GPU-1 is in use" in found.detail
    other = outcome(replace(after, mig=replace(SEVEN, config="all-3g.40gb", digest="of-two")))
    assert node_write(step_of(other)).applied.mig_state == MigState.PENDING


def test_pods_that_do_not_leave_end_it_before_anything_changed() -> None:
    stays = replace(GPU_POD, exemption=EvictionExemption.DAEMON_SET)
    view = at_rest(SEVEN, MigState.PENDING, pods=(stays,))
    begun = step_of(outcome(view, granted(pool(NEW), view, target="")))
    record = record_in(begun)
    assert record.deadline is not None
    held = with_beats(replace(run_step(view, begun), cordon_taint=True), record.deadline)
    late = step_of(outcome(held, granted(pool(NEW), view, target=""), record.deadline + 1))
    released = node_write(late).applied
    assert (released.state, released.lease, released.unschedulable) == (S.UPGRADE_DONE, None, None)
    assert released.mig_state == MigState.FAILED
    assert record_in(late).evidence == record.evidence


def test_a_reboot_that_completes_the_geometry_is_awaited() -> None:
    wanted = replace(SEVEN, may_reboot=True)
    seen: list[NodeView] = []

    def meanwhile(each: NodeView) -> NodeView:
        seen.append(each)
        return each

    with pytest.raises(AssertionError, match="still pod-restart-required"):
        run_division(
            at_rest(wanted, MigState.PENDING),
            answer=refused("reboot-required"),
            meanwhile=meanwhile,
        )
    waiting = seen[-1]
    pool_view = granted(pool(NEW), waiting, target="")
    found = wait_of(outcome(waiting, pool_view))
    assert (found.code, found.until, waiting.mig_state) == (WaitCode.REBOOT, None, "rebooting")
    assert "which Sluice does not do" in found.detail
    booted = replace(waiting, boot_id="boot-2", evidence=None)
    after, steps = run_division(booted, pool_view)
    assert (after.state, after.mig_state) == (S.UPGRADE_DONE, MigState.SUCCESS)
    assert CommandKind.MIG in {kind for _, kind in commands(steps)}


def test_a_reboot_that_completes_nothing_is_a_failure() -> None:
    wanted = replace(SEVEN, may_reboot=True)
    reboots = iter(["boot-2"])

    def reboot(each: NodeView) -> NodeView:
        if each.mig_state == MigState.REBOOTING and each.boot_id == "boot-1":
            return replace(each, boot_id=next(reboots), evidence=None)
        return each

    after, _ = run_division(
        at_rest(wanted, MigState.PENDING), answer=refused("reboot-required"), meanwhile=reboot
    )
    assert (after.state, after.mig_state) == (S.UPGRADE_DONE, MigState.FAILED)
    assert wait_of(outcome(after)).code is WaitCode.MIG


def test_a_division_that_does_not_end_fails_under_a_driver_that_still_runs() -> None:
    begun, _ = run_until_state(at_rest(SEVEN, MigState.PENDING), S.POD_RESTART_REQUIRED)
    assert isinstance(begun.record, NodeRecord)
    assert begun.record.deadline is not None
    late = begun.record.deadline + 1
    view = with_beats(begun, late)
    record = record_in(step_of(outcome(view, granted(pool(NEW), view, target=""), at=late)))
    assert record.cause == "mig: the driver is not ready"
    failed = replace(record, state=S.UPGRADE_FAILED)
    assert (record.started, driver_state(failed)) == (True, DriverState.RUNS)


def test_the_proven_driver_comes_back_through_the_gate_after_a_reboot() -> None:
    begun, _ = run_until_state(at_rest(SEVEN, MigState.PENDING), S.POD_RESTART_REQUIRED)
    (pod,) = begun.driver_pods
    assert isinstance(begun.record, NodeRecord)
    shut = replace(
        begun,
        boot_id="boot-2",
        loaded=None,
        driver_pods=(replace(pod, ready=False, started=None),),
        gate=Gate(waiting_pod_uid=pod.uid, waiting_label=pod.label),
        record=replace(begun.record, boot_id="boot-2"),
    )
    sent = step_of(outcome(shut, granted(pool(NEW), begun, target="")))
    (action,) = sent.actions
    assert isinstance(action, WriteSlot)
    body = action.command.open()
    assert isinstance(body, Idle)
    assert body.proven is not None
    assert body.proven.label == label_of(NEW)
    told = outcome(run_step(shut, sent), granted(pool(NEW), begun, target=""))
    assert wait_of(told).code is WaitCode.DRIVER_START


def test_the_label_removed_before_the_start_releases_the_node() -> None:
    begun, _ = run_until_state(at_rest(SEVEN, MigState.PENDING), S.POD_DELETION_REQUIRED)
    released = step_of(outcome(replace(begun, mig=None), granted(pool(NEW), begun, target="")))
    applied = node_write(released).applied
    assert (applied.state, applied.lease, applied.mig_state) == (S.UPGRADE_DONE, None, "")


# In an upgrade.


@pytest.mark.parametrize(
    "view",
    [
        divisible(required(target=OLD, pods=())),
        divisible(node(pods=())),
    ],
)
def test_an_upgrade_divides_the_gpus_under_its_lease(view: NodeView) -> None:
    after, steps = run_division(view, granted(pool(NEW), view))
    to_driver = [kind for name, kind in commands(steps) if name == "driver"]
    assert to_driver == [CommandKind.SWAP, CommandKind.MIG, CommandKind.IDLE]
    last_mig = commands(steps).index(("driver", CommandKind.MIG))
    assert last_mig < commands(steps).index(("validator", CommandKind.VALIDATE))
    assert (after.state, after.mig_state) == (S.UPGRADE_DONE, MigState.SUCCESS)


def test_while_the_gpus_are_not_known_an_upgrade_divides_nothing() -> None:
    unknown = WantedMig(config="all-1g.10gb")
    view = divisible(required(target=OLD, pods=()), unknown)
    after, steps = run_division(view, granted(pool(NEW), view))
    assert CommandKind.MIG not in [kind for _, kind in commands(steps)]
    assert (after.state, after.mig_state) == (S.UPGRADE_DONE, MigState.PENDING)
    assert wait_of(outcome(after)).code is WaitCode.AGENT_SILENT


def test_a_failed_division_fails_no_upgrade() -> None:
    view = divisible(required(target=OLD, pods=()))
    after, _ = run_division(view, granted(pool(NEW), view), answer=refused("in-use"))
    assert (after.state, after.mig_state) == (S.UPGRADE_DONE, MigState.FAILED)
    assert isinstance(after.record, NodeRecord)
    assert after.record.evidence is not None
    assert after.record.evidence.passed


def test_an_agent_that_knows_no_mig_upgrades_its_driver() -> None:
    view = replace(required(target=OLD, pods=()), mig=SEVEN)
    after, steps = run_division(view, granted(pool(NEW), view))
    assert CommandKind.MIG not in {kind for _, kind in commands(steps)}
    assert (after.state, after.mig_state) == (S.UPGRADE_DONE, MigState.FAILED)


def test_a_division_that_the_validator_does_not_find_is_made_once_more() -> None:
    def other(each: NodeView) -> NodeView:
        found = each.evidence
        return each if found is None else replace(each, evidence=replace(found, mig_digest="x"))

    after, steps = run_division(at_rest(SEVEN, MigState.PENDING), meanwhile=other)
    assert [kind for _, kind in commands(steps)].count(CommandKind.MIG) == 2
    assert (after.state, after.mig_state) == (S.UPGRADE_DONE, MigState.FAILED)
    assert len(written_states(steps)) <= 8


def test_the_command_names_the_geometry() -> None:
    _, steps = run_division(at_rest(replace(SEVEN, may_reboot=True), MigState.PENDING))
    (sent,) = (
        action.command.open()
        for each in steps
        for action in each.actions
        if isinstance(action, WriteSlot) and action.command.kind is CommandKind.MIG
    )
    assert sent == Mig(config=SEVEN.config, digest=DIGEST, gpus=SEVEN.gpus, reboot=True)


def test_the_wait_for_a_division_says_what_the_agent_is_at() -> None:
    told: list[object] = []

    def at_work(view: NodeView) -> NodeView:
        slot = slot_in(view, "driver")
        at = Progress(epoch=slot.epoch, token=slot.token, op=slot.op, command="mig", phase="1 of 7")
        driver = replace(view.components["driver"], progress=at)
        working = with_component(view, "driver", driver)
        told.append(step_of(outcome(working, granted(pool(NEW), view, target=""))).wait)
        return divided(view)

    run_division(at_rest(SEVEN, MigState.PENDING), answer=at_work)
    (found,) = told
    assert isinstance(found, Wait)
    assert (found.code, found.detail) == (WaitCode.MIG, "1 of 7")


def test_components_that_hold_the_devices_are_quiet_before() -> None:
    _, steps = run_division(at_rest(SEVEN, MigState.PENDING))
    sent = commands(steps)
    before = sent[: sent.index(("driver", CommandKind.MIG))]
    assert {name for name, kind in before if kind is CommandKind.QUIESCE} == {
        "plugin",
        "telemetry",
        "discovery",
        "validator",
    }


def test_the_strategy_does_not_repeat_a_failed_division() -> None:
    after, _ = run_division(at_rest(SEVEN, MigState.PENDING), answer=refused("in-use"))
    retried = replace(pool(NEW), strategy=StrategySpec(retries=5))
    assert wait_of(outcome(after, retried, NOW + 1e6)).code is WaitCode.MIG
