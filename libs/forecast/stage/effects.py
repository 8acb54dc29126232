"""Carry out decisions as the scheduler does: each node by itself, action by action.

A failed action ends its step for its node only. Guards are read when the decision is made, so late
effects meet a changed cluster. With an `EffectFault`, effects are lost, late, repeated, cut short
or unanswered.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from libs.contracts.commands import Command
from libs.forecast.stage import agents, api, driver_pods, evictions, preflights, views
from libs.forecast.stage.objects import StageSlot
from libs.forecast.stage.state import SOURCES, StageState
from libs.rollout.decision import (
    Action,
    AskPreflight,
    Decision,
    DeleteDriverPod,
    EvictPods,
    Notice,
    Step,
    Wait,
    WriteNode,
    WriteRollout,
    WriteSlot,
)
from libs.rollout.views.fleet import SourceState


class EffectFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the effects of one decision on one node or one Rollout."""

    lost: bool = False
    delay: float = 0.0
    repeat_after: float | None = None
    """Seconds after which everything is done once more."""
    max_actions: int | None = None
    """Do only so many: then the process dies, or its requests stay unanswered."""
    unanswered: bool = False
    """Everything is done, but no answer arrives."""


EffectFaultSource = Callable[[str], EffectFault]
"""Returns the fault for the name of a node or the key of a pool."""
_NO_FAULT = EffectFault()


class SentStep(msgspec.Struct, frozen=True):
    """A step on its way, with the slot sequences that the sender had read."""

    name: str
    step: Step
    slots: Mapping[str, int]
    leader: int
    fault: EffectFault


def carry_out(
    state: StageState,
    decision: Decision,
    effect_faults: EffectFaultSource | None,
    no_longer_waiting: Iterable[str] | None,
) -> None:
    """Send the requests of a decision and update the scheduler's memory at once."""
    if no_longer_waiting is None:
        no_longer_waiting = state.memory.keys() - decision.waits.keys() - decision.steps.keys()
    for name in no_longer_waiting:
        if name in state.memory:
            _set_wait(state, name, None)
    for name, wait in decision.waits.items():
        _set_wait(state, name, wait)
    for name in decision.cancelled:
        if (memory := state.memory.get(name)) is not None and memory.evictions is not None:
            memory.evictions = None
            state.touch(name)
    for source in decision.probes:
        state.call_after(state.latencies.kubelet, probe_answered, source)
    for name, step in decision.steps.items():
        _set_wait(state, name, step.wait)
    send(state, decision, state.leader, effect_faults)


def send(
    state: StageState, decision: Decision, leader: int, effect_faults: EffectFaultSource | None
) -> None:
    """Send the requests of a decision."""
    for write in decision.rollouts:
        _send_rollout(
            state, write, leader, effect_faults(write.pool) if effect_faults else _NO_FAULT
        )
    for name, step in decision.steps.items():
        if step.actions:
            _send(state, (name, step), leader, effect_faults(name) if effect_faults else _NO_FAULT)


def _set_wait(state: StageState, name: str, wait: Wait | None) -> None:
    """Set the wait of a node; it is visible in the next view and causes no decision."""
    memory = state.memory_of(name)
    if memory.waiting is not wait and memory.waiting != wait:
        memory.waiting = wait
        state.stale_memory_views.add(name)


def probe_answered(state: StageState, source: str) -> None:
    """Mark the source as current, unless it is frozen."""
    memory = state.sources.get(source)
    if memory is None or source not in SOURCES:
        return
    if source in state.frozen:
        state.sources[source] = msgspec.structs.replace(memory, probed=state.now)
    else:
        state.sources[source] = SourceState(
            proved=state.now, revision=str(state.revision), probed=state.now
        )
    for key in state.pools:
        state.touch_pool(key)


# Steps.


def _send(state: StageState, what: tuple[str, Step], leader: int, fault: EffectFault) -> None:
    name, step = what
    if leader == state.leader:
        state.memory_of(name).writing += 1
        state.touch_decided(name)
    slots = {
        action.component: _sequence(state, name, action.component)
        for action in step.actions
        if isinstance(action, WriteSlot)
    }
    sent = SentStep(name, step, slots, leader, fault)
    if fault.lost:
        state.call_after(state.latencies.request_timeout, step_answered, name, leader)
        return
    state.call_after(fault.delay + state.latencies.write, run_actions, sent, 0, True)
    if fault.repeat_after is not None:
        state.call_after(fault.repeat_after + state.latencies.write, run_actions, sent, 0, False)


def run_actions(state: StageState, sent: SentStep, index: int, awaited: bool) -> None:
    """Run the actions of a step from `index` on; `awaited`: the scheduler waits for the answer."""
    actions, fault = sent.step.actions, sent.fault
    while index < len(actions) and (fault.max_actions is None or index < fault.max_actions):
        action = actions[index]
        index += 1
        if not _run_action(state, sent, action):
            break
        if index < len(actions) and not isinstance(actions[index], Notice):
            state.call_after(state.latencies.write, run_actions, sent, index, awaited)
            return
    if awaited and (fault.unanswered or fault.max_actions is not None):
        state.call_after(state.latencies.request_timeout, step_answered, sent.name, sent.leader)
    elif awaited:
        step_answered(state, sent.name, sent.leader)


