"""The result of one play, and its trackers. Times are seconds from the beginning of the play."""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import msgspec

from libs.contracts.node import UpgradeState
from libs.contracts.queries import CapacityPoint
from libs.contracts.rollout import RolloutStatus, TargetRecord
from libs.contracts.waits import WAITS_FOR_OTHERS
from libs.rollout.decision import Wait
from libs.rollout.pool import contribution
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


class NodeResult(msgspec.Struct, kw_only=True):
    """The course of a node that was not up to date at the beginning."""

    start: float | None = None
    """When it first started."""
    end: float | None = None
    """When it was first up to date."""
    failed: float | None = None
    """When it last failed, unless it recovered."""
    evicted: frozenset[str] = frozenset()
    """Uids of pods that were evicted or deleted."""
    wait: Wait | None = None
    """Its wait at the end of the play, if it was not up to date."""
    drained: float | None = None
    """Seconds for which it was last unavailable, if it became so in the play and was upgraded."""
    pulling: float = 0.0
    """Seconds of those in which the driver's image was pulled."""

    @property
    def over_at(self) -> float | None:
        """Return when it was done, successfully or not."""
        return self.failed if self.end is None else self.end


class ProofDelay(msgspec.Struct, frozen=True, kw_only=True):
    """The longest wait while the target was being proven."""

    node: str
    detail: str
    seconds: float
    """Infinite: it did not end in the play."""


class ProofResult(msgspec.Struct, frozen=True, kw_only=True):
    threshold: int
    proven_at: float | None
    """None: it was not proven in the play."""
    delay: ProofDelay | None


