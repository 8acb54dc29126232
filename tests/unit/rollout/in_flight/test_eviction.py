"""Jobs finish and pods are evicted: which, in which order, and what a limit ends in."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.waits import ITSELF, WaitCode
from libs.policy.kinds.strategy import OnEvictionTimeout, OnJobTimeout, StrategySpec
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion, WaitForCompletion
from libs.rollout.decision import EvictPods, NodeOutcome, NoticeKind, PodRef
from libs.rollout.views.machine import EvictionExemption, PodEviction, WorkloadPod
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NOW,
    granted,
    instant,
    lease,
    pool,
    step_in_flight,
    with_record,
)
from tests.unit.rollout.in_flight.step_runner import TOKEN, in_flight, run_step
from tests.unit.rollout.outcomes import (
    node_write,
    notices_in,
    record_in,
    slot_writes,
    step_of,
    wait_of,
)

S = UpgradeState


def work(name: str = "train-0", **changes: Any) -> WorkloadPod:
    return replace(WorkloadPod(namespace="ml", name=name, uid=f"uid-{name}", gpu=True), **changes)


def evicting(
    state: UpgradeState, *pods: WorkloadPod, record: dict[str, Any] | None = None, **changes: Any
) -> NodeView:
    shown: dict[str, Any] = {"pods": pods, **changes}
    return in_flight(state, record={"deadline": NOW + 240, **(record or {})}, **shown)


def pool_for(
    view: NodeView,
    *,
    jobs: OnJobTimeout = OnJobTimeout.EVICT,
    eviction: OnEvictionTimeout = OnEvictionTimeout.FAIL,
    **upgrade: Any,
) -> PoolView:
    upgrade = {"wait_for_completion": WaitForCompletion(pod_selector="a=b"), **upgrade}
    strategy = StrategySpec(on_job_timeout=jobs, on_eviction_timeout=eviction)
    return granted(pool(upgrade=upgrade, strategy=strategy), view)


def outcome_of(view: NodeView, at: float = NOW, **options: Any) -> NodeOutcome:
    return step_in_flight(view, pool_for(view, **options), instant(at))


def evicted(outcome: NodeOutcome) -> EvictPods:
    (action,) = (action for action in step_of(outcome).actions if isinstance(action, EvictPods))
    return action


def refs(*pods: WorkloadPod) -> tuple[PodRef, ...]:
    return tuple(PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in pods)


def with_evictions(
    view: NodeView, *pods: WorkloadPod, refused: str = "", by_force: bool = False
) -> NodeView:
    jobs = (
        PodEviction(uid=pod.uid, since=NOW - 9, refused=refused, by_force=by_force) for pod in pods
    )
    return replace(view, evictions=tuple(jobs))


# Jobs.


def test_jobs_are_waited_for_by_name_until_the_limit() -> None:
    view = evicting(S.WAIT_FOR_JOBS_REQUIRED, work(job=True), work("other"))
    wait = wait_of(outcome_of(view))
    assert (wait.code, wait.until) == (WaitCode.JOBS, NOW + 240)
    assert "ml/train-0" in wait.detail
    assert "jobs" in wait.who


def test_jobs_without_a_limit_are_waited_for_indefinitely() -> None:
    view = evicting(S.WAIT_FOR_JOBS_REQUIRED, work(job=True), record={"deadline": None})
    assert wait_of(outcome_of(view, NOW + 1e8)).until is None


def test_pods_are_evicted_when_the_jobs_are_over() -> None:
    record = record_in(outcome_of(evicting(S.WAIT_FOR_JOBS_REQUIRED, work("other"))))
    assert (record.state, record.paused) == (S.POD_DELETION_REQUIRED, True)
    assert record.deadline == NOW + 300


def test_unknown_pods_are_not_treated_as_finished_jobs() -> None:
    wait = wait_of(outcome_of(evicting(S.WAIT_FOR_JOBS_REQUIRED, pods=None)))
    assert (wait.code, wait.until) == (WaitCode.JOBS, NOW + 240)


@pytest.mark.parametrize(
    ("on_timeout", "state", "back_off"),
    [
        (OnJobTimeout.EVICT, S.POD_DELETION_REQUIRED, 0.0),
        (OnJobTimeout.DEFER, S.UPGRADE_REQUIRED, 600.0),
    ],
)
def test_the_limit_for_jobs(on_timeout: OnJobTimeout, state: UpgradeState, back_off: float) -> None:
    view = evicting(S.WAIT_FOR_JOBS_REQUIRED, work(job=True))
    limit = NOW + 240
    assert wait_of(outcome_of(view, limit - 1, jobs=on_timeout)).code == WaitCode.JOBS
    record = record_in(outcome_of(view, limit, jobs=on_timeout))
    assert (record.state, record.back_off_seconds) == (state, back_off)
    assert record.back_off_until == (limit + back_off if back_off else 0.0)


# Which pods leave.

RULES = PodDeletion(force=True, delete_empty_dir=True)


@pytest.mark.parametrize(
    ("pod", "upgrade", "code"),
    [
        (work(), {}, None),
        (work(gpu=False), {}, "none"),
        (work(bare=True), {}, WaitCode.EVICTION),
        (work(bare=True), {"pod_deletion": PodDeletion(force=True)}, None),
        (work(empty_dir=True), {}, WaitCode.EVICTION),
        (work(empty_dir=True), {"pod_deletion": PodDeletion(delete_empty_dir=True)}, None),
        (work(empty_dir=True), {"gpu_pod_deletion": PodDeletion(delete_empty_dir=True)}, None),
        (work(bare=True, empty_dir=True), {"pod_deletion": RULES}, None),
        (work(deleting=True), {}, WaitCode.EVICTION),
        (work(exemption=EvictionExemption.SLUICE), {}, "none"),
        (work(exemption=EvictionExemption.DRAIN_SKIP), {}, "none"),
        (work(exemption=EvictionExemption.DAEMON_SET), {}, WaitCode.EVICTION),
        (work(exemption=EvictionExemption.MIRROR), {}, WaitCode.EVICTION),
        (work(gpu=False, exemption=EvictionExemption.DAEMON_SET), {}, "none"),
        (work(gpu=False, exemption=EvictionExemption.OPERAND), {}, WaitCode.OPERANDS),
        (work(bare=True, drained=True), {"drain": Drain(enable=True, force=True)}, "drained"),
    ],
)
def test_what_happens_to_each_kind_of_pod(
    pod: WorkloadPod, upgrade: dict[str, Any], code: WaitCode | str | None
) -> None:
    outcome = outcome_of(evicting(S.POD_DELETION_REQUIRED, pod), **upgrade)
    if code is None:
        assert evicted(outcome) == EvictPods(pods=refs(pod))
    elif code == "none":  # no pod delays the start: the components are quiesced
        assert set(slot_writes(outcome).values()) == {Quiesce()}
    elif code == "drained":
        assert record_in(outcome).state == S.DRAIN_REQUIRED
    else:
        wait = wait_of(outcome)
        assert (wait.code, wait.until) == (code, NOW + 240)
        assert "ml/train-0" in wait.detail


@pytest.mark.parametrize(
    ("pod", "drain", "leaves"),
    [
        (work(gpu=False, drained=True), Drain(enable=True), True),
        (work(gpu=False, drained=False), Drain(enable=True), None),
        (work(gpu=False, drained=True, bare=True), Drain(enable=True), False),
        (work(gpu=False, drained=True, bare=True), Drain(enable=True, force=True), True),
        (work(gpu=False, drained=True, empty_dir=True), Drain(enable=True), False),
        (
            work(gpu=False, drained=True, exemption=EvictionExemption.DAEMON_SET),
            Drain(enable=True),
            None,
        ),
        (work(gpu=True, drained=False), Drain(enable=True), True),
        (work(gpu=True, drained=True, bare=True), Drain(enable=True, force=True), True),
    ],
)
def test_which_pods_a_drain_evicts(pod: WorkloadPod, drain: Drain, leaves: bool | None) -> None:
    outcome = outcome_of(evicting(S.DRAIN_REQUIRED, pod), drain=drain)
    if leaves is None:
        assert slot_writes(outcome)
    elif leaves:
        assert evicted(outcome) == EvictPods(pods=refs(pod))
    else:
        assert wait_of(outcome).code == WaitCode.EVICTION


def test_a_drain_has_a_limit_of_its_own() -> None:
    view = evicting(S.POD_DELETION_REQUIRED, work(gpu=False, drained=True))
    record = record_in(outcome_of(view, drain=Drain(enable=True, timeout_seconds=77)))
    assert (record.state, record.deadline) == (S.DRAIN_REQUIRED, NOW + 77)


def test_unknown_pods_are_not_treated_as_evicted() -> None:
    wait = wait_of(outcome_of(evicting(S.POD_DELETION_REQUIRED, pods=None)))
    assert (wait.code, wait.until, wait.who) == (WaitCode.EVICTION, NOW + 240, ITSELF)


# The running eviction.


def test_a_running_eviction_is_not_requested_again() -> None:
    first_pod, second_pod = work("a"), work("b")
    view = evicting(S.POD_DELETION_REQUIRED, first_pod, second_pod)
    assert evicted(outcome_of(view)).pods == refs(first_pod, second_pod)
    assert wait_of(outcome_of(with_evictions(view, first_pod, second_pod))).detail.endswith(
        "ml/a, ml/b"
    )


def test_an_eviction_follows_arriving_and_exempted_pods() -> None:
    first_pod, second_pod = work("a"), work("b")
    view = evicting(S.POD_DELETION_REQUIRED, first_pod, second_pod)
    assert evicted(outcome_of(with_evictions(view, first_pod))).pods == refs(first_pod, second_pod)
    with_operand = evicting(
        S.POD_DELETION_REQUIRED,
        first_pod,
        replace(second_pod, exemption=EvictionExemption.DRAIN_SKIP),
    )
    assert evicted(outcome_of(with_evictions(with_operand, first_pod, second_pod))).pods == refs(
        first_pod
    )


def test_an_eviction_without_pods_is_cancelled() -> None:
    bare_pod = work(bare=True)
    view = with_evictions(evicting(S.POD_DELETION_REQUIRED, bare_pod), bare_pod)
    assert evicted(outcome_of(view)) == EvictPods(pods=())


def test_pods_that_are_gone_do_not_change_the_eviction() -> None:
    view = with_evictions(evicting(S.POD_DELETION_REQUIRED, work("a")), work("a"), work("gone"))
    assert wait_of(outcome_of(view)).code == WaitCode.EVICTION


def test_a_disruption_budget_that_refuses_is_named() -> None:
    pod = work()
    view = with_evictions(
        evicting(S.POD_DELETION_REQUIRED, pod), pod, refused="budget ml/train allows 0"
    )
    wait = wait_of(outcome_of(view))
    assert wait.code is WaitCode.PDB
    assert wait.detail.endswith(
        "ml/train-0: budget ml/train allows 0; at the limit the upgrade of the node fails, and the"
        " pods stay"
    )


# The limit for evictions.


@pytest.mark.parametrize("state", [S.POD_DELETION_REQUIRED, S.DRAIN_REQUIRED])
def test_the_eviction_limit_fails_the_node(state: UpgradeState) -> None:
    outcome = outcome_of(evicting(state, work()), NOW + 240)
    record = record_in(outcome)
    assert (record.state, record.cause.split(":")[0]) == (S.UPGRADE_FAILED, "eviction")
    assert (record.started, record.paused, record.deadline) == (False, False, None)
    write = node_write(outcome)
    assert (write.applied.lease, write.applied.unschedulable) == (None, True)


def test_a_failure_before_the_start_keeps_the_proof_of_the_old_driver() -> None:
    view = evicting(S.POD_DELETION_REQUIRED, work())
    outcome = outcome_of(view, NOW + 240)
    assert isinstance(view.record, NodeRecord)
    assert record_in(outcome).evidence == view.record.evidence
    assert "driver" not in slot_writes(outcome)


def test_the_eviction_limit_releases_the_node() -> None:
    view = with_evictions(evicting(S.POD_DELETION_REQUIRED, work()), work())
    outcome = outcome_of(view, NOW + 240, eviction=OnEvictionTimeout.RELEASE)
    assert step_of(outcome).actions[0] == EvictPods(pods=())
    record = record_in(outcome)
    assert (record.state, record.cause.split(":")[0]) == (S.UPGRADE_REQUIRED, "eviction")
    assert record.back_off_until == NOW + 240 + 600


def test_a_forced_deletion_has_a_limit_of_its_own() -> None:
    pods = work("a"), work("b", bare=True), work("c", deleting=True)
    force = OnEvictionTimeout.FORCE_DELETE
    view = with_evictions(evicting(S.POD_DELETION_REQUIRED, *pods), pods[0])
    step = step_of(outcome_of(view, NOW + 240, eviction=force))
    assert evicted(step) == EvictPods(pods=refs(pods[0], pods[2], pods[1]), by_force=True)
    after = run_step(view, step)
    wait = wait_of(outcome_of(after, NOW + 241, eviction=force))
    assert (wait.code, wait.until) == (WaitCode.EVICTION, NOW + 240 + 120)
    record = record_in(outcome_of(after, NOW + 360, eviction=force))
    assert record.state == S.UPGRADE_FAILED
    assert "force" in record.cause


def test_a_forced_deletion_spares_daemon_set_pods() -> None:
    view = evicting(S.POD_DELETION_REQUIRED, work(exemption=EvictionExemption.DAEMON_SET))
    outcome = outcome_of(view, NOW + 240, eviction=OnEvictionTimeout.FORCE_DELETE)
    assert wait_of(outcome).until == NOW + 360


@pytest.mark.parametrize("on_timeout", OnEvictionTimeout)
def test_the_limit_ends_an_eviction_with_unknown_pods(on_timeout: OnEvictionTimeout) -> None:
    state = S.UPGRADE_REQUIRED if on_timeout is OnEvictionTimeout.RELEASE else S.UPGRADE_FAILED
    view = evicting(S.POD_DELETION_REQUIRED, pods=None)
    assert record_in(outcome_of(view, NOW + 240, eviction=on_timeout)).state == state


def test_an_eviction_without_a_limit_never_ends() -> None:
    view = evicting(S.POD_DELETION_REQUIRED, work(bare=True), record={"deadline": None})
    assert wait_of(outcome_of(view, NOW + 1e8)).until is None


# A removed cordon.


@pytest.mark.parametrize(
    "state", [S.WAIT_FOR_JOBS_REQUIRED, S.POD_DELETION_REQUIRED, S.DRAIN_REQUIRED]
)
def test_a_removed_cordon_is_restored_and_reported(state: UpgradeState) -> None:
    view = evicting(state, work(job=True), cordoned=False, cordon_taint=False)
    view = replace(
        view, initially_cordoned=True, last_managers={NodeField.CORDON: "kubectl-uncordon"}
    )
    view = with_record(view, cordon_adopted=True)
    owners = {
        field: by for field, by in view.field_managers.items() if field is not NodeField.CORDON
    }
    view = replace(view, field_managers=owners)
    outcome = outcome_of(view)
    write = node_write(outcome)
    assert isinstance(write.applied.record, NodeRecord)
    assert not write.applied.record.cordon_adopted
    assert (write.applied.unschedulable, write.applied.state, write.lowers_capacity) == (
        True,
        state,
        False,
    )
    assert not write.applied.initially_cordoned
    (note,) = notices_in(outcome)
    assert (note.kind, note.manager) == (NoticeKind.CORDON, "kubectl-uncordon")
    assert wait_of(
        outcome_of(with_evictions(run_step(view, step_of(outcome)), work(job=True)))
    ).code in (WaitCode.JOBS, WaitCode.EVICTION)


def test_late_pods_are_evicted_during_the_quiesce() -> None:
    view = evicting(S.POD_DELETION_REQUIRED)
    after = run_step(view, step_of(outcome_of(view)))
    with_late_pod = replace(after, pods=(work("late"),))
    assert evicted(outcome_of(with_late_pod)).pods == refs(work("late"))


# The taint that follows a cordon.


def test_the_write_after_our_cordon_waits_a_second_for_the_taint() -> None:
    view = evicting(S.WAIT_FOR_JOBS_REQUIRED, cordon_taint=False)
    view = replace(view, lease=lease(token=TOKEN, since=NOW - 0.5))
    step = step_of(outcome_of(view))
    assert (step.actions, step.wake_at) == ((), NOW + 0.5)
    assert step.wait is not None
    assert step.wait.code == WaitCode.JOBS
    assert record_in(outcome_of(replace(view, cordon_taint=True))).state == S.POD_DELETION_REQUIRED
    assert record_in(outcome_of(view, NOW + 0.5)).state == S.POD_DELETION_REQUIRED


def test_slots_do_not_wait_for_the_taint() -> None:
    view = evicting(S.POD_DELETION_REQUIRED, cordon_taint=False)
    assert set(slot_writes(outcome_of(view)).values()) == {Quiesce()}
    assert Idle() not in slot_writes(outcome_of(view)).values()


def test_pod_deletion_rules_apply_to_gpu_pods_only() -> None:
    workload = WorkloadPod(namespace="ml", name="web", uid="uid-web", drained=True, bare=True)
    options: dict[str, Any] = {"pod_deletion": PodDeletion(force=True), "drain": Drain(enable=True)}
    view = evicting(S.DRAIN_REQUIRED, workload)
    assert wait_of(outcome_of(view, **options)).detail.endswith(", and force is off)")


GPU_OF_DRAIN = work("train", drained=True, empty_dir=True)
DRAINS = Drain(enable=True, delete_empty_dir=True)


@pytest.mark.parametrize(
    ("pod", "rules", "drains"),
    [
        (GPU_OF_DRAIN, DRAINS, True),
        (GPU_OF_DRAIN, replace(DRAINS, enable=False), False),
        (replace(GPU_OF_DRAIN, drained=False), DRAINS, False),
    ],
)
def test_a_drain_evicts_the_pods_that_pod_deletion_keeps(
    pod: WorkloadPod, rules: Drain, *, drains: bool
) -> None:
    outcome = outcome_of(evicting(S.POD_DELETION_REQUIRED, pod), drain=rules)
    if drains:
        assert record_in(outcome).state == S.DRAIN_REQUIRED
    else:
        assert wait_of(outcome).detail.endswith("ml/train (emptyDir, and deleteEmptyDir is off)")


@pytest.mark.parametrize("pod", [{"drained": False}, {"exemption": EvictionExemption.DAEMON_SET}])
def test_a_drain_that_would_evict_nothing_is_skipped(pod: dict[str, Any]) -> None:
    workload = replace(WorkloadPod(namespace="ml", name="web", uid="uid-web", drained=True), **pod)
    outcome = outcome_of(evicting(S.POD_DELETION_REQUIRED, workload), drain=DRAINS)
    assert set(slot_writes(outcome).values()) == {Quiesce()}


def test_a_terminating_pod_is_neither_evicted_again_nor_dropped() -> None:
    leaves = work(deleting=True)
    view = with_evictions(evicting(S.POD_DELETION_REQUIRED, leaves), leaves)
    assert wait_of(outcome_of(view)).detail.endswith("ml/train-0 (terminating)")


def test_the_eviction_is_cancelled_when_its_pod_may_stay() -> None:
    other, stays = (work("other", exemption=EvictionExemption.OPERAND), work("stays", bare=True))
    view = with_evictions(evicting(S.POD_DELETION_REQUIRED, other, stays), stays)
    step = step_of(outcome_of(view))
    assert step.actions == (EvictPods(pods=()),)


def forced(view: NodeView) -> NodeOutcome:
    return outcome_of(view, NOW + 250, eviction=OnEvictionTimeout.FORCE_DELETE)


def test_after_the_limit_pods_are_deleted_by_force_once() -> None:
    pod, gone = work(), work("gone")
    view = with_evictions(evicting(S.POD_DELETION_REQUIRED, pod), pod)
    step = step_of(forced(view))
    assert step.actions == (EvictPods(pods=refs(pod), by_force=True),)
    assert "ml/train-0" in step.because
    forced_again = replace(view, evictions=(*with_evictions(view, pod, by_force=True).evictions,))
    mixed = replace(
        view, evictions=(*forced_again.evictions, *with_evictions(view, gone).evictions)
    )
    for item in (forced_again, mixed):
        assert wait_of(forced(item)).detail.endswith("ml/train-0")


def test_a_refusal_names_only_the_pod_that_the_budget_protects() -> None:
    protected, unprotected = work("held"), work("leaves")
    view = evicting(S.POD_DELETION_REQUIRED, protected, unprotected)
    jobs = (
        *with_evictions(view, protected, refused="a budget allows none").evictions,
        *with_evictions(view, unprotected).evictions,
    )
    wait = wait_of(outcome_of(replace(view, evictions=jobs)))
    assert wait.code is WaitCode.PDB
    assert ": ml/held: a budget allows none; at the limit " in wait.detail
