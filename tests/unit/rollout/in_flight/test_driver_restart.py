"""Step 7: the old driver pod goes, and the driver agent swaps the driver."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Install, Order, Quiesce, Swap
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.node import SAFE_LOAD_ANNOTATION, Operation
from libs.contracts.reports import Refusal, RefusalCode
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import DeleteDriverPod, EvictPods, PodRef, Wait
from libs.rollout.in_flight.in_flight_node import is_old_pod
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    command,
    component,
    driver_pod,
    granted,
    install_of,
    label_of,
    on_host,
    pool,
    record,
    slot_in,
    with_build,
    with_record,
    without_component,
    without_driver,
)
from tests.unit.rollout.in_flight.builders import (
    END,
    LOADED,
    QUIET,
    WAITS_AT_GATE,
    S,
    failing_with,
    outcome_of,
    restarting,
    swapping,
)
from tests.unit.rollout.in_flight.step_runner import (
    TOKEN,
    at_phase,
    in_flight,
    run_step,
    silenced,
    with_beats,
    with_component,
    with_results,
)
from tests.unit.rollout.in_flight.test_driver_restart_ends import removal
from tests.unit.rollout.outcomes import (
    node_write,
    only_action,
    record_in,
    slot_writes,
    step_of,
    wait_of,
)

# The old pod.


@pytest.mark.parametrize("deleting", [True, False])
def test_no_swap_before_the_old_pod_is_gone(deleting: bool) -> None:
    view = restarting(driver_pod(OLD, deleting=deleting), WAITS_AT_GATE)
    wait = wait_of(outcome_of(view))
    assert wait.code == WaitCode.OLD_DRIVER
    assert f"gpu-operator/driver-{OLD}-node-1" in wait.detail
    assert wait.until == END


def test_a_pod_of_an_older_label_is_waited_for_too() -> None:
    view = restarting(driver_pod(OLD, uid="older", label="another"), WAITS_AT_GATE)
    assert wait_of(outcome_of(view)).code == WaitCode.OLD_DRIVER


@pytest.mark.parametrize("label", [label_of(NEW), ""])
def test_a_pod_that_no_label_evicts_is_deleted_by_uid(label: str) -> None:
    old = driver_pod(OLD, label=label)
    view = restarting(old)
    step = step_of(outcome_of(view))
    assert step.actions == (
        DeleteDriverPod(pod=PodRef(namespace=old.namespace, name=old.name, uid=old.uid)),
    )
    assert wait_of(outcome_of(run_step(view, step))).code == WaitCode.OLD_DRIVER


def test_only_the_recorded_old_pod_is_deleted() -> None:
    view = restarting(driver_pod(OLD, uid="foreign", label=""))
    assert wait_of(outcome_of(view)).code == WaitCode.OLD_DRIVER


def test_an_old_pod_that_never_goes_fails_the_node() -> None:
    view = with_beats(restarting(driver_pod(OLD, deleting=True)), END)
    record = failing_with(outcome_of(view, END), view, END)
    assert record.cause.startswith("driver-start: ")
    assert f"gpu-operator/driver-{OLD}-node-1" in record.cause


# Its DaemonSet.

NO_DAEMON_SET = f"the DaemonSet of driver {label_of(NEW)} does not exist"


@pytest.mark.parametrize(
    "without",
    [replace(pool(), builds={}), with_build(pool(), readiness=Readiness.MISSING)],
    ids=["no build", "no DaemonSet"],
)
def test_a_missing_daemon_set_is_named_until_the_state_times_out(without: PoolView) -> None:
    for view in (swapping(), silenced(swapping())):
        wait = wait_of(outcome_of(view, pool_view=granted(without, view)))
        assert wait.code == WaitCode.TARGET_MISSING
        assert NO_DAEMON_SET in wait.detail
        assert "namespace" in wait.who
    view = with_beats(swapping(), END)
    outcome = outcome_of(view, END, pool_view=granted(without, view))
    assert f"driver-start: {NO_DAEMON_SET}" in record_in(outcome).cause


def test_a_driver_pod_without_a_daemon_set_continues() -> None:
    view = swapping(driver_pod(NEW, ready=False))
    without = with_build(pool(), readiness=Readiness.MISSING)
    wait = wait_of(outcome_of(view, pool_view=granted(without, view)))
    assert wait.code != WaitCode.TARGET_MISSING


# The op.


def test_a_swap_carries_label_digest_and_unload_deadline() -> None:
    view = restarting(WAITS_AT_GATE)
    step = step_of(outcome_of(view))
    old = f"pod-{OLD}-node-1"
    body = Swap(label=label_of(NEW), install_digest=install_of(NEW), old_pod_uid=old)
    assert slot_writes(step) == {"driver": body}
    slot = slot_in(run_step(view, step), "driver")
    assert (slot.order, slot.deadline) == (Order(TOKEN, 1), NOW + 120)
    assert step.wait is not None
    assert (step.wait.code, step.wait.until) == (WaitCode.UNLOAD, NOW + 120)


@pytest.mark.parametrize(("loaded", "keep"), [(LOADED, True), (None, False)])
def test_a_restart_keeps_loaded_modules(loaded: LoadedDriver | None, keep: bool) -> None:
    record = {"operation": Operation.RESTART, "paused": False}
    view = restarting(WAITS_AT_GATE, record=record, loaded=loaded)
    body = slot_writes(outcome_of(view))["driver"]
    assert isinstance(body, Swap)
    assert body.keep == keep


def test_on_a_host_the_agent_installs_the_artefact_of_the_target() -> None:
    view = restarting(record={"operation": Operation.INSTALL})
    pool_view = on_host(granted(pool(), view))
    assert slot_writes(outcome_of(view, pool_view=pool_view))["driver"] == Install(
        label=label_of(NEW),
        artefact_digest=f"sha256:{install_of(NEW)}",
        install_digest=install_of(NEW),
    )


@pytest.mark.parametrize(
    ("phase", "detail", "code", "until"),
    [
        ("old-driver", "container 7", WaitCode.OLD_DRIVER, NOW + 120),
        ("unload", "pid 12 (python)", WaitCode.UNLOAD, NOW + 120),
        ("gate", "no pod asks", WaitCode.GATE, END),
        ("driver-start", "compiling", WaitCode.DRIVER_START, END),
    ],
)
def test_the_wait_follows_the_phase_of_the_agent(
    phase: str, detail: str, code: WaitCode, until: float
) -> None:
    view = at_phase(swapping(WAITS_AT_GATE), "driver", phase, detail)
    wait = wait_of(outcome_of(view))
    assert (wait.code, wait.detail, wait.until) == (code, detail, until)


def test_the_gate_and_the_kubelet_are_quoted() -> None:
    view = at_phase(swapping(replace(WAITS_AT_GATE, trouble="ErrImagePull")), "driver", "gate")
    view = replace(view, gate=Gate(why="the slot cannot be read"))
    assert "the slot cannot be read (ErrImagePull)" in wait_of(outcome_of(view)).detail


def test_a_swap_that_has_not_begun() -> None:
    at_gate = swapping(WAITS_AT_GATE)
    refuses = refusing(at_gate, RefusalCode.JOURNAL)
    for view, code in (
        (at_gate, WaitCode.UNLOAD),
        (silenced(at_gate, "driver"), WaitCode.GATE),
        (refuses, WaitCode.GATE),
    ):
        wait = wait_of(outcome_of(view))
        assert (wait.code, wait.until) == (code, END)


def refusing(view: NodeView, code: RefusalCode) -> NodeView:
    driver = view.components["driver"]
    assert driver.slot is not None
    refusal = Refusal(code=code, message="no", token=TOKEN, op=driver.slot.op)
    return with_component(view, "driver", replace(driver, refusal=refusal))


def expired(view: NodeView) -> NodeView:
    return refusing(view, RefusalCode.EXPIRED)


def superseded(view: NodeView) -> NodeView:
    return with_results(view, "driver", outcome="superseded")


def rebooted(view: NodeView) -> NodeView:
    return replace(with_record(view, boot_id="boot-2", deadline_renewed=True), boot_id="boot-2")


def overtaken(view: NodeView) -> NodeView:
    driver = view.components["driver"]
    return with_component(view, "driver", replace(driver, highest_order=Order(TOKEN, 4)))


@pytest.mark.parametrize(
    ("change", "at"), [(expired, NOW + 120), (superseded, NOW), (overtaken, NOW), (rebooted, NOW)]
)
def test_a_lapsed_op_is_sent_again(change: Callable[[NodeView], NodeView], at: float) -> None:
    view = with_beats(change(swapping(WAITS_AT_GATE, loaded=None)), at)
    step = step_of(outcome_of(view, at))
    assert isinstance(slot_writes(step)["driver"], Swap)
    slot = slot_in(run_step(view, step), "driver")
    assert slot.order > Order(TOKEN, 1)
    assert slot.deadline == at + 120


def test_an_agent_whose_clock_is_ahead_is_not_sent_repeats() -> None:
    view = refusing(swapping(WAITS_AT_GATE), RefusalCode.EXPIRED)
    step = step_of(outcome_of(view))
    assert (step.actions, step.wake_at) == ((), NOW + 120)


def test_a_swap_from_before_a_restamp_does_not_count() -> None:
    view = with_results(swapping(WAITS_AT_GATE), "driver")
    step = step_of(outcome_of(with_record(view, since=NOW + 5), NOW + 5))
    assert isinstance(slot_writes(step)["driver"], Swap)
    other = with_record(view, old_pod_uid="pod-that-ran")
    assert isinstance(slot_writes(outcome_of(other))["driver"], Swap)


def test_a_recreated_pod_is_admitted_by_a_new_swap() -> None:
    view = with_results(swapping(WAITS_AT_GATE), "driver")
    shut_gate = Gate(admitted_pod_uid="gone", waiting_pod_uid=WAITS_AT_GATE.uid)
    assert isinstance(slot_writes(outcome_of(replace(view, gate=shut_gate)))["driver"], Swap)
    admitted = Gate(admitted_pod_uid=WAITS_AT_GATE.uid, waiting_pod_uid=WAITS_AT_GATE.uid)
    assert wait_of(outcome_of(replace(view, gate=admitted))).code == WaitCode.DRIVER_START


# Conditions of the swap.


def test_resumed_components_are_quiesced_again_before_an_unload() -> None:
    view = in_flight(
        S.POD_RESTART_REQUIRED,
        record={"deadline": END},
        driver_pods=(WAITS_AT_GATE,),
        components={
            "driver": component(),
            **{name: component(command(Idle(), order=(TOKEN, 2))) for name in QUIET},
        },
        loaded=LOADED,
    )
    step = step_of(outcome_of(view))
    assert slot_writes(step) == dict.fromkeys(QUIET, Quiesce())
    assert isinstance(
        slot_writes(outcome_of(with_results(run_step(view, step), *QUIET)))["driver"], Swap
    )


@pytest.mark.parametrize("offering", ["plugin", "dra"])
def test_without_a_loaded_driver_only_the_plugin_of_a_bring_up_is_quiesced(offering: str) -> None:
    names = ("driver", offering, *(name for name in QUIET if name != "plugin"))
    parts = {name: component(command(Idle(), order=(7, 2))) for name in names}
    view = in_flight(
        S.POD_RESTART_REQUIRED, record={"deadline": END, "paused": False}, components=parts
    )
    view = replace(without_driver(view), driver_pods=(WAITS_AT_GATE,))
    assert set(slot_writes(outcome_of(view))) == {"driver"}
    first = with_record(view, operation=Operation.BRING_UP)
    assert slot_writes(outcome_of(first)) == {offering: Quiesce()}


def test_a_plugin_that_is_not_quiesced_in_time_fails_a_bring_up() -> None:
    record = {"operation": Operation.BRING_UP, "paused": False, "since": NOW}
    view = restarting(WAITS_AT_GATE, record=record)
    view = replace(view, loaded=None)
    plugin = component(
        command(Quiesce(), order=(TOKEN, 3), deadline=NOW + 240), last_beat=NOW + 200
    )
    view = with_beats(with_component(view, "plugin", plugin), NOW + 240)
    assert wait_of(outcome_of(view, NOW + 239)).code == WaitCode.QUIESCE
    record = failing_with(outcome_of(view, NOW + 240), view, NOW + 241)
    assert record.cause.startswith("quiesce: ")
    assert "plugin" in record.cause


def test_late_pods_and_operands_are_removed_before_the_unload() -> None:
    late_pod = WorkloadPod(namespace="ml", name="late", uid="u", gpu=True)
    view = restarting(WAITS_AT_GATE, pods=(late_pod,), loaded=LOADED)
    only_action(outcome_of(view), EvictPods)
    dcgm = WorkloadPod(namespace="x", name="dcgm", uid="d", exemption=EvictionExemption.OPERAND)
    wait = wait_of(outcome_of(replace(view, pods=(dcgm,))))
    assert (wait.code, wait.until) == (WaitCode.OPERANDS, END)
    swap_sent = swapping(WAITS_AT_GATE, pods=(), loaded=LOADED)
    assert wait_of(outcome_of(replace(swap_sent, pods=(late_pod,)))).code == WaitCode.UNLOAD


def test_a_driver_waiting_for_safe_load_is_released() -> None:
    step = outcome_of(restarting(WAITS_AT_GATE, safe_load=True))
    assert node_write(step).applied.cleared == (SAFE_LOAD_ANNOTATION,)
    assert record_in(step).state == S.POD_RESTART_REQUIRED


def test_unknown_pods_do_not_hold_up_a_swap() -> None:
    """The pods were evicted before the start; the kernel reports what still holds the driver."""
    view = restarting(WAITS_AT_GATE, record={"paused": True}, pods=None)
    assert list(slot_writes(outcome_of(view))) == ["driver"]


def test_a_swap_for_another_label_is_sent_again() -> None:
    view = swapping(WAITS_AT_GATE)
    assert isinstance(outcome_of(view), Wait)
    other = replace(WAITS_AT_GATE, label="another")
    moved = replace(with_record(view, label="another"), driver_pods=(other,))
    assert list(slot_writes(outcome_of(moved))) == ["driver"]


def test_a_swap_sent_at_the_moment_of_the_start_counts() -> None:
    assert isinstance(outcome_of(swapping(WAITS_AT_GATE, record={"since": NOW})), Wait)
    assert list(slot_writes(outcome_of(with_record(swapping(WAITS_AT_GATE), since=NOW + 1))))


@pytest.mark.parametrize("ahead", [1.9, 60.0, 3600.0])
def test_a_state_that_begins_in_the_future_is_sent_one_swap(ahead: float) -> None:
    """An earlier leader may have had a clock that was ahead; each swap was taken for an older's."""
    view = swapping(WAITS_AT_GATE, record={"since": NOW + ahead})
    assert isinstance(outcome_of(view, NOW + 0.1), Wait)


