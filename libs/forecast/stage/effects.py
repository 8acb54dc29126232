"""Decisions carried out, as a scheduler's shell does it: each node by itself, action by action.

What ends a step ends it for its node alone. `Fate` is how a test has effects go wrong: never sent,
late, twice, half, or answered into the void. Guards are taken when the decision is: what is late
meets a world that went on.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from libs.contracts.commands import Command
from libs.forecast.stage import agents, api, checks, drivers, evictions, seeing
from libs.forecast.stage.objects import Slot
from libs.forecast.stage.state import SOURCES, State
from libs.rollout.decision import (
    Action,
    AskPreflight,
    Decision,
    DeleteDriverPod,
    EvictPods,
    Note,
    Step,
    Wait,
    WriteNode,
    WriteRollout,
    WriteSlot,
)
from libs.rollout.views.fleet import Source


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the effects of one decision on one node, or on one Rollout."""

    lost: bool = False
    delay: float = 0.0
    again: float | None = None
    """It is done once more, so much later."""
    actions: int | None = None
    """Only so many are done: the process dies then, or its requests are never answered."""
    unanswered: bool = False
    """All is done, and nobody is told."""


Fates = Callable[[str], Fate]
"""By the name of the node, or the key of the pool."""
_FINE = Fate()


class Sent(msgspec.Struct, frozen=True):
    """A step on its way, with the slots as the sender had read them."""

    name: str
    step: Step
    slots: Mapping[str, int]
    leader: int
    fate: Fate


def carry_out(
    state: State, decision: Decision, fates: Fates | None, rested: Iterable[str] | None
) -> None:
    """All of it; what the scheduler remembers by itself is remembered at once."""
    if rested is None:
        rested = state.known.keys() - decision.waits.keys() - decision.steps.keys()
    for name in rested:
        if name in state.known:
            _waits(state, name, None)
    for name, wait in decision.waits.items():
        _waits(state, name, wait)
    for name in decision.cancelled:
        if (known := state.known.get(name)) is not None and known.leaves is not None:
            known.leaves = None
            state.touch(name)
    for source in decision.probes:
        state.after(state.pace.kubelet, proved, source)
    for name, step in decision.steps.items():
        _waits(state, name, step.wait)
    send(state, decision, state.leader, fates)


def send(state: State, decision: Decision, leader: int, fates: Fates | None) -> None:
    """The requests of a decision, by whoever decided it."""
    for write in decision.rollouts:
        _send_rollout(state, write, leader, fates(write.pool) if fates else _FINE)
    for name, step in decision.steps.items():
        if step.actions:
            _send(state, (name, step), leader, fates(name) if fates else _FINE)


def _waits(state: State, name: str, wait: Wait | None) -> None:
    """It is told with the next view, and is no reason to decide again."""
    known = state.knows(name)
    if known.waiting is not wait and known.waiting != wait:
        known.waiting = wait
        state.reknown.add(name)


def proved(state: State, source: str) -> None:
    """A probe was answered: the source is current, unless it hangs."""
    known = state.sources.get(source)
    if known is None or source not in SOURCES:
        return
    if source in state.blind:
        state.sources[source] = msgspec.structs.replace(known, probed=state.now)
    else:
        state.sources[source] = Source(
            proved=state.now, revision=str(state.revision), probed=state.now
        )
    for key in state.pools:
        state.touch_pool(key)


# Steps.


def _send(state: State, what: tuple[str, Step], leader: int, fate: Fate) -> None:
    name, step = what
    if leader == state.leader:
        state.knows(name).writing += 1
        state.hush(name)
    slots = {
        action.component: _sequence(state, name, action.component)
        for action in step.actions
        if isinstance(action, WriteSlot)
    }
    sent = Sent(name, step, slots, leader, fate)
    if fate.lost:
        state.after(state.pace.give_up, answered, name, leader)
        return
    state.after(fate.delay + state.pace.write, done, sent, 0, True)
    if fate.again is not None:
        state.after(fate.again + state.pace.write, done, sent, 0, False)


def done(state: State, sent: Sent, index: int, asks: bool) -> None:
    """The next of a step's actions. `asks`: somebody waits for the answer."""
    actions, fate = sent.step.actions, sent.fate
    while index < len(actions) and (fate.actions is None or index < fate.actions):
        action = actions[index]
        index += 1
        if not _act(state, sent, action):
            break
        if index < len(actions) and not isinstance(actions[index], Note):
            state.after(state.pace.write, done, sent, index, asks)
            return
    if asks and (fate.unanswered or fate.actions is not None):
        state.after(state.pace.give_up, answered, sent.name, sent.leader)
    elif asks:
        answered(state, sent.name, sent.leader)


def answered(state: State, name: str, leader: int) -> None:
    """The scheduler knows how its requests went, or has given them up."""
    known = state.known.get(name)
    if leader == state.leader and known is not None and known.writing:
        known.writing -= 1
        state.touch(name)


