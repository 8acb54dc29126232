"""The forecast: the rollout of a pool is played several times, and this is what comes of it.

Must not know how a play goes, nor in which words it is told.
"""

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from libs.forecast import spread
from libs.forecast.assumptions import Assumptions
from libs.forecast.foreseen import Needed, NodeForecast, Plan
from libs.forecast.likely import likely, typical
from libs.forecast.needed import needed
from libs.forecast.play import play
from libs.forecast.pods import Pods
from libs.forecast.remarks import remarks
from libs.forecast.story import Story
from libs.forecast.wish import Wish, supposed
from libs.forecast.world import Model
from libs.rollout.views.fleet import Fleet, Instant

_HOUR = 3600.0
_MOST, _LEAST = 20, 2
_NODES = 2_000
"""So many nodes are played in all, if nothing else is asked for."""


def plan(
    fleet: Fleet,
    now: Instant,
    *,
    pool: str,
    assumptions: Assumptions,
    wish: Wish = Wish(),  # noqa: B008 - frozen
    finish_by: float | None = None,
    plays: int | None = None,
    seed: int = 0,
) -> Plan:
    """What would become of a pool from now on.

    `finish_by` (unix seconds) also asks for the limits by which it is through by then. The same
    arguments give the same plan, in whatever order nodes and pools come.
    """
    played = supposed(fleet, pool, wish)
    few = max(_LEAST, min(_MOST, _NODES // max(1, len(played.nodes))))
    number = few if plays is None else plays
    if number < 1:
        raise ValueError(f"{plays} plays foresee nothing: ask for one at least")
    worlds = [assumptions.world(seed + one) for one in range(number)]
    asked = _Asked(played, now, pool, worlds)
    stories = asked.stories()
    made = _plan(asked, stories)
    if finish_by is not None:
        made = replace(made, needed=asked.needed(finish_by - now.at, stories))
    return replace(made, remarks=remarks(made, fleet, asked.fleet, now, assumptions.said))


class _Asked:
    """What is played, and how often."""

    def __init__(self, fleet: Fleet, now: Instant, pool: str, worlds: Sequence[Model]) -> None:
        self.fleet = fleet
        self.now = now
        self.pool = pool
        self._worlds = worlds
        self._tried: dict[tuple[int, int | None], float | None] = {}

    def stories(self, fleet: Fleet | None = None) -> list[Story]:
        """One of each play; of this fleet rather than the one that is asked about."""
        played = fleet or self.fleet
        return [play(played, self.now, pool=self.pool, world=world) for world in self._worlds]

    def needed(self, seconds: float, stories: Sequence[Story]) -> Needed:
        """The limits by which it is through within so long."""
        members = sum(node.pool == self.pool for node in self.fleet.nodes.values())
        return needed(
            self._try,
            nodes=members,
            seconds=seconds,
            least=min(members, _least(stories, seconds)),
            parallel=self.fleet.pools[self.pool].upgrade.max_parallel_upgrades,
        )

    def _try(self, unavailable: int, parallel: int | None) -> float | None:
        key = unavailable, parallel
        if key not in self._tried:
            wish = Wish(max_unavailable=unavailable, max_parallel=parallel)
            stories = self.stories(supposed(self.fleet, self.pool, wish))
            self._tried[key] = spread.makespan(stories).p95
        return self._tried[key]


def _least(stories: Sequence[Story], seconds: float) -> int:
    """With fewer places there would not be room for all the time that nodes were away for sure.

    Some of that is a pause between two attempts, so only a good half of it is counted.
    """
    away = (
        sum(each.end - each.start for each in story.courses.values() if each.start and each.end)
        for story in stories
    )
    return int(0.6 * min(away, default=0.0) / seconds) if seconds > 0 else 0


def _plan(asked: _Asked, stories: Sequence[Story]) -> Plan:
    pods = Pods(asked.fleet)
    nodes = [_node(asked.fleet, pods, stories, name) for name in spread.names(stories)]
    return Plan(
        pool=asked.pool,
        target=asked.fleet.pools[asked.pool].target,
        plays=len(stories),
        nodes=tuple(sorted(nodes, key=_turn)),
        makespan=spread.makespan(stories),
        loss=spread.largest_loss(stories),
        gpu_hours_lost=typical(story.gpu_seconds for story in stories) / _HOUR,
        proof=spread.proof(stories),
        halted=sum(bool(story.halted) for story in stories),
    )


def _node(fleet: Fleet, pods: Pods, stories: Sequence[Story], name: str) -> NodeForecast:
    found = spread.courses(stories, name)
    evicted = frozenset[str]().union(*(each.evicted for each in found))
    end = likely((each.end for each in found), len(stories))
    return NodeForecast(
        node=name,
        start=likely((each.start for each in found), len(stories)),
        end=end,
        evicted=pods.evicted(evicted),
        lost=pods.lost(evicted),
        blocked_by=pods.blocked_by(fleet.nodes[name]),
        wait=spread.held_up_at_last(found, end),
        failed=sum(each.failed is not None for each in found),
    )


def _turn(node: NodeForecast) -> tuple[float, float, str]:
    start = node.start
    return (
        inf if start.p50 is None else start.p50,
        inf if start.p95 is None else start.p95,
        node.node,
    )
