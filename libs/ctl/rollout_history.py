"""The rollouts of each pool, and their plans, from the events of both. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts.events import (
    Event,
    EventBody,
    EvictionEvent,
    GrantEvent,
    PlanEvent,
    PlannedTime,
    RolloutEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.node import UpgradeState
from libs.contracts.queries import PlanLimits
from libs.contracts.rollout import RolloutPhase
from libs.contracts.waits import WaitCode
from libs.ctl.comparison import ComparedNode, Comparison
from libs.rollout.plan_time import PlanTime, first_start, plan_time

_ENDS: Final = {UpgradeState.UPGRADE_DONE: False, UpgradeState.UPGRADE_FAILED: True}
"""States in which a node's upgrade has ended, and whether it failed."""
UNPLANNED: Final = (
    WaitCode.JOBS,
    WaitCode.PDB,
    WaitCode.PAUSED,
    WaitCode.FROZEN,
    WaitCode.HALTED,
    WaitCode.SKIPPED,
    WaitCode.NOT_READY,
)
"""Waits that end when a job does, or when people act: no plan knows when."""
_SHORTEST: Final = 1.0
"""Seconds; a shorter wait decides nothing."""


class _Plan(msgspec.Struct, kw_only=True):
    at: float
    makespan: float | None
    late: float | None
    gpu_hours: float | None
    limits: PlanLimits | None
    policy_limits: PlanLimits | None
    nodes: list[PlannedTime]


class _Rollout(msgspec.Struct, kw_only=True):
    """One rollout, as far as its events were read."""

    target: str
    began: float
    plan: _Plan | None
    starts: dict[str, float] = {}
    ends: dict[str, tuple[float, bool]] = {}
    retries: dict[str, int] = {}
    evicted: set[str] = set()
    """UIDs of pods."""
    moves: bool = True
    """Whether nodes leave another driver for it: it follows another, or a driver was unloaded.
    Otherwise they only validated the one that they had, as after a restart.
    """
    completed_at: float | None = None
    kept_out: set[str] = set()
    """Nodes that it was complete without: those that people kept out, and planned ones."""
    waited: dict[str, dict[str, float]] = {}
    """Seconds by node and code of the wait."""

    def concerns(self, node: str) -> bool:
        """Return whether what happens to a node is part of the rollout still."""
        return self.completed_at is None or node in self.kept_out

    @property
    def followers(self) -> set[str]:
        """Return the nodes that started after it was complete without them."""
        return self.kept_out & self.starts.keys()