def test_a_swap_waits_where_no_driver_agent_is_expected() -> None:
    view = restarting(WAITS_AT_GATE)
    wait = wait_of(outcome_of(without_component(view, "driver")))
    assert wait.code is WaitCode.GATE
    assert "driver agent" in wait.detail


def test_a_gate_shut_after_the_swap_waits_for_the_bus() -> None:
    view = with_results(swapping(WAITS_AT_GATE), "driver")
    view = replace(view, gate=Gate(waiting_pod_uid=WAITS_AT_GATE.uid))
    assert list(slot_writes(outcome_of(view))) == ["driver"]
    assert wait_of(outcome_of(view, bus_down_since=NOW - 5)).code is WaitCode.BUS


def command_sent(view: NodeView, pool_view: PoolView) -> Swap | Install:
    body = slot_writes(outcome_of(view, pool_view=pool_view))["driver"]
    assert isinstance(body, Swap | Install)
    return body


def without_builds(method: InstallMethod) -> PoolView:
    return replace(pool(), builds={}, method=method)


def test_a_removal_swaps_to_no_driver_with_every_method() -> None:
    view = removal()
    body = Swap(label="", old_pod_uid=f"pod-target-old-{view.name}")
    for pool_view in (pool(), on_host(pool())):
        assert command_sent(view, granted(pool_view, view, target="")) == body


