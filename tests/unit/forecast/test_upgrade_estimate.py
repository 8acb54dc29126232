"""Estimates of upgrades, and the differences that change or prevent one."""

from typing import NamedTuple

import pytest

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.paths import INITIALLY_CORDONED, KEEP_CORDONED, SAFE_LOAD
from libs.forecast.stage.objects import DriverPodPhase
from libs.forecast.upgrade_estimate import UpgradeEstimate
from libs.forecast.world import NEVER, ProcessEnd, TimeSpan, ValidationEnd
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion
from libs.policy.wanted import InstallMethod
from libs.rollout import limits
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.pool import Readiness
from tests.unit.forecast.deviations import (
    Change,
    add_attempts,
    add_tenant_pod,
    agent,
    combine,
    deletion,
    driver,
    long_refused,
    machine,
    node_view,
    one_more_driver,
    only_driver_and_validator,
    pool,
    set_fields,
    tenant,
    until,
    without,
    world,
)
from tests.unit.forecast.evicting_node import (
    EIGHTH,
    NEW_LABEL,
    PACE,
    SIXTEENTH,
    WEB,
    EvictingNode,
    upgrade_stepwise,
)
from tests.unit.rollout.builders import NEW

PODS_GONE = 5 * SIXTEENTH + SIXTEENTH + 2.0
"""Until the pod is gone: five slots of an earlier leader, the request, and its end."""
DEVICES_CLOSED = 4 * SIXTEENTH + EIGHTH + 1.0
"""From there until the label moves."""
KUBELET_ACTS = 2 * EIGHTH + EIGHTH
"""From there until the kubelet acts on the label, the end of the old driver and the new driver."""
UNLOADED = 1.0 + SIXTEENTH + EIGHTH + 3.0
"""From there until the old driver has stopped and its modules are out."""
SWAPPED = KUBELET_ACTS + UNLOADED + EIGHTH
"""From the move of the label until the new driver starts."""
LOADED, READY, VALIDATED = 20.0, 1.0, 5 * SIXTEENTH + 2 * EIGHTH + 10.0
UNCORDONED = 3 * SIXTEENTH


class EstimateSummary(NamedTuple):
    """An estimate in seconds from now."""

    moves: float = PODS_GONE + DEVICES_CLOSED
    started: float = PODS_GONE + DEVICES_CLOSED + SWAPPED
    loaded: float = PODS_GONE + DEVICES_CLOSED + SWAPPED + LOADED
    ends: float = PODS_GONE + DEVICES_CLOSED + SWAPPED + LOADED + READY + VALIDATED + UNCORDONED
    unloads: int = 1
    loads: int = 1
    leaving: int = 1


def later(
    emptied: float = 0.0,
    started: float = 0.0,
    loaded: float = 0.0,
    ended: float = 0.0,
    **counts: int,
) -> EstimateSummary:
    defaults, started, loaded = EstimateSummary(), emptied + started, emptied + started + loaded
    return EstimateSummary(
        defaults.moves + emptied,
        defaults.started + started,
        defaults.loaded + loaded,
        defaults.ends + loaded + ended,
        **counts,
    )


def summary_of(
    node_stage: EvictingNode, estimate: UpgradeEstimate | None
) -> EstimateSummary | None:
    if estimate is None:
        return None
    times = (
        time - node_stage.stage.now
        for time in (
            estimate.label_moves_at,
            estimate.upgrade.driver_started,
            estimate.upgrade.driver_loaded,
            estimate.upgrade.at,
        )
    )
    return EstimateSummary(
        *times, unloads=estimate.unloads, loads=estimate.loads, leaving=len(estimate.evicted_pods)
    )


STRICT = PodDeletion()
LOAD, RUN, VALIDATION = (f"{name} {NEW_LABEL}" for name in ("load", "run", "validation"))
TO_START = SWAPPED + LOADED + READY
"""From the move of the label until the driver is ready."""