class RolloutHistory:
    """The last rollout of each pool to each target, from events in their order."""

    def __init__(self) -> None:
        self._plans: dict[tuple[str, str], dict[str, _Plan]] = {}
        """By pool and target, and then by name, in the order in which they were asked for."""
        self._limits: dict[str, PlanLimits | None] = {}
        """Those of each pool's policy, as far as the last plan says."""
        self._rollouts: dict[str, dict[str, _Rollout]] = {}
        """By pool and target; the last one that was granted is the last."""
        self._waits: dict[str, tuple[str, WaitCode, float]] = {}
        """By node: the pool, the code and the beginning of the wait that it has."""

    def add(self, event: Event, body: EventBody) -> None:
        """Take in the next event. Those that tell nothing of times are left out."""
        match body:
            case PlanEvent():
                self._planned(body, event.at)
            case GrantEvent():
                self._granted(body, event.at)
            case StepEvent():
                if body.after in _ENDS:
                    self._wait_ended(event)
                self._unloaded(body)
                self._stepped(body, event)
            case WaitEvent():
                self._wait_ended(event)
                if body.code is not None and body.code in UNPLANNED:
                    self._waits[event.node] = body.pool, body.code, event.at
            case EvictionEvent(answer="evicted"):
                self._evicted(body, event.node)
            case RolloutEvent(after=RolloutPhase.COMPLETE):
                self._completed(body, event.at)
            case _:
                pass

    def _completed(self, body: RolloutEvent, at: float) -> None:
        """Note when a rollout was first complete, and without which nodes.

        What happens to others afterwards, as a validation, is no part of it.
        """
        rollout = self._rollouts.get(body.pool, {}).get(body.target)
        if rollout is None or rollout.completed_at is not None:
            return
        rollout.completed_at = at
        planned = (
            {each.node for each in rollout.plan.nodes} if rollout.plan is not None else set[str]()
        )
        skipped = {
            node
            for node, (pool, code, _) in self._waits.items()
            if pool == body.pool and code is WaitCode.SKIPPED
        }
        rollout.kept_out = (planned | skipped) - rollout.starts.keys()

    def _planned(self, body: PlanEvent, at: float) -> None:
        """Keep a plan, of which several events have the nodes; one of nothing to do is none."""
        self._limits[body.pool] = body.policy_limits
        if not body.nodes and body.makespan_p50 == 0:  # nothing to do: no plan of nodes to come
            return
        plans = self._plans.setdefault((body.pool, body.target), {})
        if body.plan not in plans:
            plans[body.plan] = _Plan(
                at=at,
                makespan=body.makespan_p50,
                late=body.makespan_p95,
                gpu_hours=body.gpu_hours_lost,
                limits=body.limits,
                policy_limits=body.policy_limits,
                nodes=[],
            )
        plans[body.plan].nodes += body.nodes

    def _plan_before(self, pool: str, target: str, *, since: float) -> _Plan | None:
        """Return the last plan since then, rather one by the limits of the policy."""
        plans = [plan for plan in self._plans.get((pool, target), {}).values() if plan.at >= since]
        in_force = [plan for plan in plans if plan.limits == self._limits[pool]]
        return (in_force or plans or [None])[-1]

    def _granted(self, body: GrantEvent, at: float) -> None:
        """Note when nodes started. A grant to another target than the last begins a rollout."""
        of_pool = self._rollouts.setdefault(body.pool, {})
        last = next(reversed(of_pool), None)
        if last != body.target:  # another target was granted since: this is a rollout of its own
            before = of_pool[last] if last is not None else None
            since = before.began if before is not None and before.moves else 0.0
            plan = self._plan_before(body.pool, body.target, since=since)
            of_pool.pop(body.target, None)
            of_pool[body.target] = _Rollout(
                target=body.target, began=at, plan=plan, moves=before is not None
            )
        rollout = of_pool[body.target]
        for node in filter(rollout.concerns, body.nodes):
            rollout.starts.setdefault(node, at)
            _, has_failed = rollout.ends.get(node, (at, False))
            if has_failed:
                del rollout.ends[node]
                rollout.retries[node] = rollout.retries.get(node, 0) + 1

    def _unloaded(self, body: StepEvent) -> None:
        rollout = self._rollouts.get(body.pool, {}).get(body.target)
        if rollout is not None and body.after == UpgradeState.POD_RESTART_REQUIRED:
            rollout.moves = True

    def _stepped(self, body: StepEvent, event: Event) -> None:
        """Note when a node ended, and whether it failed."""
        rollout = self._rollouts.get(body.pool, {}).get(body.target)
        if (
            rollout is None
            or not rollout.concerns(event.node)
            or event.node not in rollout.starts
            or body.after not in _ENDS
        ):
            return
        if body.before != body.after:
            rollout.ends[event.node] = event.at, _ENDS[UpgradeState(body.after)]

    def _wait_ended(self, event: Event) -> None:
        """Count the wait that a node had: in the rollout under way, and since its beginning."""
        pool, code, since = self._waits.pop(event.node, ("", "", 0.0))
        targets = self._rollouts.get(pool)
        if not targets:
            return
        rollout = targets[next(reversed(targets))]
        seconds = event.at - max(since, rollout.began)
        if seconds > 0 and rollout.concerns(event.node) and event.node not in rollout.ends:
            of_node = rollout.waited.setdefault(event.node, {})
            of_node[code] = of_node.get(code, 0.0) + seconds

    def _evicted(self, body: EvictionEvent, node: str) -> None:
        for targets in self._rollouts.values():
            rollout = targets[next(reversed(targets))]
            if node in rollout.starts and rollout.concerns(node):
                rollout.evicted.add(body.pod_uid)

    def pools(self) -> list[str]:
        return sorted(self._rollouts)

    def targets(self, pool: str) -> list[str]:
        """Return the targets of a pool's rollouts, the last one first."""
        return list(reversed(self._rollouts.get(pool, {})))

    def comparison(self, pool: str, target: str, *, now: float) -> Comparison:
        """Return a rollout beside its plan; of one that goes on, as far as it is now."""
        rollout = self._rollouts[pool][target]
        plan = rollout.plan
        complete = rollout.completed_at is not None or _is_over(rollout)
        followers = rollout.followers
        ends = [end for node, (end, _) in rollout.ends.items() if node not in followers]
        until = max(ends, default=rollout.began) if complete else now
        is_ended = complete and followers <= rollout.ends.keys()
        planned = PlanTime(None, None)
        if plan is not None:
            planned = plan_time(plan.makespan, plan.late, (each.start for each in plan.nodes))
        return Comparison(
            pool=pool,
            target=target,
            began=rollout.began,
            complete=complete,
            nodes=tuple(_nodes(rollout, self._open_waits(pool, rollout, now))),
            makespan=until - rollout.began,
            evicted=len(rollout.evicted),
            planned_at=None if plan is None else plan.at,
            planned_makespan=planned.p50,
            planned_makespan_p95=planned.p95,
            planned_limits=None if plan is None else plan.limits,
            policy_limits=None if plan is None else plan.policy_limits,
            gpu_hours=_gpu_hours(rollout, until) if is_ended else None,
            without_gpus=tuple(_with_gpus(rollout, None)),
            away_before=tuple(_with_gpus(rollout, 0)),
            planned_gpu_hours=None if plan is None else plan.gpu_hours,
        )

    def _open_waits(
        self, pool: str, rollout: _Rollout, now: float
    ) -> Mapping[str, tuple[WaitCode, float]]:
        """Return the waits of the rollout that go on, by node, with their seconds until now."""
        is_last = rollout.target == next(reversed(self._rollouts[pool]))
        if not is_last:
            return {}
        return {
            node: (code, now - max(since, rollout.began))
            for node, (of_pool, code, since) in self._waits.items()
            if of_pool == pool and node not in rollout.ends and rollout.concerns(node)
        }


