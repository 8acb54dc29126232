"""The plain way through an upgrade: pods leave, the driver loads, and what is validated passes.

Most nodes go it. How long it takes follows from the answers of the world and the pace of the
cluster that a stage would meet step by step. Must not change anything.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.forecast.stage import agents, api
from libs.forecast.stage.driver_pods import CONTAINER
from libs.forecast.stage.field_paths import INITIALLY_CORDONED, KEEP_CORDONED, SAFE_LOAD
from libs.forecast.stage.objects import (
    DriverPodPhase,
    StageDriverPod,
    StageMachine,
    StageNode,
    StagePool,
    TenantPod,
)
from libs.forecast.stage.state import StageState
from libs.policy.kinds.upgrade_policy import PodDeletion
from libs.policy.wanted import InstallMethod
from libs.rollout import limits
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.pool import Build, Readiness

_TOLD = 4
"""Slots that are written one after another, to let go of the devices and to take them again."""
_GIVEN_BACK = 3
"""Writes that give a node back: two slots, and the Node."""
_ASIDE = (KEEP_CORDONED, SAFE_LOAD, INITIALLY_CORDONED)
"""What makes the end of an upgrade another one."""


class UpgradeEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What will have happened, and when."""

    record: NodeRecord
    build: Build
    evicted_pods: tuple[str, ...]
    """Uids of the pods that are evicted."""
    label_moves_at: float
    """When its driver label moves."""
    unloads: int
    loads: int
    """How often it is tried until it works."""
    driver_starts_at: float
    """When the driver's container starts that works."""
    driver_loads_at: float
    ends_at: float
    """When it is given back."""


class _Case(NamedTuple):
    state: StageState
    machine: StageMachine
    pool: StagePool
    record: NodeRecord
    build: Build
    old: StageDriverPod


class _Driver(NamedTuple):
    """A driver that is up."""

    started: float
    loaded: float
    ready: float
    unloads: int
    loads: int


def estimate_upgrade(
    state: StageState, node: StageNode, record: NodeRecord
) -> UpgradeEstimate | None:
    """The way of a node whose pods are about to be evicted; None: it is not a plain one."""
    case = _case(state, node, record)
    leaving = None if case is None else _leaving(case)
    if case is None or leaving is None:
        return None
    emptied = _emptied(case, leaving)
    if emptied is None:
        return None
    pace = state.latencies
    moves = emptied + (_TOLD - 1) * pace.write + pace.slot_poke + pace.device_close + pace.write
    driver = _driver(case, moves)
    validated = None if driver is None else _validated(case, driver)
    if driver is None or validated is None:
        return None
    return UpgradeEstimate(
        record=record,
        build=case.build,
        evicted_pods=tuple(work.uid for work in leaving),
        label_moves_at=moves,
        unloads=driver.unloads,
        loads=driver.loads,
        driver_starts_at=driver.started,
        driver_loads_at=driver.loaded,
        ends_at=validated + _GIVEN_BACK * pace.write,
    )


# Whether nothing about it needs a closer look.


def _case(state: StageState, node: StageNode, record: NodeRecord) -> _Case | None:
    machine, pool = state.machines[node.name], state.pools.get(record.pool)
    if pool is None or not (_usual(node, record, pool) and _healthy(machine)):
        return None
    build = pool.builds.get(record.target, {}).get(node.variant)
    old = machine.drivers.get(machine.admitted)
    if build is None or build.readiness is not Readiness.SETTLED or build.label != record.label:
        return None
    if old is None or len(machine.drivers) > 1 or old.label == build.label or old.deleting:
        return None
    return _Case(state, machine, pool, record, build, old) if _runs(old) else None


def _usual(node: StageNode, record: NodeRecord, pool: StagePool) -> bool:
    return (
        record.operation is Operation.UPGRADE
        and record.state == UpgradeState.POD_DELETION_REQUIRED
        and not record.cordon_adopted
        and pool.method is InstallMethod.CONTAINER
        and not pool.upgrade.drain.enable
        and node.ready
        and not any(api.value(node, path) for path in _ASIDE)
    )


def _healthy(machine: StageMachine) -> bool:
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


def _runs(pod: StageDriverPod) -> bool:
    return pod.phase is DriverPodPhase.RUNNING and pod.on_machine


