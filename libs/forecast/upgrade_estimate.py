"""The times of an upgrade in which nothing goes wrong, without playing it.

They follow from the answers of the world and the latencies of the cluster. The stage stays
unchanged.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.forecast.stage import agents
from libs.forecast.stage.driver_pods import CONTAINER
from libs.forecast.stage.installed import FinishedUpgrade
from libs.forecast.stage.objects import (
    DriverPodPhase,
    StageDriverPod,
    StageMachine,
    StageNode,
    TenantPod,
)
from libs.forecast.stage.state import StageState
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout import limits
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.pool import Build, PoolView, Readiness

_QUIESCE_WRITES = 4
"""The number of slots written one after another to release the devices, and again to resume."""
_VALIDATE_OP = 2
"""The number of the validation among the ops of one lease."""
_FINAL_WRITES = 3
"""The number of writes that end an upgrade: two slots and the Node."""


class UpgradeEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The course of one upgrade, and how it ends."""

    evicted_pods: tuple[str, ...]
    """Their uids."""
    label_moves_at: float
    unloads: int
    """Attempts, of which the last succeeds."""
    loads: int
    """Attempts, of which the last succeeds."""
    upgrade: FinishedUpgrade
    """At its moment the node is uncordoned."""


class _Case(NamedTuple):
    state: StageState
    machine: StageMachine
    record: NodeRecord
    build: Build
    old: StageDriverPod


class _Driver(NamedTuple):
    started: float
    loaded: float
    ready: float
    unloads: int
    loads: int
    pulled: float


def estimate_upgrade(
    state: StageState, node: StageNode, record: NodeRecord
) -> UpgradeEstimate | None:
    """Estimate the upgrade of a node before the eviction of its pods.

    None: the node or its upgrade is not an ordinary case.
    """
    pool = state.pools.get(record.pool)
    case = None if pool is None else _ordinary_case(state, node, record, pool)
    if pool is None or case is None:
        return None
    evicted = _evicted_pods(case.machine, pool.upgrade)
    emptied = None if evicted is None else _emptied_at(case, evicted)
    if evicted is None or emptied is None:
        return None
    latencies = state.latencies
    quiesced = (
        emptied
        + (_QUIESCE_WRITES - 1) * latencies.write
        + latencies.slot_poke
        + latencies.device_close
    )
    moves = quiesced + latencies.write
    driver = _driver(case, moves)
    validated = None if driver is None else _validated_at(case, driver)
    if driver is None or validated is None:
        return None
    upgrade = FinishedUpgrade(
        pool=record.pool,
        target=record.target,
        build=case.build,
        epoch=state.epoch,
        token=record.token,
        validate_op=_VALIDATE_OP,
        at=validated + _FINAL_WRITES * latencies.write,
        driver_started=driver.started,
        driver_loaded=driver.loaded,
        restarts=record.restarts,
        pulled=driver.pulled,
    )
    return UpgradeEstimate(
        evicted_pods=tuple(pod.uid for pod in evicted),
        label_moves_at=moves,
        unloads=driver.unloads,
        loads=driver.loads,
        upgrade=upgrade,
    )


# Conditions.


def _ordinary_case(
    state: StageState, node: StageNode, record: NodeRecord, pool: PoolView
) -> _Case | None:
    machine = state.machines[node.view.name]
    if not (_is_ordinary(node, record, pool) and _is_healthy(machine)):
        return None
    build = pool.builds.get(record.target, {}).get(node.view.variant)
    old = machine.drivers.get(machine.admitted)
    if build is None or build.readiness is not Readiness.SETTLED or build.label != record.label:
        return None
    if old is None or len(machine.drivers) > 1 or old.label == build.label or old.deleting:
        return None
    if old.phase is not DriverPodPhase.RUNNING or not old.on_machine:
        return None
    return _Case(state, machine, record, build, old)


def _is_ordinary(node: StageNode, record: NodeRecord, pool: PoolView) -> bool:
    return (
        record.operation is Operation.UPGRADE
        and record.state == UpgradeState.POD_DELETION_REQUIRED
        and not record.cordon_adopted
        and pool.method is InstallMethod.CONTAINER
        and not pool.upgrade.drain.enable
        and node.view.ready
        and node.view.mig is None
        and not (node.view.keep_cordoned or node.view.safe_load or node.view.initially_cordoned)
    )


def _is_healthy(machine: StageMachine) -> bool:
    return (
        machine.up
        and machine.kubelet_connected
        and machine.connected
        and machine.loaded is not None
        and not machine.host_processes
        and machine.agents.keys() >= {"driver", "validator"}
        and all(
            agents.is_live(agent) and not agent.running and agent.silent_at is None
            for agent in machine.agents.values()
        )
    )