class PlayResult(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Mapping[str, NodeResult]
    """The nodes that were not up to date at the beginning, by name."""
    loss: CapacityPoint
    """The most nodes that were unavailable at one time; of several such times the first."""
    losses: tuple[CapacityPoint, ...] = ()
    """Each change of the unavailable nodes, in order."""
    gpu_seconds: float
    """Lost until the last node was done, by nodes that an upgrade makes or made unavailable."""
    proof: ProofResult | None
    """None: the target needed no proof."""
    halted_because: str
    """Empty: the target was not halted in the end."""
    duration: float
    """Until the last node that finished did so."""


class _Outage(NamedTuple):
    """A node that is unavailable."""

    since: float | None
    """None: from the beginning."""
    gpus: int
    reason: str
    in_budget: bool
    """Whether it counts toward the budget of the pool."""
    was_in_budget: bool
    """Whether it did so when it became unavailable."""
    lost_since: float | None
    """From when on the rollout loses its GPUs; None: something else does."""


def unavailable_reason(node: NodeView) -> tuple[str, bool]:
    """Return why no pod can have the GPUs of a node, and whether it counts toward the budget.

    Empty: it is available. A node that waits for its first driver has no capacity to lose, but none
    to give either.
    """
    if reason := contribution.unavailable_reason(node, node.current_record):
        return reason, True
    if node.loaded is not None or node.excluded or not node.pool:
        return "", False
    return "without a driver" if node.modules_reported else "no report about its driver", False


def is_away_by_upgrade(node: NodeView) -> bool:
    """Return whether an upgrade of ours keeps the node unavailable, or did and has failed."""
    return node.upgrade_lease is not None or node.state == UpgradeState.UPGRADE_FAILED


class CapacityTracker:
    """Unavailable nodes of one pool. Times are seconds since the beginning."""

    def __init__(self) -> None:
        self.loss = CapacityPoint(nodes=0, gpus=0, at=0.0)
        """The largest loss so far; the earliest of several."""
        self.losses: list[CapacityPoint] = []
        """Each change so far."""
        self._unavailable: dict[str, _Outage] = {}
        self._gpus = 0
        self._outages: list[tuple[int, float, float]] = []
        self.last_outages: dict[str, float] = {}
        """Seconds for which each node was last unavailable, of those that became so."""

    def observe(self, node: NodeView, at: float, *, first: bool = False) -> None:
        reason, in_budget = unavailable_reason(node)
        if reason:
            since = None if first else at
            self.node_lost(node.name, node.gpus, since, reason, in_budget=in_budget)
            if first and is_away_by_upgrade(node):
                outage = self._unavailable[node.name]
                self._unavailable[node.name] = outage._replace(lost_since=at)
        elif node.name in self._unavailable:
            outage = self._unavailable.pop(node.name)
            self._gpus -= outage.gpus
            if outage.lost_since is not None:
                self._outages.append((outage.gpus, outage.lost_since, at))
            if outage.since is not None:
                self.last_outages[node.name] = at - outage.since

    def node_lost(
        self, name: str, gpus: int, at: float | None, reason: str, *, in_budget: bool = True
    ) -> None:
        """Count a node as unavailable; None: from the beginning."""
        outage = self._unavailable.get(name)
        if outage is None:
            self._unavailable[name] = _Outage(at, gpus, reason, in_budget, in_budget, at)
            self._gpus += gpus
        elif outage.reason != reason:
            self._unavailable[name] = outage._replace(reason=reason, in_budget=in_budget)

    @property
    def reasons(self) -> dict[str, str]:
        """Return why nodes are unavailable now that count toward the budget."""
        found = self._unavailable.items()
        return {name: outage.reason for name, outage in found if outage.in_budget}

    @property
    def from_beginning(self) -> frozenset[str]:
        """Return the nodes that have counted toward the budget since the beginning."""
        found = self._unavailable.items()
        return frozenset(
            name for name, outage in found if outage.since is None and outage.was_in_budget
        )

    def update(self, at: float) -> None:
        """Update the losses once all changes of this moment are observed."""
        current = CapacityPoint(nodes=len(self._unavailable), gpus=self._gpus, at=at)
        last = self.losses[-1] if self.losses else None
        if last is None or (last.nodes, last.gpus) != (current.nodes, current.gpus):
            self.losses.append(current)
        if current.nodes > self.loss.nodes:
            self.loss = current

    def gpu_seconds(self, until: float) -> float:
        """Return the GPU-seconds that the rollout loses from the beginning of the play on."""
        open_ = [
            (outage.gpus, outage.lost_since, until)
            for outage in self._unavailable.values()
            if outage.lost_since is not None
        ]
        return sum(
            gpus * (min(to, until) - since)
            for gpus, since, to in (*self._outages, *open_)
            if since < until
        )


class ProofTracker:
    def __init__(self, pool: PoolView) -> None:
        self._target = pool.target
        self._threshold = 0
        self._proven: float | None = None
        self._proven_before = False
        """The target was already proven when the play began."""
        self._waits: dict[str, tuple[float, Wait]] = {}
        self._longest: ProofDelay | None = None
        self.in_flight = frozenset[str]()
        """Nodes that are moving to the target, until it is proven."""
        self.record: TargetRecord | None = None
        """What became of the target so far; None: nothing yet."""
        self.limit = 0
        """How many nodes may be unavailable."""

    @property
    def halted(self) -> str:
        """Return why the target is halted; empty: it is not."""
        return "" if self.record is None else self.record.halted_because

    def observe_pool(self, pool: PoolView, at: float) -> None:
        rollout = pool.rollout
        if rollout is None:
            return
        self.limit = rollout.status.counts.limit
        if self._proven is None:
            self._observe_flight(rollout.status, at)
        self._observe_target(rollout.status, at)

    def _observe_flight(self, status: RolloutStatus, at: float) -> None:
        in_flight = frozenset(
            node.node
            for node in status.in_flight.values()
            if node.target == self._target and not node.outside
        )
        for name in self.in_flight - in_flight:
            self._end_wait(name, at)
        self.in_flight = in_flight

    def _observe_target(self, status: RolloutStatus, at: float) -> None:
        record = status.targets.get(self._target)
        if record is None:
            return
        self.record = record
        if record.proven and self._proven is None:
            self._proven = at
            self._proven_before = not self._threshold
        self._threshold = record.threshold

    def observe_wait(self, name: str, wait: Wait | None, at: float) -> None:
        if self._proven is not None or name not in self.in_flight:
            return
        current = self._waits.get(name)
        if current is not None and wait is not None and current[1].code is wait.code:
            return
        self._end_wait(name, at)
        if wait is not None and wait.code in WAITS_FOR_OTHERS:
            self._waits[name] = (at, wait)

    def result(self) -> ProofResult | None:
        """Return the result; None: the target needed no proof."""
        if self._proven_before or not self._threshold:
            return None
        if self._proven is None:
            for name in sorted(self._waits):
                self._end_wait(name, inf)
        return ProofResult(threshold=self._threshold, proven_at=self._proven, delay=self._longest)

    def _end_wait(self, name: str, at: float) -> None:
        current = self._waits.pop(name, None)
        if current is None:
            return
        since, wait = current
        seconds = at - since
        if self._longest is None or seconds > self._longest.seconds:
            self._longest = ProofDelay(node=name, detail=wait.detail, seconds=seconds)