def _act(state: State, sent: Sent, action: Action) -> bool:
    """Whether it succeeded."""
    match action:
        case WriteNode():
            code = api.apply_node(state, sent.name, action)
            seeing.refresh_node(state, sent.name)
            state.tell(f"{sent.name}: {sent.step.because} [{_shown(action)}] {code}")
            return code < 300
        case WriteSlot():
            return _write_slot(state, sent, action)
        case AskPreflight():
            return checks.ask(state, sent.name, action.boot_id, sent.leader, action.check)
        case EvictPods():
            if sent.leader == state.leader:
                evictions.begin(state, sent.name, action)
            return True
        case DeleteDriverPod():
            return _delete(state, sent.name, action)
        case Note():
            state.tell(f"{sent.name}: told: {action.message}")
            return True


def _shown(write: WriteNode) -> str:
    said = write.applied
    parts = [said.state or "no state", f"label {said.driver_label or 'none'}"]
    if said.lease is not None:
        parts.append(f"lease {said.lease.token}")
    if said.unschedulable is not None:
        parts.append("cordon" if said.unschedulable else "uncordon")
    return ", ".join(parts)


# Slots.


def _sequence(state: State, name: str, component: str) -> int:
    slot = state.slots.get((name, component))
    return slot.sequence if slot is not None else 0


def _write_slot(state: State, sent: Sent, action: WriteSlot) -> bool:
    key, command = (sent.name, action.component), action.command
    if not state.bus_up:
        return False
    there = state.slots.get(key)
    sequence = there.sequence if there is not None else 0
    if there is not None and there.command == command:
        return True
    if sequence != sent.slots.get(action.component, 0):
        state.tell(f"{sent.name}: slot of {action.component} was written by somebody else")
        return False
    put_slot(state, sent.name, action.component, command)
    return True


def put_slot(state: State, name: str, component: str, command: Command) -> None:
    """It stands there now, and the agent is poked."""
    sequence = _sequence(state, name, component) + 1
    state.slots[name, component] = Slot(sequence, command)
    state.tell(
        f"{name}: {component} is told {command.kind} {command.order} of epoch {command.epoch}"
    )
    seeing.refresh_slot(state, name, component)
    state.touch(name)
    wait = state.pace.reread if component in state.deaf.get(name, ()) else state.pace.poke
    state.after(wait, agents.poked, name, component)


# Driver pods.


def _delete(state: State, name: str, action: DeleteDriverPod) -> bool:
    machine = state.machines.get(name)
    pod = machine.drivers.get(action.pod.uid) if machine is not None else None
    state.tell(f"{name}: driver pod {action.pod.uid} is deleted")
    if machine is None or pod is None or not pod.in_api:
        return True
    if not pod.deleting:
        drivers.delete(state, machine, pod)
    return True


# Rollouts.


def _send_rollout(state: State, write: WriteRollout, leader: int, fate: Fate) -> None:
    if leader == state.leader:
        state.writing_rollouts.add(write.pool)
        state.hushed_pools.add(write.pool)
        state.restale_pools.add(write.pool)
    if fate.lost or fate.actions == 0:
        state.after(state.pace.give_up, rollout_answered, write.pool, leader)
        return
    late = fate.delay + state.pace.write
    state.after(late, put_rollout, write, leader, not fate.unanswered)
    if fate.unanswered:
        state.after(late + state.pace.give_up, rollout_answered, write.pool, leader)
    if fate.again is not None:
        state.after(fate.again + state.pace.write, put_rollout, write, leader, False)


def put_rollout(state: State, write: WriteRollout, leader: int, asks: bool) -> None:
    """The request is there."""
    code = api.write_rollout(state, write)
    seeing.refresh_rollout(state, write.pool)
    granted = f", grants {', '.join(write.granted)}" if write.granted else ""
    state.tell(f"{write.pool}: {write.because or 'kept'}{granted} [{write.status.phase}] {code}")
    if asks:
        rollout_answered(state, write.pool, leader)


def rollout_answered(state: State, key: str, leader: int) -> None:
    """The scheduler knows how it went, or has given up."""
    if leader == state.leader:
        state.writing_rollouts.discard(key)
        state.touch_pool(key)


def elect(state: State) -> int:
    """Another leader: what its predecessor knew is gone; what it sent may still arrive."""
    epochs = [pool.rollout.status.epoch for pool in state.pools.values() if pool.rollout]
    state.leader += 1
    state.epoch = 1 + max(epochs, default=0)
    state.known.clear()
    state.writing_rollouts.clear()
    state.touch_all(state.machines)
    for key in state.pools:
        state.touch_pool(key)
    state.tell(f"another leader, of epoch {state.epoch}")
    return state.epoch