def test_the_command_follows_the_build_and_not_the_method_of_the_policy() -> None:
    view = restarting(WAITS_AT_GATE)
    host_pool = replace(pool(), method=InstallMethod.HOST)
    assert isinstance(command_sent(view, granted(host_pool, view)), Swap)
    container_pool = replace(on_host(pool()), method=InstallMethod.CONTAINER)
    assert isinstance(command_sent(view, granted(container_pool, view)), Install)


@pytest.mark.parametrize(
    ("operation", "method"),
    [(Operation.INSTALL, InstallMethod.CONTAINER), (Operation.UPGRADE, InstallMethod.HOST)],
)
def test_nothing_is_installed_without_an_artefact(
    operation: Operation, method: InstallMethod
) -> None:
    view = restarting(record={"operation": operation})
    wait = wait_of(outcome_of(view, pool_view=granted(without_builds(method), view)))
    assert wait.code is WaitCode.TARGET_MISSING
    assert "artefact" in wait.detail


def test_a_pod_without_a_build_is_admitted_by_its_label() -> None:
    view = restarting(WAITS_AT_GATE)
    body = command_sent(view, granted(without_builds(InstallMethod.CONTAINER), view))
    assert isinstance(body, Swap)
    assert (body.label, body.install_digest) == (WAITS_AT_GATE.label, "")