def _leaving(case: _Case) -> list[TenantPod] | None:
    """Who is evicted; None: somebody is there who is not just evicted."""
    upgrade = case.pool.upgrade
    rules = upgrade.gpu_pod_deletion or upgrade.pod_deletion
    found: list[TenantPod] = []
    for work in case.machine.tenant_pods.values():
        tenant = work.tenant
        if tenant.exemption is EvictionExemption.OPERAND:
            return None
        if not tenant.gpus:
            continue
        kept = tenant.exemption is not EvictionExemption.NONE or not _allows(rules, work)
        if kept or work.deleting or tenant.remaining is not None:
            return None
        found.append(work)
    return found


def _allows(rules: PodDeletion, work: TenantPod) -> bool:
    bare, empty_dir = work.tenant.bare, work.tenant.empty_dir
    return (rules.force or not bare) and (rules.delete_empty_dir or not empty_dir)


# How long it takes.


def _emptied(case: _Case, leaving: Sequence[TenantPod]) -> float | None:
    """When the last pod is gone; None: not in time."""
    state, pace = case.state, case.state.latencies
    slots = (state.slots.get((case.machine.name, part)) for part in case.machine.agents)
    adopted = sum(slot is not None and slot.command.epoch < state.epoch for slot in slots)
    began = gone = state.now + adopted * pace.write
    for work in leaving:
        guarded, stops = work.tenant.eviction_refused_for, work.tenant.stop_seconds
        if guarded is None or stops is None:
            return None
        asked = began + pace.write
        first = asked if work.first_refused is None else work.first_refused
        refused = max(0.0, first + guarded - asked)
        gone = max(gone, asked + ceil(refused / pace.eviction_retry) * pace.eviction_retry + stops)
    deadline = case.record.deadline
    return gone if deadline is None or gone < deadline else None


def _driver(case: _Case, moves: float) -> _Driver | None:
    """From the move of the label until the new driver is ready."""
    world, pace, name, label = (
        case.state.world,
        case.state.latencies,
        case.machine.name,
        case.build.label,
    )
    run = case.machine.counts.get(f"run {label}", 0)
    pull = world.pull(name, label, CONTAINER).seconds
    ready = world.ready(name, label, CONTAINER, run).seconds
    unload, load = _unload(case), _load(case)
    if pull is None or ready is None or unload is None or load is None:
        return None
    if world.run(name, label, CONTAINER, run).after is not None:
        return None
    stop = world.stop(name, case.old.label, CONTAINER).seconds
    heard = moves + pace.daemon_set + pace.kubelet
    gone = heard + (pace.grace_period if stop is None else min(stop, pace.grace_period))
    out = gone + unload[0]
    started = max(out, heard + pull) + pace.kubelet + load[0]
    loaded = started + load[1]
    if loaded + ready >= moves - pace.write + limits.DRIVER_START:
        return None
    return _Driver(started, loaded, loaded + ready, unload[1], load[2])


def _unload(case: _Case) -> tuple[float, int] | None:
    """Seconds from the command until the modules are out, and how often it is tried."""
    pace, first = case.state.latencies, case.machine.counts.get("unload", 0)
    took, tried = pace.write + pace.slot_poke, 0
    while took < limits.UNLOAD:
        end = case.state.world.unload(case.machine.name, first + tried)
        tried += 1
        if end.after is None:
            return None
        took += end.after
        if not end.exit_code:
            return (took, tried) if took <= limits.UNLOAD else None
        took += pace.unload_retry
    return None


def _load(case: _Case) -> tuple[float, float, int] | None:
    """Seconds until the start of the load that works, those that it takes, and how many it took."""
    label, before = case.build.label, 0.0
    first = case.machine.counts.get(f"load {label}", 0)
    for tried in range(limits.RESTARTS):
        end = case.state.world.load(case.machine.name, label, first + tried)
        if end.after is None:
            return None
        if not end.exit_code:
            return before, end.after, tried + 1
        before += end.after + case.state.latencies.restart_backoff * 2.0**tried
    return None


def _validated(case: _Case, driver: _Driver) -> float | None:
    """When the evidence is there; None: it does not pass, or not in time."""
    pace, label = case.state.latencies, case.build.label
    attempt = case.machine.counts.get(f"validation {label}", 0)
    verdict = case.state.world.validation(case.machine.name, label, attempt)
    if verdict.after is None or verdict.failed:
        return None
    took = (1 + _TOLD) * pace.write + pace.slot_poke + verdict.after
    return driver.ready + took if took <= limits.VALIDATION else None
