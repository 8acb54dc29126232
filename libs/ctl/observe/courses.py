"""How long an upgrade takes under the GPU Operator's rules, and under Sluice's. Pure.

Arithmetic: each node takes the same time, nothing fails, and no job is waited for.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from libs.contracts.node import UpgradeState
from libs.ctl.observe.budget import blocked_because, budget_of, scaled
from libs.ctl.observe.fleet import FAILED, REQUIRED, OperatorNode, OperatorPool
from libs.ctl.observe.objects import DONE

THRESHOLD_PERCENT: Final = 5
"""Sluice's default `failureThreshold`."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """How the upgrade goes under one set of rules."""

    at_once: int
    seconds: float | None
    """None: it does not begin, or does not end."""
    because: str = ""
    """Why it does not."""
    first: int = 0
    """How many nodes prove the driver before others start; 0: none."""


def _as_marked(pool: OperatorPool, moving: Sequence[OperatorNode]) -> OperatorPool:
    """Return the pool as it is once the operator has marked the nodes."""
    chosen = {node.name for node in moving}
    marked = tuple(
        msgspec.structs.replace(node, state=REQUIRED)
        if node.name in chosen and node.state in DONE
        else node
        for node in pool.nodes
    )
    limits = msgspec.structs.replace(pool.limits, auto_upgrade=True)
    return msgspec.structs.replace(pool, nodes=marked, limits=limits)


def operator_course(pool: OperatorPool, moving: Sequence[OperatorNode], seconds: float) -> Course:
    """Play waves of as many nodes as the operator starts; nodes in progress end with the first."""
    marked = _as_marked(pool, moving)
    ended = {
        node.name
        for node in marked.managed
        if node.state not in DONE and node.state not in (REQUIRED, FAILED)
    }
    later = msgspec.structs.replace(
        marked,
        nodes=tuple(
            msgspec.structs.replace(
                node,
                state=UpgradeState.UPGRADE_DONE.value,
                cordoned=node.cordoned and node.initially_cordoned,
            )
            if node.name in ended
            else node
            for node in marked.nodes
        ),
    )
    budget = budget_of(later)
    waiting = [node for node in moving if node.name not in ended and node.state != FAILED]
    bypassing = sum(node.cordoned for node in waiting)
    left, slots = len(waiting) - bypassing, max(0, budget.slots)
    if marked.incomplete or (left and not slots):
        return Course(at_once=slots, seconds=None, because=blocked_because(later, budget))
    rounds = max(math.ceil(left / slots) if left else 0, min(bypassing, 1))
    return Course(at_once=slots, seconds=(min(len(ended), 1) + rounds) * seconds)


def sluice_course(pool: OperatorPool, moving: Sequence[OperatorNode], seconds: float) -> Course:
    """Play rounds within Sluice's budget, the first with the nodes that prove the driver.

    A node that is cordoned already needs no place of maxUnavailable; one that is not Ready does
    not start.
    """
    total = len(pool.nodes)
    limit = scaled(pool.limits.max_unavailable, total)
    if limit is None:
        return Course(at_once=0, seconds=None, because="maxUnavailable is no number")
    limit = max(1, limit) if pool.limits.max_unavailable not in (0, "0%") else 0
    threshold = max(1, math.ceil(total * THRESHOLD_PERCENT / 100))
    starting = [node for node in moving if node.ready]
    away = sum(not node.is_available for node in pool.nodes)
    cordoned = [node for node in starting if node.cordoned]
    released = sum(_is_operators_cordon(node) for node in cordoned)
    parallel = pool.limits.max_parallel or total
    room = _Room(
        limit=limit,
        away=away,
        released=released,
        kept=len(cordoned) - released,
        left=len(starting) - len(cordoned),
    )
    at_once, rounds, proved = min(parallel, len(cordoned) + max(0, limit - away)), 0, 0
    while room.waiting:
        places = min(parallel, threshold - proved) if proved < threshold else parallel
        begun = room.begin(places)
        if not begun:
            because = f"maxUnavailable allows {limit}; unavailable: {room.away}"
            return Course(at_once=at_once, seconds=None, because=because, first=threshold)
        proved, rounds = proved + begun, rounds + 1
    return Course(at_once=at_once, seconds=rounds * seconds, first=threshold)


def _is_operators_cordon(node: OperatorNode) -> bool:
    """Whether the cordon is taken back when the node is done: the operator set it."""
    return node.state not in DONE and node.state != REQUIRED and not node.initially_cordoned


class _Room:
    """The nodes that have not begun, and the unavailable ones."""

    def __init__(self, *, limit: int, away: int, released: int, kept: int, left: int) -> None:
        self.away = away
        self._limit = limit
        self._released = released
        """Cordoned by the operator."""
        self._kept = kept
        """Cordoned by people: still so at the end."""
        self._left = left
        """Available."""

    @property
    def waiting(self) -> int:
        return self._released + self._kept + self._left

    def begin(self, places: int) -> int:
        """Let the nodes of a round begin and end; return their number."""
        released = min(places, self._released)
        kept = min(places - released, self._kept)
        free = max(0, self._limit - self.away)
        left = min(places - released - kept, free, self._left)
        self._released -= released
        self._kept -= kept
        self._left -= left
        self.away -= released
        return released + kept + left
