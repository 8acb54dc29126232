"""Looks on while a play goes on, and writes down what is to be told of it.

It is shown the views that changed and the decisions, and nothing else. Must not change anything.
"""

from collections.abc import Iterable, Mapping

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.forecast.proving import Proving
from libs.forecast.service import Service
from libs.forecast.story import Course, Story
from libs.rollout.deciding import News
from libs.rollout.decision import EvictPods, Step, Wait
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import upgrading

LISTLESS = 300.0
"""Seconds with nobody in flight after which nobody starts: preflights are repeated each minute."""
STILL = 7 * 24 * 3600.0
"""Seconds without anything to tell after which nobody is waited for any more."""

_BY_TIME = frozenset({WaitCode.BACK_OFF, WaitCode.DRIVER_RESTARTING})
"""What is waited for with nobody in flight, and ends all the same."""


class Watch:
    """Of one play of one pool."""

    def __init__(self, fleet: Fleet, pool: str, at: float) -> None:
        self._began = at
        self._pool = pool
        self._courses: dict[str, Course] = {}
        self._open: set[str] = set()
        """Nodes that have something before them still."""
        self._flying: set[str] = set()
        self._quiet_since = 0.0
        """When the last one landed, or may have been waited for in vain."""
        self._told = 0.0
        """When a node was last taken up for the first time, or was over."""
        self._gpus = {name: node.gpus for name, node in fleet.nodes.items()}
        self._service = Service()
        self._proving = Proving(fleet.pools[pool])
        self._proving.seen(fleet.pools[pool], 0.0)
        for node in fleet.nodes.values():
            self._service.seen(node, 0.0, first=True)
            self._flight(node, 0.0)
        self._service.reckon(0.0)

    # What is shown to it.

    def seen(self, now: float, nodes: Iterable[NodeView], pools: Iterable[PoolView]) -> None:
        """These are other than before."""
        at = now - self._began
        for node in nodes:
            self._service.seen(node, at)
            self._flight(node, at)
        self._service.reckon(at)
        for pool in pools:
            if pool.key == self._pool:
                self._proving.seen(pool, at)

    def decided(
        self, now: float, news: News, waits: Mapping[str, Wait], looked_at: Iterable[NodeView]
    ) -> None:
        """What was decided, after a look at these nodes; `waits` are those of all nodes."""
        at = now - self._began
        for name, step in news.steps.items():
            self._moves(name)
            for act in step.actions:
                if isinstance(act, EvictPods):
                    self._evicts(name, (pod.uid for pod in act.pods))
            self._proving.waits(name, step.wait, at)
        for name, wait in news.waits.items():
            self._moves(name)
            self._proving.waits(name, wait, at)
        for node in looked_at:
            at_work = node.writing or node.name in news.steps or node.name in waits
            if not at_work and node.name in self._open:
                self._rests(node, at)

    def leaps(self, now: float, name: str, leaving: Iterable[str]) -> None:
        """This node is taken up, and is not seen again before its end; these pods are evicted."""
        at = now - self._began
        self._takes_off(name, at)
        self._evicts(name, leaving)
        self._service.leaves(name, self._gpus[name], at)
        self._service.reckon(at)

    # When it is over.

    def over(self, following: float, waits: Mapping[str, Wait]) -> bool:
        """Whether nothing more is to come that could be told; the next moment is that."""
        at = following - self._began
        if not self._open or at - self._told > STILL:
            return True
        if self._flying or at - self._quiet_since < LISTLESS:
            return False
        patient = any(name in waits and waits[name].code in _BY_TIME for name in self._open)
        if patient:
            self._quiet_since = at
        return not patient

    def story(self, waits: Mapping[str, Wait], steps: Mapping[str, Step]) -> Story:
        """All of it."""
        for name in self._open:
            step = steps.get(name)
            self._courses[name].wait = waits.get(name) or (step.wait if step else None)
        lasted = max((each.over or 0.0 for each in self._courses.values()), default=0.0)
        return Story(
            courses=self._courses,
            lasted=lasted,
            loss=self._service.loss,
            gpu_seconds=self._service.gpu_seconds(lasted),
            proof=self._proving.proof(),
            halted=self._proving.halted,
        )

    # One node.

    def _moves(self, name: str) -> None:
        if name not in self._courses:
            self._courses[name] = Course()
            self._open.add(name)

    def _rests(self, node: NodeView, at: float) -> None:
        course = self._courses[node.name]
        self._open.discard(node.name)
        course.end, course.failed = at, None
        self._told = at

    def _evicts(self, name: str, uids: Iterable[str]) -> None:
        course = self._courses[name]
        course.evicted = course.evicted.union(uids)

    def _flight(self, node: NodeView, at: float) -> None:
        name = node.name
        if upgrading(node) is not None:
            self._takes_off(name, at)
            return
        if name in self._flying:
            self._flying.discard(name)
            self._quiet_since = at
        self._fails(node, at)

    def _takes_off(self, name: str, at: float) -> None:
        if name in self._flying:
            return
        self._flying.add(name)
        self._moves(name)
        course = self._courses[name]
        if course.start is None:
            course.start = self._told = at

    def _fails(self, node: NodeView, at: float) -> None:
        course = self._courses.get(node.name)
        if course is None or course.end is not None:
            return
        failed = node.state == UpgradeState.UPGRADE_FAILED
        if failed and course.failed is None and course.start is not None:
            course.failed = self._told = at
        elif not failed:
            course.failed = None