NOT_ESTIMATED: dict[str, Change] = {
    # Another operation or phase.
    "a restart": lambda node: node.set_record(operation=Operation.RESTART),
    "waiting for jobs": lambda node: node.set_record(state=UpgradeState.WAIT_FOR_JOBS_REQUIRED),
    "a cordon that was there": lambda node: node.set_record(cordon_adopted=True),
    "to be kept cordoned": lambda node: node.set_field(KEEP_CORDONED, "true"),
    "to load when it is safe": lambda node: node.set_field(SAFE_LOAD, "driver-1"),
    "cordoned before": lambda node: node.set_field(INITIALLY_CORDONED, "true"),
    # Another policy.
    "no pool": lambda node: node.state.pools.clear(),
    "a drain": lambda node: node.set_upgrade_policy(drain=Drain(enable=True)),
    "a driver on the host": pool(method=InstallMethod.HOST),
    "no build of the target": lambda node: node.set_record(target="target-else"),
    "no build for the variant": node_view(variant="rhel9"),
    "an unsettled build": lambda node: node.set_build(readiness=Readiness.UNSETTLED),
    "no DaemonSet": lambda node: node.set_build(readiness=Readiness.MISSING),
    "a build with another label": lambda node: node.set_build(label="label-else"),
    # Another machine.
    "not ready": node_view(ready=False),
    "down": machine(up=False),
    "without a kubelet": machine(kubelet_connected=False),
    "without the bus": machine(connected=False),
    "nothing loaded": machine(loaded=None),
    "a process on the host": machine(host_processes=1),
    "no validator": without("validator"),
    "no driver agent": without("driver"),
    "a dead plugin": agent("plugin", alive=False),
    "a telemetry that hangs": agent("telemetry", hung=True),
    "a validator at work": agent("validator", running=True),
    "a silent driver agent": agent("driver", silent_at=9000.0),
    # Another driver.
    "no driver": machine(admitted=""),
    "two drivers": one_more_driver,
    "a driver that has the label already": driver(label=NEW_LABEL),
    "a driver that is deleted": driver(deleting=True),
    "a driver that loads": driver(phase=DriverPodPhase.LOADING),
    "a driver that is off the machine": driver(on_machine=False),
    # Pods that need more than an eviction.
    "an operand": tenant(exemption=EvictionExemption.OPERAND),
    "an operand without a GPU": add_tenant_pod(gpus=0, exemption=EvictionExemption.OPERAND),
    "a pod of a DaemonSet": tenant(exemption=EvictionExemption.DAEMON_SET),
    "a pod that is leaving": set_fields(lambda node: node.tenant_pod, deleting=True),
    "a job": tenant(remaining=3600.0),
    "a bare pod": combine(tenant(bare=True), deletion(PodDeletion(delete_empty_dir=True))),
    "a pod with an emptyDir": combine(tenant(empty_dir=True), deletion(PodDeletion(force=True))),
    "a bare pod that uses a GPU": combine(
        tenant(bare=True), deletion(PodDeletion(force=True), gpu=STRICT)
    ),
    "a pod that is refused for ever": tenant(eviction_refused_for=None),
    "a pod that never stops": tenant(stop_seconds=None),
    "a deadline that is just reached": until(PODS_GONE),
    # Failures.
    "an image that never comes": world(pull=NEVER),
    "a driver that is never ready": world(ready=NEVER),
    "a driver that crashes later": world(run=ProcessEnd(86_400.0, 1)),
    "modules that are always in use": world(unload=ProcessEnd(2.0, 1)),
    "an unload that hangs": world(unload=ProcessEnd(None)),
    "an unload that ends at the limit": world(unload=ProcessEnd(limits.UNLOAD)),
    "a driver that does not load three times": world(load=ProcessEnd(5.0, 1), first_attempts=3),
    "a load that hangs": world(load=ProcessEnd(None)),
    "ready at the limit": world(load=ProcessEnd(limits.DRIVER_START - TO_START + LOADED)),
    "a validation that fails": world(validation=ValidationEnd(4.0, "cuda")),
    "a validation that hangs": world(validation=ValidationEnd(None)),
    "validated at the limit": world(validation=ValidationEnd(limits.VALIDATION)),
}

UNCHANGED: dict[str, Change] = {
    "no deadline": lambda node: node.set_record(deadline=None),
    "a deadline that is just not reached": until(PODS_GONE + SIXTEENTH),
    "a bare pod, with force": tenant(bare=True),
    "a pod with an emptyDir that may be deleted": tenant(empty_dir=True),
    "rules that forbid nothing here": deletion(STRICT),
    "a bare pod that uses a GPU, with force for those": combine(
        tenant(bare=True), deletion(STRICT, gpu=PodDeletion(force=True))
    ),
    "a bare pod without a GPU": combine(add_tenant_pod(gpus=0, bare=True), deletion(STRICT)),
    "a pod without a GPU that is leaving": add_tenant_pod(gpus=0, deleting=True),
    "a pod of a DaemonSet without a GPU": add_tenant_pod(
        gpus=0, exemption=EvictionExemption.DAEMON_SET
    ),
    "a bad first load that is over": combine(
        world(load=ProcessEnd(5.0, 1), first_attempts=1), add_attempts(LOAD)
    ),
    "a bad first run that is over": combine(
        world(run=ProcessEnd(60.0), first_attempts=1), add_attempts(RUN)
    ),
    "a bad first validation that is over": combine(
        world(validation=ValidationEnd(4.0, "cuda"), first_attempts=1), add_attempts(VALIDATION)
    ),
}