def _evicted_pods(machine: StageMachine, upgrade: UpgradePolicy) -> list[TenantPod] | None:
    """Return the pods to evict; None: one of them needs more than an eviction."""
    rules = upgrade.gpu_pod_deletion or upgrade.pod_deletion
    evicted: list[TenantPod] = []
    for pod in machine.tenant_pods.values():
        tenant = pod.tenant
        if tenant.exemption is EvictionExemption.OPERAND:
            return None
        if not tenant.gpus:
            continue
        forbidden = (tenant.bare and not rules.force) or (
            tenant.empty_dir and not rules.delete_empty_dir
        )
        if forbidden or tenant.exemption is not EvictionExemption.NONE:
            return None
        if pod.deleting or tenant.remaining is not None or tenant.budget:
            return None
        evicted.append(pod)
    return evicted


# Times. Each is None where the upgrade would fail, hang or come too late.


def _emptied_at(case: _Case, evicted: Sequence[TenantPod]) -> float | None:
    state, latencies = case.state, case.state.latencies
    slots = (state.slots.get((case.machine.name, part)) for part in case.machine.agents)
    adopted = sum(slot is not None and slot.command.epoch < state.epoch for slot in slots)
    began = gone = state.now + adopted * latencies.write
    for pod in evicted:
        refused_for, stop = pod.tenant.eviction_refused_for, pod.tenant.stop_seconds
        if refused_for is None or stop is None:
            return None
        requested = began + latencies.write
        first = requested if pod.first_refused is None else pod.first_refused
        refused = max(0.0, first + refused_for - requested)
        retries = ceil(refused / latencies.eviction_retry)
        gone = max(gone, requested + retries * latencies.eviction_retry + stop)
    deadline = case.record.deadline
    return gone if deadline is None or gone < deadline else None


def _driver(case: _Case, label_moves_at: float) -> _Driver | None:
    """Estimate the times from the move of the label until the new driver is ready."""
    world, latencies = case.state.world, case.state.latencies
    name, label = case.machine.name, case.build.label
    run = case.machine.counts.get(f"run {label}", 0)
    is_here = label in case.machine.images
    pull = 0.0 if is_here else world.pull(name, label, CONTAINER).seconds
    ready = world.ready(name, label, CONTAINER, run).seconds
    unload, load = _unload(case), _load(case)
    if pull is None or ready is None or unload is None or load is None:
        return None
    if world.run(name, label, CONTAINER, run).after is not None:
        return None
    stop = world.stop(name, case.old.label, CONTAINER).seconds
    kubelet_acts = label_moves_at + latencies.daemon_set + latencies.kubelet
    stopped = kubelet_acts + (
        latencies.grace_period if stop is None else min(stop, latencies.grace_period)
    )
    admitted = max(stopped + unload[0], kubelet_acts + pull)
    started = admitted + latencies.kubelet + load[0]
    loaded = started + load[1]
    if loaded + ready >= label_moves_at - latencies.write + limits.DRIVER_START:
        return None
    return _Driver(started, loaded, loaded + ready, unload[1], load[2], pull)


def _unload(case: _Case) -> tuple[float, int] | None:
    """Return the seconds from the command until the modules are unloaded, and the attempts."""
    latencies, first = case.state.latencies, case.machine.counts.get("unload", 0)
    seconds, attempts = latencies.write + latencies.slot_poke, 0
    while seconds < limits.UNLOAD:
        end = case.state.world.unload(case.machine.name, first + attempts)
        attempts += 1
        if end.after is None:
            return None
        seconds += end.after
        if not end.exit_code:
            return (seconds, attempts) if seconds <= limits.UNLOAD else None
        seconds += latencies.unload_retry
    return None


def _load(case: _Case) -> tuple[float, float, int] | None:
    """Return the seconds before the load that succeeds, those in the load, and the attempts."""
    label, before = case.build.label, 0.0
    first = case.machine.counts.get(f"load {label}", 0)
    for attempt in range(limits.RESTARTS):
        end = case.state.world.load(case.machine.name, label, first + attempt)
        if end.after is None:
            return None
        if not end.exit_code:
            return before, end.after, attempt + 1
        before += end.after + case.state.latencies.restart_backoff * 2.0**attempt
    return None


def _validated_at(case: _Case, driver: _Driver) -> float | None:
    latencies, label = case.state.latencies, case.build.label
    attempt = case.machine.counts.get(f"validation {label}", 0)
    validation = case.state.world.validation(case.machine.name, label, attempt)
    if validation.after is None or validation.failed:
        return None
    # The device plugin resumes in the course of the validation, and not before it.
    pokes = 2 if "plugin" in case.machine.agents else 1
    seconds = (1 + _QUIESCE_WRITES) * latencies.write + pokes * latencies.slot_poke
    seconds += validation.after
    return driver.ready + seconds if seconds <= limits.VALIDATION else None
