"""Effects that are lost, late, repeated, cut short or unanswered."""

from collections.abc import Callable

import msgspec

from libs.forecast.stage.effects import (
    SentStep,
    begin_rollout_write,
    begin_step,
    put_rollout,
    rollout_answered,
    run_request,
    step_answered,
)
from libs.forecast.stage.state import StageState
from libs.rollout.decision import Decision, Step, WriteRollout


class EffectFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the effects of one decision on one node or one Rollout."""

    lost: bool = False
    delay: float = 0.0
    repeat_after: float | None = None
    """Seconds after which all actions are repeated."""
    max_actions: int | None = None
    """Do only this many actions: then the process dies, or its requests stay unanswered."""
    unanswered: bool = False
    """All actions are done, but no answer arrives."""


NO_FAULT = EffectFault()

EffectFaultSource = Callable[[str], EffectFault]
"""Returns the fault for the name of a node or the key of a pool."""


def send(
    state: StageState, decision: Decision, leader: int, faults: EffectFaultSource | None
) -> None:
    """Send the requests of a decision."""
    for write in decision.rollouts:
        _send_rollout(state, write, leader, faults(write.pool) if faults else NO_FAULT)
    for name, step in decision.steps.items():
        if step.actions:
            _send_step(state, (name, step), leader, faults(name) if faults else NO_FAULT)


def _send_step(state: StageState, what: tuple[str, Step], leader: int, fault: EffectFault) -> None:
    sent = begin_step(state, *what, leader)
    pace = state.latencies
    if fault.lost:
        state.call_after(pace.request_timeout, step_answered, sent.name, leader)
        return
    state.call_after(fault.delay + pace.write, run_actions, sent, 0, fault, True)
    if fault.repeat_after is not None:
        state.call_after(fault.repeat_after + pace.write, run_actions, sent, 0, fault, False)


def run_actions(
    state: StageState, sent: SentStep, index: int, fault: EffectFault, awaited: bool
) -> None:
    """Run the actions of a step from `index` on; `awaited`: the scheduler waits for the answer."""
    following = run_request(state, sent, index, fault.max_actions)
    if following is not None:
        state.call_after(state.latencies.write, run_actions, sent, following, fault, awaited)
    elif awaited and (fault.unanswered or fault.max_actions is not None):
        state.call_after(state.latencies.request_timeout, step_answered, sent.name, sent.leader)
    elif awaited:
        step_answered(state, sent.name, sent.leader)


def _send_rollout(state: StageState, write: WriteRollout, leader: int, fault: EffectFault) -> None:
    begin_rollout_write(state, write.pool, leader)
    pace = state.latencies
    answered = (rollout_answered, write.pool, leader)
    if fault.lost or fault.max_actions == 0:
        state.call_after(pace.request_timeout, *answered)
        return
    delay = fault.delay + pace.write
    state.call_after(delay, put_rollout, write, leader, not fault.unanswered)
    if fault.unanswered:
        state.call_after(delay + pace.request_timeout, *answered)
    if fault.repeat_after is not None:
        state.call_after(fault.repeat_after + pace.write, put_rollout, write, leader, False)
