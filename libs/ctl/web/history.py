"""What happened to nodes, from the events of the bus: moves for the timeline, and waits. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts.events import StepEvent
from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.queries import PlanAnswer
from libs.contracts.rollout import RolloutStatus
from libs.ctl.text import printable
from libs.ctl.web.model import Bar
from libs.fleet.names import version_name

_AT_REST: Final = frozenset(
    {
        UpgradeState.UNKNOWN,
        UpgradeState.UPGRADE_REQUIRED,
        UpgradeState.UPGRADE_DONE,
        UpgradeState.UPGRADE_FAILED,
    }
)
_OUTCOMES: Final = {
    UpgradeState.UPGRADE_DONE.value: "done",
    UpgradeState.UPGRADE_FAILED.value: "failed",
}
_MOST_STEPS: Final = 40
"""Steps of one move that are kept; a node that repeats itself keeps its first ones."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a node to reach a target, as far as it is known."""

    pool: str
    target: str
    start: float | None
    token: int = 0
    end: float | None = None
    outcome: str = ""
    steps: tuple[tuple[str, float], ...] = ()


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """Start and end of a node by a plan, and when that was made."""

    start: float
    end: float
    at: float


def advance(move: Move | None, event: StepEvent, at: float) -> Move | None:
    """Return a node's move after a step: begun, gone on, or ended."""
    if event.after in _AT_REST:
        if move is None or move.end is not None:
            return move
        outcome = _OUTCOMES.get(event.after, "given up")
        return msgspec.structs.replace(move, end=at, outcome=outcome)
    step = (printable(event.after), at)
    if move is None or move.end is not None or move.token != event.token:
        target = event.target or (move.target if move else "")
        return Move(pool=event.pool, target=target, start=at, token=event.token, steps=(step,))
    return msgspec.structs.replace(
        move,
        target=event.target or move.target,
        steps=(*move.steps, step)[:_MOST_STEPS],
    )


def move_from_kubernetes(
    status: RolloutStatus, node_uid: str, record: NodeRecord | None
) -> Move | None:
    """Return what Kubernetes alone shows of a node's move to the pool's target."""
    flight = status.in_flight.get(node_uid)
    if flight is not None and flight.target == status.target:
        steps = ((printable(record.state), record.since),) if record and record.since else ()
        return Move(
            pool=record.pool if record else "",
            target=flight.target,
            start=flight.since,
            token=flight.token,
            steps=steps,
        )
    if record is None or record.target != status.target or not record.since:
        return None
    outcome = _OUTCOMES.get(record.state)
    if outcome is None:
        return None
    return Move(
        pool=record.pool,
        target=record.target,
        start=None,
        token=record.token,
        end=record.since,
        outcome=outcome,
    )


def best(told: Move | None, shown: Move | None, *, target: str) -> Move | None:
    """Return the move to a target with more detail: the events' unless Kubernetes knows a later."""
    told = told if told is not None and told.target == target else None
    if told is None or (shown is not None and shown.token > told.token):
        return shown
    if shown is not None and told.end is None and shown.end is not None:
        return msgspec.structs.replace(told, end=shown.end, outcome=shown.outcome)
    return told


def bar_of(
    node: str,
    pool: str,
    move: Move | None,
    planned: Planned | None,
    versions: Mapping[str, str],
) -> Bar | None:
    """Return a node on the timeline; None if neither move nor plan is known.

    What was planned after the node had started is no plan.
    """
    if planned is not None and move is not None and planned.at > _first_known(move):
        planned = None
    if move is None and planned is None:
        return None
    return Bar(
        node=printable(node),
        pool=printable(pool),
        target=printable(version_name(move.target, versions)) if move else "",
        start=move.start if move else None,
        end=move.end if move else None,
        outcome=move.outcome if move else "",
        steps=move.steps if move else (),
        planned=(planned.start, planned.end) if planned else None,
    )


def _first_known(move: Move) -> float:
    return move.start or move.end or 0.0


def planned_times(answer: PlanAnswer, *, at: float, started: Iterable[str]) -> dict[str, Planned]:
    """Return start and end by node, of those that have not started and whose end is known.

    None has one while the rollout is stopped: its times count from an end that nobody knows.
    """
    if answer.stops:
        return {}
    begun = frozenset(started)
    return {
        each.node: Planned(start=at + each.start_p50, end=at + each.end_p50, at=at)
        for each in answer.nodes
        if each.node not in begun and each.start_p50 is not None and each.end_p50 is not None
    }
