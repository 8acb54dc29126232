"""Carry out decisions as the scheduler does: each node independently, action by action.

A failed action ends its step for its node only. Guards are read when the decision is made, so late
effects meet a changed cluster.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from libs.contracts.commands import Command
from libs.contracts.journal import Verb
from libs.forecast.stage import agents, api, driver_pods, tenant_pods
from libs.forecast.stage.objects import StageSlot
from libs.forecast.stage.preflights import start_preflight
from libs.forecast.stage.state import SCHEDULER, ObjectRef, StageState
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
from libs.rollout.views.machine import PodEviction


class SentStep(msgspec.Struct, frozen=True):
    """A step on its way, with the slot sequences that the sender had read."""

    name: str
    step: Step
    slots: Mapping[str, int]
    leader: int


def carry_out(state: StageState, decision: Decision, no_longer_waiting: Iterable[str]) -> None:
    """Send the requests of a decision and update the scheduler's memory at once."""
    remember(state, decision, no_longer_waiting)
    for write in decision.rollouts:
        send_rollout(state, write)
    for name, step in decision.steps.items():
        if step.actions:
            send_step(state, name, step)


def remember(state: StageState, decision: Decision, no_longer_waiting: Iterable[str]) -> None:
    """Update the scheduler's memory."""
    for name in no_longer_waiting:
        if name in state.memory:
            _set_wait(state, name, None)
    for name, wait in decision.waits.items():
        _set_wait(state, name, wait)
    for name in decision.cancelled:
        if (memory := state.memory.get(name)) is not None and memory.evictions:
            memory.evictions = {}
            state.touch(name)
    for name, step in decision.steps.items():
        _set_wait(state, name, step.wait)


def _set_wait(state: StageState, name: str, wait: Wait | None) -> None:
    """Set the wait of a node; it is visible in the next view and causes no decision."""
    memory = state.memory_of(name)
    if memory.waiting is not wait and memory.waiting != wait:
        before, memory.waiting = memory.waiting, wait
        if (before and before.code) != (wait and wait.code):
            state.on_wait_changed(name, wait)
        state.stale_memory_views.add(name)


# Steps.


def send_step(state: StageState, name: str, step: Step) -> None:
    sent = begin_step(state, name, step, state.leader)
    state.call_after(state.latencies.write, run_actions, sent, 0)


def begin_step(state: StageState, name: str, step: Step, leader: int) -> SentStep:
    """Read the guards of a step, and remember that it is unanswered."""
    if leader == state.leader:
        state.memory_of(name).writing += 1
        state.touch_decided(name)
    slots = {
        action.component: _sequence(state, name, action.component)
        for action in step.actions
        if isinstance(action, WriteSlot)
    }
    return SentStep(name, step, slots, leader)


def run_actions(state: StageState, sent: SentStep, index: int) -> None:
    """Run the actions of a step from `index` on, up to the next request."""
    following = run_request(state, sent, index)
    if following is None:
        step_answered(state, sent.name, sent.leader)
    else:
        state.call_after(state.latencies.write, run_actions, sent, following)


def run_request(
    state: StageState, sent: SentStep, index: int, end: int | None = None
) -> int | None:
    """Run actions until a request was answered; return the index of the next request, if any."""
    actions = sent.step.actions[:end]
    while index < len(actions):
        if not _run_action(state, sent, actions[index]):
            return None
        index += 1
        if index < len(sent.step.actions) and not isinstance(sent.step.actions[index], Notice):
            return index
    return None


def step_answered(state: StageState, name: str, leader: int) -> None:
    memory = state.memory.get(name)
    if leader == state.leader and memory is not None and memory.writing:
        memory.writing -= 1
        state.touch(name)


def _run_action(state: StageState, sent: SentStep, action: Action) -> bool:
    """Run one action and return whether it succeeded."""
    name = sent.name
    match action:
        case WriteNode():
            node = state.nodes.get(name)
            before = node.view.state if node is not None else ""
            code = api.apply_node(state, name, action)
            if code < 300:
                state.on_node_written(name, before, action, sent.step)
            state.on_node_answer(name)
            state.log(f"{name}: {sent.step.because} [{_describe(action)}] {code}")
            return code < 300
        case WriteSlot():
            return _write_slot(state, sent, action)
        case AskPreflight():
            return start_preflight(state, name, sent.leader, action)
        case EvictPods():
            if sent.leader == state.leader:
                start_evictions(state, name, action)
        case DeleteDriverPod():
            _delete_driver_pod(state, name, action)
        case Notice():
            state.log(f"{name}: notice: {action.message}")
    return True


def _describe(write: WriteNode) -> str:
    applied = write.applied
    parts = [applied.state or "no state", f"label {applied.driver_label or 'none'}"]
    if applied.lease is not None:
        parts.append(f"lease {applied.lease.token}")
    if applied.unschedulable is not None:
        parts.append("cordon" if applied.unschedulable else "uncordon")
    return ", ".join(parts)


