"""Explore every state that a small pool can reach, and check the bounds of harm in each.

Nodes in the same situation are interchangeable: states that differ only in them are followed once.
Where nothing is pending, each node must be in place or have a wait that can last.
"""

from collections import deque
from collections.abc import Hashable

import msgspec

from libs.contracts.node import NodeRecord
from libs.contracts.rollout import InFlight, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.rollout.views.node import NodeView
from tests.component.rollout.exploration.explorer import Trace
from tests.component.rollout.exploration.harm.model import ModelSetup, ModelState, initial_state
from tests.component.rollout.exploration.harm.moves import decide_now, fits, fleet, moves
from tests.component.rollout.exploration.harm.oracle import HarmBoundExceeded
from tests.component.rollout.simulation import checks


class HarmExploration(msgspec.Struct, frozen=True, kw_only=True):
    states: int
    rests: int
    """States in which nothing is pending."""
    halts: int
    """States in which a target is halted."""
    proofs: int
    """States in which a target is proven."""
    complete: bool
    """Every reachable state was explored."""
    failure: str = ""
    """The first failure, and the events that lead to it."""


def explore(setup: ModelSetup, *, most: int) -> HarmExploration:
    """Explore up to `most` states, breadth first: the first failure found is a shortest one."""
    first = initial_state(setup)
    queue = deque([(first, Trace(setup.name))])
    known = {state_key(first)}
    rests = halts = proofs = 0
    wrong = ""
    while queue and len(known) < most and not wrong:
        state, trace = queue.popleft()
        halts += bool(state.oracle.halted)
        proofs += any(harm.proven for harm in state.oracle.targets.values())
        event = "?"
        try:
            moves_of_engine = 0
            for event, after in moves(state):
                moves_of_engine += not event.startswith("---")
                key = state_key(after)
                if key not in known:
                    known.add(key)
                    queue.append((after, Trace(event, trace)))
            if not moves_of_engine:
                rests += 1
                _check_rest(state)
        except (HarmBoundExceeded, checks.SimulationFailure) as failure:
            wrong = f"{failure}\n{trace.as_text()}\n(after trying: {event})"
    return HarmExploration(
        states=len(known),
        rests=rests,
        halts=halts,
        proofs=proofs,
        complete=not queue and not wrong,
        failure=wrong,
    )


def _check_rest(state: ModelState) -> None:
    _, decision = decide_now(state)
    checks.check_decision(fleet(state), state.now, decision)
    # Failed nodes that wait for a user use up the budget.
    budget_used = any(account.unavailable for account in decision.budgets.values())
    for name, wait in decision.waits.items():
        if wait.code is WaitCode.BUDGET and budget_used:
            continue
        if wait.code in checks.TRANSIENT_CODES:
            raise HarmBoundExceeded(f"{name} waits for {wait.code} ({wait.detail}) for ever")


def state_key(state: ModelState) -> int:
    """Return a key that is equal for states that differ only in the names of nodes."""
    written = state.rollout_write.status if state.rollout_write is not None else None
    ranks = _ranks(state.status)
    nodes = sorted(
        (_node_key(state, node, written, ranks) for node in state.nodes.values()), key=repr
    )
    uids = {
        *state.status.in_flight,
        *(written.in_flight if written is not None else ()),
        *state.oracle.first_failures,
        *(
            uid
            for record in state.status.targets.values()
            for uid in (*record.failed, *record.validated)
        ),
        *(
            uid
            for record in state.oracle.targets.values()
            for uid in record.failed | record.validated
        ),
    } - {node.uid for node in state.nodes.values()}
    absent = sorted((_uid_key(state, uid, written, ranks) for uid in uids), key=repr)
    targets = sorted(
        (target, harm.threshold, harm.accepted, harm.proven, harm.limit)
        for target, harm in state.oracle.targets.items()
    )
    pool: tuple[Hashable, ...] = (
        state.pool.target,
        state.next_targets,
        state.events,
        repr(state.view.spec),
        tuple(sorted(state.halted)) if written is not None else None,
        state.rollout_write is not None and state.rollout_write.revision == state.view.revision,
        _status_key(state.status),
        _status_key(written) if written is not None else None,
    )
    return hash(repr((nodes, absent, targets, pool)))


def _status_key(status: RolloutStatus) -> tuple[Hashable, ...]:
    proven = sorted(
        (record.proven_at, target) for target, record in status.targets.items() if record.proven_at
    )
    return (
        status.target,
        status.phase,
        status.base,
        status.last_good,
        tuple(target for _, target in proven),
        tuple(
            (target, record.threshold, record.accepted, record.proven, record.complete)
            for target, record in sorted(status.targets.items())
        ),
        repr(status.counts),
    )


def _ranks(status: RolloutStatus) -> dict[float, int]:
    """Return the times of grants in their order: only the order matters."""
    times = sorted({entry.since for entry in status.in_flight.values()})
    return {time: rank for rank, time in enumerate(times)}


def _entry_key(
    entry: InFlight | None, token: int, ranks: dict[float, int]
) -> tuple[Hashable, ...] | None:
    if entry is None:
        return None
    rank = ranks.get(entry.since, -1)
    return entry.target, entry.outside, entry.validates, entry.token - token, rank


def _uid_key(
    state: ModelState,
    uid: str,
    written: RolloutStatus | None,
    ranks: dict[float, int],
    token: int = 0,
) -> tuple[Hashable, ...]:
    statuses = [state.status] if written is None else [state.status, written]
    in_statuses = tuple(
        (
            _entry_key(status.in_flight.get(uid), token, ranks),
            tuple(
                (target, uid in record.failed, uid in record.validated)
                for target, record in sorted(status.targets.items())
            ),
        )
        for status in statuses
    )
    in_oracle = tuple(
        (target, uid in harm.failed, uid in harm.validated)
        for target, harm in sorted(state.oracle.targets.items())
    )
    return in_statuses, in_oracle, state.oracle.first_failures.get(uid)


def _node_key(
    state: ModelState, node: NodeView, written: RolloutStatus | None, ranks: dict[float, int]
) -> tuple[Hashable, ...]:
    record = node.record if isinstance(node.record, NodeRecord) else None
    token = record.token if record is not None else 0
    write = state.writes.get(node.name)
    record_key: Hashable = None
    if record is not None:
        proof = record.evidence
        record_key = (
            record.operation, record.target, record.label, record.state, record.started,
            record.outside, record.attempt, record.unproven, record.asked, record.pool,
            (proof.label, proof.token - token) if proof is not None else None,
        )  # fmt: skip
    return (
        node.pool, node.state, node.driver_label, node.cordoned, node.lease is not None, record_key,
        len(node.driver_pods), node.loaded is not None,
        node.preflight.label if node.preflight is not None else None,
        (write.step.because, sorted(write.halted)) if write is not None else None,
        write is not None and fits(node, write.step),
        _uid_key(state, node.uid, written, ranks, token),
    )  # fmt: skip
