"""Plan a rollout: play it several times and summarize the results."""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf

from msgspec.structs import replace

from libs.contracts.lengths import JobLengths
from libs.contracts.queries import PlanAnswer, PlannedNode
from libs.contracts.waits import WaitCode
from libs.contracts.words import format_duration
from libs.forecast import aggregate
from libs.forecast.aggregate import node_results, percentiles_of, upper_median
from libs.forecast.forecast import Forecast, RequiredLimits
from libs.forecast.held_nodes import deletes_by_force, held_remarks
from libs.forecast.history import NOTHING, History
from libs.forecast.job_lengths import LearnedJobs
from libs.forecast.learned_world import LearnedWorld, fleet_history
from libs.forecast.options import PlanOptions, apply_options, limits_of
from libs.forecast.play import play
from libs.forecast.play_result import PlayResult, is_away_by_upgrade, unavailable_reason
from libs.forecast.pods import PodEffects
from libs.forecast.remarks import remarks
from libs.forecast.stops import stops_of, without_stops
from libs.forecast.world import WorldModel
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView

_MAX_PLAYS, _MIN_PLAYS = 99, 2
_NODES = 4_000
"""Total number of played nodes by default."""
_SEARCH_PLAYS = 20
"""Plays for each limit that is tried."""


def plan(
    fleet: Fleet,
    now: Instant,
    *,
    pool: str,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    finish_by: float | None = None,
    plays: int | None = None,
    seed: int = 0,
    job_lengths: JobLengths | None = None,
    world_of: Callable[[int], WorldModel] | None = None,
) -> Forecast:
    """Forecast the rollout of a pool from `now` on, or from the end of what stops it now.

    With `finish_by` (unix seconds) also search the limits that complete it in time. `world_of`
    returns the world of a seed; by default things take as long as they took this fleet before, as
    far as its nodes' records and the lengths of its ended jobs say, and otherwise as long as is
    usual. The same arguments give the
    same plan, in whatever order nodes and pools come.
    """
    wanted_fleet = apply_options(fleet, pool, options)
    stops = stops_of(wanted_fleet.pools[pool])
    played_fleet = without_stops(wanted_fleet, pool)
    if plays is None:
        plays = max(_MIN_PLAYS, min(_MAX_PLAYS, _NODES // max(1, len(played_fleet.nodes))))
    if plays < 1:
        raise ValueError(f"cannot forecast with {plays} plays: use at least one")
    history, jobs = NOTHING, LearnedJobs(job_lengths)
    if world_of is None:
        history = fleet_history(played_fleet, pool)
        world_of = _learned_worlds(history, jobs, played_fleet, pool)
    worlds = [world_of(seed + number) for number in range(plays)]
    results = [play(played_fleet, now, pool=pool, world=world) for world in worlds]
    forecast = _summarize(played_fleet, pool, results)
    answer = replace(
        forecast.answer,
        measured_nodes=history.nodes if history.restart is not None else 0,
        stops=stops if forecast.answer.nodes or played_fleet.pools[pool].gone else (),
        limits=limits_of(wanted_fleet.pools[pool]),
        policy_limits=limits_of(fleet.pools[pool]),
    )
    limits = None
    if finish_by is not None and _has_something_to_do(answer):
        search = _Search(played_fleet, now, pool, worlds[:_SEARCH_PLAYS])
        limits = search.required_limits(results, finish_by - now.at)
        answer = replace(answer, needed_max_unavailable=limits.max_unavailable)
    answer = replace(answer, held=tuple(held_remarks(answer, played_fleet, now, jobs)))
    forecast = replace(forecast, answer=answer, required_limits=limits)
    told = remarks(forecast, fleet, played_fleet, now, history=history, jobs=jobs)
    return replace(forecast, answer=replace(answer, remarks=told))


def _has_something_to_do(answer: PlanAnswer) -> bool:
    """Return whether any node is to be upgraded that people do not keep out."""
    waits = (node.wait for node in answer.nodes)
    return any(wait is None or wait.code is not WaitCode.SKIPPED for wait in waits)


def _learned_worlds(
    history: History, jobs: LearnedJobs, fleet: Fleet, pool: str
) -> Callable[[int], WorldModel]:
    view = fleet.pools[pool]
    brings = any(build.image for build in view.builds.get(view.target, {}).values())
    return partial(LearnedWorld, history=history, jobs=jobs, brings_images=brings)


class _Search:
    """The search for the limits that complete a rollout in time."""

    def __init__(self, fleet: Fleet, now: Instant, pool: str, worlds: Sequence[WorldModel]) -> None:
        self._fleet = fleet
        self._now = now
        self._pool = pool
        self._worlds = worlds
        self._makespans: dict[tuple[int, int | None], float | None] = {}

    def required_limits(self, results: Sequence[PlayResult], seconds: float) -> RequiredLimits:
        members = sum(node.pool == self._pool for node in self._fleet.nodes.values())
        return find_required_limits(
            self._makespan,
            nodes=members,
            seconds=seconds,
            least=min(members, _lower_bound(results, seconds)),
            parallel=self._fleet.pools[self._pool].upgrade.max_parallel_upgrades,
        )

    def _makespan(self, unavailable: int, parallel: int | None) -> float | None:
        key = unavailable, parallel
        if key not in self._makespans:
            limits = PlanOptions(max_unavailable=unavailable, max_parallel=parallel)
            changed = apply_options(self._fleet, self._pool, limits)
            results = [
                play(changed, self._now, pool=self._pool, world=world) for world in self._worlds
            ]
            self._makespans[key] = aggregate.makespan(aggregate.timed(results)).p95
        return self._makespans[key]


def _lower_bound(results: Sequence[PlayResult], seconds: float) -> int:
    """Return a number of nodes below which the measured unavailable time cannot fit.

    Part of that time is the pause between two attempts, so only a good half of it counts.
    """
    unavailable = (
        sum(node.end - node.start for node in result.nodes.values() if node.start and node.end)
        for result in results
    )
    return int(0.6 * min(unavailable, default=0.0) / seconds) if seconds > 0 else 0


def _summarize(fleet: Fleet, pool: str, results: Sequence[PlayResult]) -> Forecast:
    nodes = _planned_nodes(fleet, pool, results)
    failed = {
        name: times
        for name in nodes
        if (times := sum(each.failed is not None for each in node_results(results, name)))
    }
    timed = aggregate.timed(results)
    forecast = Forecast(
        answer=_answer(fleet, pool, results, tuple(sorted(nodes.values(), key=_start_order))),
        plays=len(results),
        failed=failed,
        halted_plays=sum(bool(result.halted_because) for result in results),
        proof=aggregate.proof_forecast(timed),
    )
    answer = replace(
        forecast.answer,
        upgraded=forecast.upgraded,
        failing=len(forecast.failing) + forecast.failing_by_chance,
    )
    return replace(forecast, answer=answer)


def _answer(
    fleet: Fleet, pool: str, results: Sequence[PlayResult], nodes: tuple[PlannedNode, ...]
) -> PlanAnswer:
    timed = aggregate.timed(results)
    typical, makespan = aggregate.typical_play(timed), aggregate.makespan(timed)
    largest = aggregate.largest_loss(results)
    members = [node for node in fleet.nodes.values() if node.pool == pool]
    drained = [
        (node.drained, node.pulling)
        for result in timed
        for node in result.nodes.values()
        if node.drained is not None
    ]
    return PlanAnswer(
        pool=pool,
        target=fleet.pools[pool].target,
        nodes=nodes,
        makespan_p50=makespan.p50,
        makespan_p95=makespan.p95,
        largest_loss=largest.nodes,
        largest_loss_at=largest.at,
        pool_nodes=len(members),
        pool_gpus=sum(node.gpus for node in members) if all(node.gpus for node in members) else 0,
        capacity=aggregate.losses_of(typical),
        down=aggregate.first_loss(results),
        gpu_hours_lost=upper_median(result.gpu_seconds for result in results) / 3600.0,
        drained_seconds=upper_median(total for total, _ in drained) if drained else None,
        pulling_seconds=upper_median(pulling for _, pulling in drained) if drained else None,
    )


def _planned_nodes(
    fleet: Fleet, pool: str, results: Sequence[PlayResult]
) -> dict[str, PlannedNode]:
    """Return the nodes that are not up to date, by name."""
    pods, timed = PodEffects(fleet), aggregate.timed(results)
    typical = aggregate.typical_play(timed)
    planned: dict[str, PlannedNode] = {}
    for name in aggregate.node_names(results):
        found, counted = node_results(results, name), node_results(timed, name)
        evicted = frozenset[str]().union(*(node.evicted for node in found))
        start = percentiles_of((node.start for node in counted), len(timed))
        end = percentiles_of((node.end for node in counted), len(timed))
        # A budget that refuses now may allow in time; with force, pods go though it refuses.
        is_held = end.p50 is None or deletes_by_force(fleet.pools[pool])
        planned[name] = PlannedNode(
            node=name,
            start_p50=start.p50,
            start_p95=start.p95,
            end_p50=end.p50,
            end_p95=end.p95,
            evicted=pods.evicted(evicted),
            lost=pods.lost(evicted),
            without_place=pods.without_place(evicted),
            blocked_by=pods.blocked_by(fleet.nodes[name]) if is_held else (),
            wait=aggregate.final_wait(counted, end),
            gpus=_gpus_taken(fleet.nodes[name]),
            **_times_in(typical, name),
        )
    return planned


def _times_in(typical: PlayResult, name: str) -> dict[str, float | None]:
    """Return when a node starts and ends in the play that the curve of the plan is of."""
    node = typical.nodes.get(name)
    if node is None or node.start is None:
        return {}
    return {"run_start": node.start, "run_end": node.over_at}


def _gpus_taken(node: NodeView) -> int | None:
    reason, _ = unavailable_reason(node)
    return 0 if reason and not is_away_by_upgrade(node) else node.gpus or None


def _start_order(node: PlannedNode) -> tuple[float, float, str]:
    return (
        inf if node.start_p50 is None else node.start_p50,
        inf if node.start_p95 is None else node.start_p95,
        node.node,
    )


# The smallest limits that complete a rollout in time. A larger limit never makes a rollout slower,
# so the smallest sufficient one is found by bisection.

MakespanOf = Callable[[int, int | None], float | None]
"""Returns the p95 makespan (None: unknown) for a maxUnavailable and a maxParallelUpgrades (None:
unchanged).
"""


def find_required_limits(
    makespan_of: MakespanOf, *, nodes: int, seconds: float, least: int, parallel: int
) -> RequiredLimits:
    """Return the smallest sufficient `maxUnavailable`, not below `least`.

    `parallel` is the current `maxParallelUpgrades`.
    """
    if seconds <= 0:
        return RequiredLimits(max_unavailable=None, why="that time has passed")
    widest = makespan_of(nodes, None)
    if widest is not None and widest <= seconds:
        found = _smallest(lambda number: makespan_of(number, None), nodes, seconds, least)
        why = f"with maxUnavailable {found} it ends within {_late(makespan_of(found, None))}"
        return RequiredLimits(max_unavailable=found, why=why)
    unlimited = makespan_of(nodes, 0) if parallel else widest
    if unlimited is not None and unlimited <= seconds:
        found = _smallest(lambda number: makespan_of(number, 0), nodes, seconds, least)
        why = (
            f"only if maxParallelUpgrades (now {parallel}) is 0, or at least {found} too:"
            f" it then ends within {_late(makespan_of(found, 0))}"
        )
        return RequiredLimits(max_unavailable=found, max_parallel=0, why=why)
    return RequiredLimits(max_unavailable=None, why=_why_never(unlimited))


def _why_never(unlimited: float | None) -> str:
    if unlimited is None:
        return "the end of the last node is unknown, whatever the limits are"
    return f"even with all nodes at once it ends only after {_late(unlimited)}"


def _late(makespan: float | None) -> str:
    return f"{format_duration(makespan)} (p95)"


def _smallest(
    makespan_of: Callable[[int], float | None], nodes: int, seconds: float, least: int
) -> int:
    """Return the smallest sufficient number of 0 to `nodes`, of which the last is sufficient."""

    def is_enough(number: int) -> bool:
        makespan = makespan_of(number)
        return makespan is not None and makespan <= seconds

    low, high, step = least - 1, nodes, 1
    while (probe := low + step) < high:
        if is_enough(probe):
            high = probe
            break
        low, step = probe, ceil(step * 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