def step_answered(state: StageState, name: str, leader: int) -> None:
    memory = state.memory.get(name)
    if leader == state.leader and memory is not None and memory.writing:
        memory.writing -= 1
        state.touch(name)


def _run_action(state: StageState, sent: SentStep, action: Action) -> bool:
    """Run one action and return whether it succeeded."""
    match action:
        case WriteNode():
            code = api.apply_node(state, sent.name, action)
            views.refresh_node(state, sent.name)
            state.log(f"{sent.name}: {sent.step.because} [{_describe(action)}] {code}")
            return code < 300
        case WriteSlot():
            return _write_slot(state, sent, action)
        case AskPreflight():
            return preflights.start_preflight(
                state, sent.name, action.boot_id, sent.leader, action.check
            )
        case EvictPods():
            if sent.leader == state.leader:
                evictions.start_evictions(state, sent.name, action)
            return True
        case DeleteDriverPod():
            return _delete(state, sent.name, action)
        case Notice():
            state.log(f"{sent.name}: told: {action.message}")
            return True


def _describe(write: WriteNode) -> str:
    applied = write.applied
    parts = [applied.state or "no state", f"label {applied.driver_label or 'none'}"]
    if applied.lease is not None:
        parts.append(f"lease {applied.lease.token}")
    if applied.unschedulable is not None:
        parts.append("cordon" if applied.unschedulable else "uncordon")
    return ", ".join(parts)


# Slots.


def _sequence(state: StageState, name: str, component: str) -> int:
    slot = state.slots.get((name, component))
    return slot.sequence if slot is not None else 0


def _write_slot(state: StageState, sent: SentStep, action: WriteSlot) -> bool:
    key, command = (sent.name, action.component), action.command
    if not state.bus_up:
        return False
    slot = state.slots.get(key)
    sequence = slot.sequence if slot is not None else 0
    if slot is not None and slot.command == command:
        return True
    if sequence != sent.slots.get(action.component, 0):
        state.log(f"{sent.name}: slot of {action.component} was written by somebody else")
        return False
    put_slot(state, sent.name, action.component, command)
    return True


def put_slot(state: StageState, name: str, component: str, command: Command) -> None:
    """Write the slot and poke its agent."""
    sequence = _sequence(state, name, component) + 1
    state.slots[name, component] = StageSlot(sequence, command)
    state.log(
        f"{name}: {component} is told {command.kind} {command.order} of epoch {command.epoch}"
    )
    views.refresh_slot(state, name, component)
    state.touch(name)
    wait = (
        state.latencies.slot_reread
        if component in state.missed_pokes.get(name, ())
        else state.latencies.slot_poke
    )
    state.call_after(wait, agents.on_poke, name, component)


# Driver pods.


def _delete(state: StageState, name: str, action: DeleteDriverPod) -> bool:
    machine = state.machines.get(name)
    pod = machine.drivers.get(action.pod.uid) if machine is not None else None
    state.log(f"{name}: driver pod {action.pod.uid} is deleted")
    if machine is None or pod is None or not pod.in_api:
        return True
    if not pod.deleting:
        driver_pods.delete(state, machine, pod)
    return True


# Rollouts.


def _send_rollout(state: StageState, write: WriteRollout, leader: int, fault: EffectFault) -> None:
    if leader == state.leader:
        state.writing_rollouts.add(write.pool)
        state.decided_pools.add(write.pool)
        state.stale_pool_views.add(write.pool)
    if fault.lost or fault.max_actions == 0:
        state.call_after(state.latencies.request_timeout, rollout_answered, write.pool, leader)
        return
    delay = fault.delay + state.latencies.write
    state.call_after(delay, put_rollout, write, leader, not fault.unanswered)
    if fault.unanswered:
        state.call_after(
            delay + state.latencies.request_timeout, rollout_answered, write.pool, leader
        )
    if fault.repeat_after is not None:
        state.call_after(
            fault.repeat_after + state.latencies.write, put_rollout, write, leader, False
        )


def put_rollout(state: StageState, write: WriteRollout, leader: int, awaited: bool) -> None:
    code = api.write_rollout(state, write)
    views.refresh_rollout(state, write.pool)
    granted = f", grants {', '.join(write.granted)}" if write.granted else ""
    state.log(f"{write.pool}: {write.because or 'kept'}{granted} [{write.status.phase}] {code}")
    if awaited:
        rollout_answered(state, write.pool, leader)


def rollout_answered(state: StageState, key: str, leader: int) -> None:
    if leader == state.leader:
        state.writing_rollouts.discard(key)
        state.touch_pool(key)


def elect(state: StageState) -> int:
    """Elect another leader, without memory; requests of the previous one may still arrive."""
    epochs = [pool.rollout.status.epoch for pool in state.pools.values() if pool.rollout]
    state.leader += 1
    state.epoch = 1 + max(epochs, default=0)
    state.memory.clear()
    state.writing_rollouts.clear()
    state.touch_all(state.machines)
    for key in state.pools:
        state.touch_pool(key)
    state.log(f"another leader, of epoch {state.epoch}")
    return state.epoch
