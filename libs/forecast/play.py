"""One play: the engine decides, a stage lives on in a world, and somebody looks on.

What is decided is decided by the same code that decides in earnest. Must not know what its story
is for.
"""

from libs.forecast.crashing import crashes_on
from libs.forecast.leaping import Leaps
from libs.forecast.remaining import remain
from libs.forecast.stage import Stage
from libs.forecast.stage.stage import News as Changes
from libs.forecast.story import Story
from libs.forecast.watching import Watch
from libs.forecast.world import Model
from libs.rollout.deciding import Deciding
from libs.rollout.views.fleet import Fleet, Instant

_MADE = 10**9
"""What comes to be in a play is numbered from here, and called as nothing that was seen."""
_LARGE = 200
"""With more nodes than this there is always something to decide."""
_PAUSE = 0.25
"""Seconds between two decisions then: it costs a node as much for each of three steps."""


def play(fleet: Fleet, now: Instant, *, pool: str, world: Model, leaping: bool = True) -> Story:
    """What becomes of a pool from now on, if the world is like this.

    Leaping, nodes whose way is plain are decided about less often. It takes them just as long, but
    for fractions of a second.
    """
    return _Play(fleet, now, pool, world, leaping=leaping).to_the_end()


class _Play:
    def __init__(
        self, fleet: Fleet, now: Instant, pool: str, world: Model, *, leaping: bool
    ) -> None:
        self._stage = Stage.of(fleet, world=world, now=now.at)
        self._stage.state.foreign_operator = now.sight.foreign_operator
        self._stage.state.made = _MADE
        remain(self._stage.state, fleet)
        self._pause = _PAUSE if len(fleet.nodes) > _LARGE else 0.0
        self._leaps = Leaps(self._stage.state) if leaping else None
        self._deciding = Deciding(self._stage.fleet())
        self._watch = Watch(fleet, pool, now.at)

    def to_the_end(self) -> Story:
        """Decide, let time pass, and so on, until nothing more is to come."""
        stage, deciding, watch = self._stage, self._deciding, self._watch
        looked_at = stage.news().nodes
        while True:
            news = deciding.decide(stage.instant())
            stage.carry_out(news, rested=news.rested)
            watch.decided(stage.now, news, deciding.waits, looked_at)
            changes = self._next()
            if changes is None:
                return watch.story(deciding.waits, news.steps)
            watch.seen(stage.now, changes.nodes, changes.pools)
            deciding.update(changes.nodes, changes.nodes_gone, changes.pools)
            looked_at = changes.nodes

    def _next(self) -> Changes | None:
        """Let time pass until there is something to decide; None: there never will be."""
        stage, state = self._stage, self._stage.state
        while True:
            wake_at = self._deciding.wake_at
            due = [at for at in (stage.next, wake_at) if at is not None]
            if not due or self._watch.over(min(due), self._deciding.waits):
                return None
            stage.until(min(due))
            woken = wake_at is not None and stage.now >= wake_at
            if self._leaps is not None:
                self._look(self._leaps)
                if not woken and self._unmoved(self._leaps):
                    continue
                stage.until(stage.now + self._pause)
                self._look(self._leaps)
            if woken or state.dirty or state.dirty_pools:
                return stage.news()

    def _look(self, leaps: Leaps) -> None:
        for name, way in leaps.begun():
            self._watch.leaps(self._stage.now, name, way.leaving)
            self._deciding.let_be(name)

    def _unmoved(self, leaps: Leaps) -> bool:
        """Whether nothing changed that makes a difference to a decision."""
        stage, before = self._stage, self._deciding.nodes
        return not stage.state.dirty_pools and all(
            crashes_on(before.get(name), stage.node(name)) for name in leaps.grounded
        )