CHANGED: dict[str, tuple[Change, EstimateSummary]] = {
    "no pod": (lambda node: node.machine.tenant_pods.clear(), later(-SIXTEENTH - 2.0, leaving=0)),
    "two pods": (add_tenant_pod(stop_seconds=9.0), later(7.0, leaving=2)),
    "no slot of an earlier leader": (
        lambda node: node.renew_slots(),
        later(-5 * SIXTEENTH),
    ),
    "no slot": (lambda node: node.state.slots.clear(), later(-5 * SIXTEENTH)),
    "no other agents": (only_driver_and_validator, later(-3 * SIXTEENTH, ended=-EIGHTH)),
    "refused for ten seconds": (tenant(eviction_refused_for=10.0), later(10.0)),
    "refused for eleven seconds": (tenant(eviction_refused_for=11.0), later(15.0)),
    "refused for a while already": (long_refused, later(5.0)),
    "refused long ago": (set_fields(lambda node: node.tenant_pod, first_refused=0.0), later()),
    "an image that takes its time": (world(pull=TimeSpan(30.0)), later(started=30.0 - UNLOADED)),
    "a driver that does not stop": (world(stop=NEVER), later(started=PACE.grace_period - 1.0)),
    "a driver that stops late": (
        world(stop=TimeSpan(100.0)),
        later(started=PACE.grace_period - 1.0),
    ),
    "a driver that stops in time": (world(stop=TimeSpan(6.0)), later(started=5.0)),
    "modules in use": (
        world(unload=ProcessEnd(2.0, 1), first_attempts=2),
        later(started=2 * (2.0 + PACE.unload_retry), unloads=3),
    ),
    "modules in use once more": (
        combine(world(unload=ProcessEnd(2.0, 1), first_attempts=2), add_attempts("unload")),
        later(started=2.0 + PACE.unload_retry, unloads=2),
    ),
    "an unload that ends just in time": (
        world(unload=ProcessEnd(limits.UNLOAD - 1.0)),
        later(started=limits.UNLOAD - 4.0),
    ),
    "a driver that loads the second time": (
        world(load=ProcessEnd(5.0, 1), first_attempts=1),
        later(started=5.0 + PACE.restart_backoff, loads=2),
    ),
    "a driver that loads the third time": (
        world(load=ProcessEnd(5.0, 1), first_attempts=2),
        later(started=5.0 + PACE.restart_backoff + 5.0 + 2 * PACE.restart_backoff, loads=3),
    ),
    "a driver that is ready late": (world(ready=TimeSpan(31.0)), later(ended=30.0)),
    "ready just in time": (
        world(load=ProcessEnd(limits.DRIVER_START - TO_START + LOADED - 1.0)),
        later(loaded=limits.DRIVER_START - TO_START - 1.0),
    ),
    "validated just in time": (
        world(validation=ValidationEnd(limits.VALIDATION - 1.0)),
        later(ended=limits.VALIDATION - 11.0),
    ),
}


def test_a_usual_node_is_estimated() -> None:
    node_stage = EvictingNode(WEB)
    estimate = node_stage.estimate()
    assert estimate is not None
    assert summary_of(node_stage, estimate) == EstimateSummary()
    record = node_stage.record
    assert (estimate.upgrade.token, estimate.upgrade.target) == (record.token, record.target)
    assert estimate.upgrade.build == node_stage.pool.builds[NEW][node_stage.node.view.variant]
    assert estimate.evicted_pods == (node_stage.tenant_pod.uid,)


@pytest.mark.parametrize("name", NOT_ESTIMATED)
def test_unusual_nodes_are_not_estimated(name: str) -> None:
    node_stage = EvictingNode(WEB)
    NOT_ESTIMATED[name](node_stage)
    assert node_stage.estimate() is None


@pytest.mark.parametrize("name", UNCHANGED)
def test_irrelevant_differences_do_not_change_the_estimate(name: str) -> None:
    node_stage = EvictingNode(WEB)
    UNCHANGED[name](node_stage)
    assert summary_of(node_stage, node_stage.estimate()) == EstimateSummary()


@pytest.mark.parametrize("name", CHANGED)
def test_relevant_differences_change_the_times(name: str) -> None:
    node_stage = EvictingNode(WEB)
    change, expected = CHANGED[name]
    change(node_stage)
    assert summary_of(node_stage, node_stage.estimate()) == expected


ESTIMATED = {**UNCHANGED, **{name: change for name, (change, _) in CHANGED.items()}}
del ESTIMATED["no other agents"]
"""A fast-forward includes the time for their quiesce even on a node without these agents."""


@pytest.mark.parametrize("name", ESTIMATED)
def test_the_estimate_equals_a_stepwise_upgrade(name: str) -> None:
    node_stage = EvictingNode(WEB)
    ESTIMATED[name](node_stage)
    estimate = node_stage.estimate()
    assert estimate is not None
    assert upgrade_stepwise(node_stage) == (
        estimate.label_moves_at,
        estimate.upgrade.driver_started,
        estimate.upgrade.driver_loaded,
        estimate.upgrade.at,
    )
