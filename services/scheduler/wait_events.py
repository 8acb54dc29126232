"""Kubernetes Events about waits that somebody can end: which are recorded (docs/invariants.md#i10).

Recorded are waits of one node. What keeps a whole pool from going on is in the conditions of its
Rollout, and a wait that ends without anybody's help is in the answer of `why`.
"""

from collections import defaultdict
from typing import Final

from libs.contracts.node import WaitCode
from libs.kube.events import EventRecorder, InvolvedObject
from libs.rollout.decision import Wait
from libs.rollout.wait_reasons import NO_ACTION_NEEDED

REASON: Final = "GPUDriverUpgradeWaits"
WINDOW: Final = 3600.0
"""Seconds in which a node has at most one Event for each code."""
QUIET: Final = 120.0
"""Seconds of a leader's term without such Events: what it finds was told by the one before."""

OF_POOLS: Final = frozenset(
    {
        WaitCode.BUDGET,
        WaitCode.PROOF,
        WaitCode.HALTED,
        WaitCode.PAUSED,
        WaitCode.FROZEN,
        WaitCode.FOREIGN_OPERATOR,
        WaitCode.POLICY_GONE,
        WaitCode.STALE,
        WaitCode.BUS,
    }
)
"""Codes that a whole pool, or all of them, have at once."""


def is_told(wait: Wait) -> bool:
    """Whether a wait is of one node, and somebody can end it."""
    return wait.code not in OF_POOLS and not wait.who.startswith(NO_ACTION_NEEDED)


class WaitEvents:
    """The Events about waits of one leader."""

    def __init__(self, recorder: EventRecorder, *, started_at: float) -> None:
        self._recorder = recorder
        self._quiet_until = started_at + QUIET
        self._told: defaultdict[str, dict[WaitCode, float]] = defaultdict(dict)
        """By name of a node: when a code was last told, or found at the start."""

    def forget(self, name: str) -> None:
        self._told.pop(name, None)

    def began(self, name: str, uid: str, wait: Wait, now: float) -> None:
        """Record the Event of a wait that begins, unless its code was told within the hour."""
        if not is_told(wait):
            return
        told = self._told[name]
        if now - told.get(wait.code, float("-inf")) < WINDOW:
            return
        told[wait.code] = now
        if now < self._quiet_until or not uid:
            return
        self._recorder.record(
            InvolvedObject(kind="Node", name=name, uid=uid),
            type="Warning",
            reason=REASON,
            message=f"{wait.code.value}: {wait.detail}. Can be ended by: {wait.who}",
            group=wait.code.value,
        )