def test_a_swap_is_waited_for_no_longer_than_its_state() -> None:
    wait = step_of(outcome_of(restarting(WAITS_AT_GATE, record={"deadline": NOW + 30}))).wait
    assert wait is not None
    assert wait.until == NOW + 30


@pytest.mark.parametrize("label", ["", label_of(NEW)])
def test_a_removal_counts_every_driver_pod_as_old(label: str) -> None:
    removal = record(operation=Operation.REMOVE, target="", label="")
    assert is_old_pod(removal, driver_pod(label=label))
    upgrade = record()
    assert is_old_pod(upgrade, driver_pod(label=label)) is (label != upgrade.label)


def test_on_a_host_nothing_is_sent_while_the_artefact_is_not_named() -> None:
    """A `swap` would take the driver back and wait for a pod that no DaemonSet makes."""
    view = restarting()
    host_pool = on_host(granted(pool(), view))
    builds = {
        target: {
            variant: replace(
                build, artefact="", readiness=Readiness.MISSING, detail="no key names it"
            )
            for variant, build in by_variant.items()
        }
        for target, by_variant in host_pool.builds.items()
    }
    wait = wait_of(outcome_of(view, pool_view=replace(host_pool, builds=builds)))
    assert wait.code is WaitCode.TARGET_MISSING
    assert wait.detail == "no key names it"
