"""The work of one leader: observe, decide, act, report, from the begin of its term to its end.

It decides when something changed or came due, over everything that changed since. What is decided
is the engine's to say.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from libs.kube.leader import Deposed
from libs.rollout.decide import Decider
from libs.rollout.views.fleet import Fleet, Instant
from libs.runtime.clock import Clock
from services.scheduler.effects.executor import Executor
from services.scheduler.events import UpgradeEvents
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.snapshot.tracker import SnapshotChanges, SnapshotTracker

RESYNC: Final = 5.0
"""Seconds after which it decides again although nothing told it to: ages and silence grow."""
MIN_WAIT: Final = 0.001
"""What is due already is not looked at sooner: time has to pass for it to be another one."""


class WakeSignal:
    """Rung by whoever has news."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = asyncio.Event()

    def notify(self) -> None:
        """There are some."""
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Until it rings, or for so long."""
        if self._rung.is_set():
            self._rung.clear()
            return
        sleep = asyncio.create_task(self._clock.sleep(seconds), name="until it is due")
        rung = asyncio.create_task(self._rung.wait(), name="until there is news")
        try:
            await asyncio.wait({sleep, rung}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleep, rung):
                task.cancel()
            await asyncio.wait({sleep, rung})
        self._rung.clear()


class LeaderLoop:
    """One term's."""

    def __init__(
        self,
        *,
        tracker: SnapshotTracker,
        executor: Executor,
        events: UpgradeEvents,
        metrics: SchedulerMetrics,
        instant: Callable[[], Instant],
        slot_epoch: Callable[[], int],
        wake_signal: WakeSignal,
        clock: Clock,
    ) -> None:
        """`in_slots` is the highest epoch in any command slot."""
        self._observing = tracker
        self._acting = executor
        self._reporting = events
        self._meters = metrics
        self._instant = instant
        self._in_slots = slot_epoch
        self._bell = wake_signal
        self._clock = clock
        self.decider = Decider(Fleet(pools={}, nodes={}))

    async def run(self) -> None:
        """Until it is cancelled, or deposed."""
        swept = self._clock.monotonic()
        try:
            while True:
                now = self._clock.monotonic()
                if now - swept >= RESYNC:
                    self._observing.sweep()
                    swept = now
                wait = self._decide()
                # Changes that come together are decided on together, the more so the more it takes.
                await self._clock.sleep(self._clock.monotonic() - now)
                await self._bell.wait(min(RESYNC, wait))
        finally:
            await self._acting.close()

    def _decide(self) -> float:
        """Seconds until the next one, if nothing changes."""
        began = self._clock.monotonic()
        news = self._observing.changes()
        self._take(news)
        now = self._instant()
        if self._in_slots() > now.epoch:
            raise Deposed(f"a leader of epoch {self._in_slots()} has written into a slot")
        decision = self.decider.decide(now)
        if decision.deposed:
            epochs = [
                pool.rollout.status.epoch for pool in self._observing.pools.values() if pool.rollout
            ]
            raise Deposed(f"a leader of epoch {max(epochs)} has written into a Rollout")
        self._meters.decided(
            self._clock.monotonic() - began, decision.budgets, self._observing.pools
        )
        self._reporting.decided(decision)
        self._acting.execute(decision)
        return RESYNC if decision.wake_at is None else max(MIN_WAIT, decision.wake_at - now.at)

    def _take(self, news: SnapshotChanges) -> None:
        self.decider.update(news.nodes, news.nodes_gone, news.pools, news.pools_gone)
        self._meters.nodes_changed(news.nodes, news.nodes_gone)
        self._reporting.nodes_changed(news.nodes, news.nodes_gone)
        for name in news.nodes_gone:
            self._acting.cancel_node(name)
        for name in sorted(self._observing.to_purge):
            self._acting.purge_node(name)
        self._observing.to_purge.clear()