def _is_over(rollout: _Rollout) -> bool:
    """Return whether every planned and every started node has ended, though some failed."""
    planned = {each.node for each in rollout.plan.nodes} if rollout.plan is not None else set[str]()
    return bool(planned) and not (planned | rollout.starts.keys()) - rollout.ends.keys()


def _gpu_hours(rollout: _Rollout, until: float) -> float | None:
    """Return the GPU-hours lost by the nodes that were available; None: some GPUs are not known.

    A node that failed is away until the rollout ends.
    """
    planned = {each.node: each.gpus for each in rollout.plan.nodes} if rollout.plan else {}
    lost = 0.0
    for name, start in rollout.starts.items():
        gpus = planned.get(name)
        end, failed = rollout.ends.get(name, (until, False))
        if gpus is None:
            return None
        lost += gpus * ((until if failed else end) - start)
    return lost / 3600.0


def _with_gpus(rollout: _Rollout, gpus: int | None) -> Iterable[str]:
    """Yield the nodes that started and took so many GPUs away, as the plan says."""
    planned = {each.node: each.gpus for each in rollout.plan.nodes} if rollout.plan else {}
    return sorted(name for name in rollout.starts if planned.get(name) == gpus)


def _nodes(
    rollout: _Rollout, open_waits: Mapping[str, tuple[WaitCode, float]]
) -> Iterable[ComparedNode]:
    """Yield the nodes in the order in which they started, then those that did not."""
    planned: Mapping[str, PlannedTime] = (
        {} if rollout.plan is None else {each.node: each for each in rollout.plan.nodes}
    )
    first = first_start(each.start for each in planned.values())
    kept_out = {name for name, (code, _) in open_waits.items() if code is WaitCode.SKIPPED}
    for name in sorted(
        planned.keys() | rollout.starts.keys() | kept_out,
        key=lambda name: (rollout.starts.get(name, float("inf")), name),
    ):
        start, plan = rollout.starts.get(name), planned.get(name)
        end, failed = rollout.ends.get(name, (None, False))
        waited = dict(rollout.waited.get(name, {}))
        code, seconds = open_waits.get(name, ("", 0.0))
        if code:
            waited[code] = waited.get(code, 0.0) + seconds
        yield ComparedNode(
            node=name,
            planned_start=None if plan is None else plan.start - first,
            planned_end=None if plan is None or plan.end is None else plan.end - first,
            start=None if start is None else start - rollout.began,
            end=None if end is None else end - rollout.began,
            failed=failed,
            retries=rollout.retries.get(name, 0),
            waited={code: seconds for code, seconds in waited.items() if seconds >= _SHORTEST},
            waits_for=code,
            follows=name in rollout.followers,
        )
