"""Done nodes with a proof that is not about the current run (docs/states.md#people)."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import NodeRecord, Operation
from libs.contracts.waits import ITSELF, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Candidate, Wait, WriteNode
from libs.rollout.limits import DRIVER_START
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    HOUR,
    NEW,
    NOW,
    OLD,
    apply_step,
    component,
    done,
    driver_pod,
    idle_components,
    instant,
    label_of,
    on_host,
    pool,
    step_at_rest,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, only_action, step_of, wait_of

AGAIN = Candidate(
    operation=Operation.VALIDATE, target=NEW, label=label_of(NEW), outside=True, by_hand=True
)


def restarted(
    *, at: float = NOW - 60, known: tuple[float, ...] = (), **changes: object
) -> NodeView:
    view = done(driver_pods=(replace(driver_pod(), started=at, **changes),))
    return with_record(view, restarts=known)


def test_an_unproven_done_node_behind_a_shut_gate_is_stamped() -> None:
    outside = replace(driver_pod(), uid="pod-b", started=None, ready=False)
    bare = done(driver_pods=(outside,), gate=Gate(waiting_pod_uid="pod-b"))
    assert isinstance(bare.record, NodeRecord)
    assert isinstance(step_at_rest(bare), Wait)  # its proof opens the gate
    bare = replace(bare, record=replace(bare.record, evidence=None))
    bare = replace(bare, components=idle_components())
    step = step_of(step_at_rest(bare))
    write = next(action for action in step.actions if isinstance(action, WriteNode))
    assert write.applied.state == "upgrade-required"
    assert "gate" in step.because
    outcome = candidate_of(step_at_rest(apply_step(bare, step)))
    assert outcome.operation is Operation.SAME_LABEL
    within = replace(bare, gate=Gate(admitted_pod_uid="pod-b", waiting_pod_uid="pod-gone"))
    assert wait_of(step_at_rest(within)).code == "gate"


def test_an_unproven_host_without_a_driver_is_stamped() -> None:
    host = on_host(pool())
    proven = done(driver_pods=(), loaded=None)
    assert isinstance(proven.record, NodeRecord)
    outcome = wait_of(step_at_rest(proven, host))  # its agent loads what is proven
    assert outcome.code == "driver-start"
    bare = replace(proven, record=replace(proven.record, evidence=None))
    bare = replace(bare, components=idle_components())
    outcome = wait_of(step_at_rest(replace(bare, modules_reported=False), host))
    assert outcome.code == "agent-silent"
    step = step_of(step_at_rest(bare, host))
    outcome = candidate_of(step_at_rest(apply_step(bare, step), host))
    assert outcome.operation is Operation.INSTALL
    assert isinstance(step_at_rest(bare), Wait)  # a container's pod brings it


def test_a_restart_is_counted_and_then_validated_without_a_cordon() -> None:
    node = restarted()
    step = step_of(step_at_rest(node))
    write = only_action(step, WriteNode)
    assert isinstance(node.record, NodeRecord)
    assert write.applied.record == replace(node.record, restarts=(NOW - 60,))
    assert (write.applied.state, write.applied.unschedulable) == ("upgrade-done", None)
    assert step_at_rest(apply_step(node, step)) == AGAIN


def test_a_recreated_pod_counts_as_a_restart() -> None:
    gone = done(driver_pods=(driver_pod(deleting=True),))
    assert isinstance(step_at_rest(gone), Wait)
    back = done(driver_pods=(driver_pod(deleting=True), driver_pod(uid="pod-b", started=NOW - 9)))
    step = step_of(step_at_rest(back))
    assert step_at_rest(apply_step(back, step)) == AGAIN


def test_another_pod_is_another_run_even_in_the_same_second() -> None:
    other = (driver_pod(OLD, uid="pod-old"), driver_pod(uid="pod-b", started=NOW - HOUR))
    assert step_at_rest(done(driver_pods=other)) == AGAIN


def test_an_old_restart_is_validated_but_not_counted() -> None:
    assert step_at_rest(restarted(at=NOW - 2 * HOUR)) == AGAIN


def test_three_restarts_within_an_hour_are_too_many() -> None:
    earlier_restarts = (NOW - 3000, NOW - 2000, NOW - 1000)
    outcome = wait_of(
        step_at_rest(
            restarted(at=NOW - 1000, known=earlier_restarts, trouble="Crashed", last_exit="ended")
        )
    )
    assert (outcome.code, outcome.until) == ("driver-restarting", NOW - 3000 + HOUR)
    assert "restarted 3 times" in outcome.detail
    assert outcome.detail.endswith(": Crashed; it ended")
    over = instant(NOW + 601)
    node = restarted(at=NOW - 1000, known=earlier_restarts)
    alive = {name: replace(part, silent_at=NOW + HOUR) for name, part in node.components.items()}
    assert step_at_rest(replace(node, components=alive), pool(), over) == AGAIN


def test_the_third_restart_is_recorded_before_the_wait() -> None:
    node = restarted(known=(NOW - 5000, NOW - 2000, NOW - 1000))
    later = apply_step(node, step_of(step_at_rest(node)))
    assert isinstance(later.record, NodeRecord)
    assert later.record.restarts == (NOW - 2000, NOW - 1000, NOW - 60)
    assert wait_of(step_at_rest(later)).code == "driver-restarting"


def test_a_boot_is_no_restart() -> None:
    node = replace(restarted(), boot_id="boot-2")
    assert step_at_rest(node) == AGAIN


def test_a_module_reload_on_a_host_is_a_restart() -> None:
    node = done(driver_pods=(), loaded=LoadedDriver(version="580.1", loaded_at=NOW - 60))
    step = step_of(step_at_rest(node, on_host(pool())))
    assert step_at_rest(apply_step(node, step), on_host(pool())) == AGAIN


# Waits of a done node until its driver has restarted.

OVERDUE = NOW - DRIVER_START
SINCE_A_BOOT = NOW - 5
WAITS: dict[str, tuple[NodeView, str, str]] = {
    "its pod is not there": (done(driver_pods=()), "gate", ""),
    "its pod waits at the gate": (
        done(boot_id="boot-2", driver_pods=(driver_pod(started=None),), gate=None),
        "gate",
        "",
    ),
    "its agent says why the gate is shut": (
        done(
            boot_id="boot-2",
            driver_pods=(driver_pod(started=None),),
            gate=Gate(waiting_pod_uid="p", why="its slot cannot be read"),
        ),
        "gate",
        "its slot cannot be read",
    ),
    "its gate gives no reason": (
        done(driver_pods=(driver_pod(ready=False, started=None),)),
        "gate",
        "",
    ),
    "it crashes": (
        restarted(at=NOW - 5, known=(NOW - 5,), ready=False, trouble="OOMKilled"),
        "driver-start",
        "OOMKilled",
    ),
    "its image is missing": (
        done(driver_pods=(driver_pod(started=None, trouble="ImagePullBackOff"),)),
        "driver-start",
        "the driver does not start: ImagePullBackOff",
    ),
    "it hangs": (
        done(boot_id="boot-2", driver_pods=(driver_pod(ready=False, started=OVERDUE),)),
        "driver-start",
        "30 minutes",
    ),
}


def test_a_driver_has_the_start_limit_before_it_is_overdue() -> None:
    starting = done(boot_id="boot-2", driver_pods=(driver_pod(ready=False, started=SINCE_A_BOOT),))
    outcome = wait_of(step_at_rest(starting))
    assert outcome.code == "driver-start"
    assert (outcome.until, outcome.who) == (SINCE_A_BOOT + DRIVER_START, ITSELF)
    overdue = wait_of(step_at_rest(starting, pool(), instant(SINCE_A_BOOT + DRIVER_START)))
    assert overdue.until is None
    assert overdue.who != ITSELF


@pytest.mark.parametrize("case", WAITS)
def test_what_a_done_node_waits_for_until_its_driver_is_back(case: str) -> None:
    node, code, detail = WAITS[case]
    outcome = wait_of(step_at_rest(node))
    assert (outcome.code, outcome.until) == (code, None)
    assert detail in outcome.detail
    assert outcome.detail == outcome.detail.strip() != ""


def test_on_a_host_unknown_modules_are_not_unloaded() -> None:
    booted = done(boot_id="boot-2", loaded=None, modules_reported=False)
    assert wait_of(step_at_rest(booted, on_host(pool()))).code == "agent-silent"


def test_a_validation_waits_for_a_silent_validator() -> None:
    deaf = {**idle_components(proven=label_of(NEW)), "validator": component(last_beat=NOW - 200)}
    node = replace(restarted(at=NOW - 2 * HOUR), components=deaf)
    settled = step_of(step_at_rest(node))
    outcome = wait_of(step_at_rest(apply_step(node, settled)))
    assert outcome.code == "agent-silent"


def test_a_validation_waits_for_a_missing_target() -> None:
    assert wait_of(step_at_rest(restarted(), pool(targets=()))).code == "target-missing"


def wait_at_rest(view: NodeView, pool_view: PoolView | None = None) -> Wait:
    return wait_of(step_at_rest(view, pool_view or pool()))


@pytest.mark.parametrize(
    ("moments", "waits"),
    [((-3.0, -2.0, -1.0), True), ((-HOUR + 1, -2.0, -1.0), True), ((-HOUR, -2.0, -1.0), False)],
)
def test_three_restarts_within_an_hour_stop_revalidation(
    moments: tuple[float, ...], *, waits: bool
) -> None:
    restarts = tuple(NOW + moment for moment in moments)
    view = with_record(done(), restarts=restarts)
    view = replace(view, driver_pods=(driver_pod(NEW, started=NOW - 1.0),))
    outcome = step_at_rest(view)
    assert (isinstance(outcome, Wait) and outcome.code is WaitCode.DRIVER_RESTARTING) is waits


def test_a_driver_that_is_briefly_not_ready_has_not_restarted() -> None:
    view = done(driver_pods=(driver_pod(NEW, ready=False, started=NOW - HOUR + 0.5),))
    assert wait_at_rest(view).code is WaitCode.DRIVER_START


@pytest.mark.parametrize(
    ("trouble", "expected"), [("", "hour"), ("CrashLoopBackOff", ": CrashLoopBackOff")]
)
def test_a_restarting_driver_reports_its_trouble(trouble: str, expected: str) -> None:
    restarts = (NOW - 3.0, NOW - 2.0, NOW - 1.0)
    pod = driver_pod(NEW, started=NOW - 1.0, trouble=trouble)
    wait = wait_at_rest(replace(with_record(done(), restarts=restarts), driver_pods=(pod,)))
    assert wait.detail.endswith(expected)


def test_a_pre_installed_driver_is_validated_in_a_new_kernel() -> None:
    view = done(kernel="6.9", driver_pods=())
    pool_view = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    assert candidate_of(step_at_rest(view, pool_view)).operation is Operation.VALIDATE
    stamped = step_of(step_at_rest(done(kernel="6.9")))
    assert "6.9" in stamped.because
