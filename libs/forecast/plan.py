"""Plan a rollout: play it several times and summarize the results."""

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from libs.forecast import aggregate
from libs.forecast.assumptions import Assumptions
from libs.forecast.options import PlanOptions, apply_options
from libs.forecast.percentiles import percentiles_of, upper_median
from libs.forecast.play import play
from libs.forecast.play_result import PlayResult
from libs.forecast.pods import PodEffects
from libs.forecast.remarks import remarks
from libs.forecast.required_limits import find_required_limits
from libs.forecast.rollout_plan import NodeForecast, RequiredLimits, RolloutPlan
from libs.forecast.world import WorldModel
from libs.rollout.views.fleet import Fleet, Instant

_HOUR = 3600.0
_MOST, _LEAST = 20, 2
_NODES = 2_000
"""Total number of played nodes by default."""


def plan(
    fleet: Fleet,
    now: Instant,
    *,
    pool: str,
    assumptions: Assumptions,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    finish_by: float | None = None,
    plays: int | None = None,
    seed: int = 0,
) -> RolloutPlan:
    """Forecast the rollout of a pool from `now` on.

    With `finish_by` (unix seconds) also search the limits that complete it in time. The same
    arguments give the same plan, in whatever order nodes and pools come.
    """
    played = apply_options(fleet, pool, options)
    few = max(_LEAST, min(_MOST, _NODES // max(1, len(played.nodes))))
    number = few if plays is None else plays
    if number < 1:
        raise ValueError(f"{plays} plays foresee nothing: ask for one at least")
    worlds = [assumptions.world(seed + one) for one in range(number)]
    asked = _Asked(played, now, pool, worlds)
    stories = asked.stories()
    made = _plan(asked, stories)
    if finish_by is not None:
        made = replace(made, required_limits=asked.needed(finish_by - now.at, stories))
    return replace(made, remarks=remarks(made, fleet, asked.fleet, now, assumptions.basis))


class _Asked:
    def __init__(self, fleet: Fleet, now: Instant, pool: str, worlds: Sequence[WorldModel]) -> None:
        self.fleet = fleet
        self.now = now
        self.pool = pool
        self._worlds = worlds
        self._tried: dict[tuple[int, int | None], float | None] = {}

    def stories(self, fleet: Fleet | None = None) -> list[PlayResult]:
        played = fleet or self.fleet
        return [play(played, self.now, pool=self.pool, world=world) for world in self._worlds]

    def needed(self, seconds: float, stories: Sequence[PlayResult]) -> RequiredLimits:
        members = sum(node.pool == self.pool for node in self.fleet.nodes.values())
        return find_required_limits(
            self._try,
            nodes=members,
            seconds=seconds,
            least=min(members, _least(stories, seconds)),
            parallel=self.fleet.pools[self.pool].upgrade.max_parallel_upgrades,
        )

    def _try(self, unavailable: int, parallel: int | None) -> float | None:
        key = unavailable, parallel
        if key not in self._tried:
            wish = PlanOptions(max_unavailable=unavailable, max_parallel=parallel)
            stories = self.stories(apply_options(self.fleet, self.pool, wish))
            self._tried[key] = aggregate.makespan(stories).p95
        return self._tried[key]


def _least(stories: Sequence[PlayResult], seconds: float) -> int:
    """Return a number of nodes below which the measured unavailable time cannot fit.

    Part of that time is the pause between two attempts, so only a good half of it counts.
    """
    away = (
        sum(each.end - each.start for each in story.nodes.values() if each.start and each.end)
        for story in stories
    )
    return int(0.6 * min(away, default=0.0) / seconds) if seconds > 0 else 0


def _plan(asked: _Asked, stories: Sequence[PlayResult]) -> RolloutPlan:
    pods = PodEffects(asked.fleet)
    nodes = [_node(asked.fleet, pods, stories, name) for name in aggregate.node_names(stories)]
    return RolloutPlan(
        pool=asked.pool,
        target=asked.fleet.pools[asked.pool].target,
        plays=len(stories),
        nodes=tuple(sorted(nodes, key=_turn)),
        makespan=aggregate.makespan(stories),
        loss=aggregate.largest_loss(stories),
        gpu_hours_lost=upper_median(story.gpu_seconds for story in stories) / _HOUR,
        proof=aggregate.proof_forecast(stories),
        halted_plays=sum(bool(story.halted_because) for story in stories),
    )


def _node(fleet: Fleet, pods: PodEffects, stories: Sequence[PlayResult], name: str) -> NodeForecast:
    found = aggregate.node_results(stories, name)
    evicted = frozenset[str]().union(*(each.evicted for each in found))
    end = percentiles_of((each.end for each in found), len(stories))
    return NodeForecast(
        node=name,
        start=percentiles_of((each.start for each in found), len(stories)),
        end=end,
        evicted=pods.evicted(evicted),
        lost_pods=pods.lost(evicted),
        blocked_by=pods.blocked_by(fleet.nodes[name]),
        wait=aggregate.final_wait(found, end),
        failed_plays=sum(each.failed is not None for each in found),
    )


def _turn(node: NodeForecast) -> tuple[float, float, str]:
    start = node.start
    return (
        inf if start.p50 is None else start.p50,
        inf if start.p95 is None else start.p95,
        node.node,
    )