def _delete_driver_pod(state: StageState, name: str, action: DeleteDriverPod) -> None:
    machine = state.machines.get(name)
    pod = machine.drivers.get(action.pod.uid) if machine is not None else None
    state.log(f"{name}: driver pod {action.pod.uid} is deleted")
    if machine is None or pod is None or not pod.in_api:
        ref = ObjectRef("Pod", action.pod.name, action.pod.uid, action.pod.namespace)
        api.journal_pod(state, ref, (Verb.DELETE, SCHEDULER), api.NOT_FOUND)
    elif pod.deleting:
        driver_pods.journal(state, pod, (Verb.DELETE, SCHEDULER), api.OK)
    else:
        driver_pods.delete(state, machine, pod)
    state.on_deletion_answer(name, action.pod.uid)


# Slots.


def _sequence(state: StageState, name: str, component: str) -> int:
    slot = state.slots.get((name, component))
    return slot.sequence if slot is not None else 0


def _write_slot(state: StageState, sent: SentStep, action: WriteSlot) -> bool:
    name, component = sent.name, action.component
    if not state.bus_up:
        return False
    slot = state.slots.get((name, component))
    if slot is not None and slot.command == action.command:
        return True
    if _sequence(state, name, component) != sent.slots.get(component, 0):
        state.log(f"{name}: slot of {component} was written by another writer")
        return False
    put_slot(state, name, component, action.command)
    return True


def put_slot(state: StageState, name: str, component: str, command: Command) -> None:
    """Write the slot and poke its agent."""
    state.slots[name, component] = StageSlot(_sequence(state, name, component) + 1, command)
    state.log(f"{name}: {component} gets {command.kind} {command.order} of epoch {command.epoch}")
    state.on_slot_answer(name, component)
    state.touch(name)
    state.call_after(state.poke_seconds(name, component), agents.on_poke, name, component)


# Evictions, which are repeated until the pods are gone or may stay.


def start_evictions(state: StageState, name: str, action: EvictPods) -> None:
    """Replace the pods to evict by these."""
    memory = state.memory_of(name)
    before = memory.evictions
    memory.evictions = {
        pod.uid: replace(
            before.get(pod.uid) or PodEviction(uid=pod.uid, since=state.now),
            by_force=action.by_force,
        )
        for pod in action.pods
    }
    state.touch(name)
    for uid in memory.evictions:
        if uid not in before or before[uid].by_force != action.by_force:
            request_eviction(state, name, uid, state.leader, action.by_force)


def resume_evictions(state: StageState, name: str) -> None:
    """Request the evictions that were requested before: what refused them may allow them now."""
    for uid, eviction in state.memory_of(name).evictions.items():
        request_eviction(state, name, uid, state.leader, eviction.by_force)


def request_eviction(state: StageState, name: str, uid: str, leader: int, by_force: bool) -> None:
    """Evict a pod repeatedly; a pod that is gone counts as evicted until the next view."""
    memory, machine = state.memory.get(name), state.machines.get(name)
    eviction = memory.evictions.get(uid) if memory is not None else None
    if memory is None or eviction is None or machine is None or leader != state.leader:
        return
    if eviction.by_force != by_force:
        return
    tenant_pod, refused = machine.tenant_pods.get(uid), ""
    if tenant_pod is not None and tenant_pod.in_api:
        if by_force:
            tenant_pods.delete(state, machine, tenant_pod)
            return
        refused = tenant_pods.evict(state, machine, tenant_pod)
        again = (request_eviction, name, uid, leader, by_force)
        state.call_after(state.latencies.eviction_retry, *again)
    if eviction.refused != refused:
        memory.evictions = {**memory.evictions, uid: replace(eviction, refused=refused)}
        state.touch(name)


def has_pending_evictions(state: StageState, name: str) -> bool:
    """Return whether any pod on the machine is being evicted."""
    pods = state.machines[name].tenant_pods
    return not state.memory_of(name).evictions.keys().isdisjoint(pods)


# Rollouts.


def send_rollout(state: StageState, write: WriteRollout) -> None:
    begin_rollout_write(state, write.pool, state.leader)
    state.call_after(state.latencies.write, put_rollout, write, state.leader, True)


def begin_rollout_write(state: StageState, pool: str, leader: int) -> None:
    if leader == state.leader:
        state.writing_rollouts.add(pool)
        state.decided_pools.add(pool)
        state.stale_pool_views.add(pool)


def put_rollout(state: StageState, write: WriteRollout, leader: int, awaited: bool) -> None:
    """Write a Rollout; `awaited`: the scheduler waits for the answer."""
    code = api.write_rollout(state, write)
    state.on_rollout_answer(write.pool)
    granted = f", grants {', '.join(write.granted)}" if write.granted else ""
    state.log(f"{write.pool}: {write.because or 'kept'}{granted} [{write.status.phase}] {code}")
    if awaited:
        rollout_answered(state, write.pool, leader)


def rollout_answered(state: StageState, key: str, leader: int) -> None:
    if leader == state.leader:
        state.writing_rollouts.discard(key)
        state.touch_pool(key)
