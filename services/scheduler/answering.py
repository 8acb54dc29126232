"""Answers to whoever asks how it stands, why a node waits, and what would happen. Read-only."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from libs.bus.asks import Answers
from libs.contracts.asks import (
    AskVerb,
    PlanAnswer,
    PlanAsk,
    PoolStatus,
    Problem,
    ProblemCode,
    StatusAnswer,
    StatusAsk,
    WaitReason,
    WhyAnswer,
    WhyAsk,
)
from libs.forecast import answering
from libs.forecast.assumptions import Usual
from libs.forecast.plan import plan
from libs.forecast.wish import Wish
from libs.policy.digest import target
from libs.policy.wanted import WantedDriver
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.pool import Build, PoolView
from libs.rollout.writes import readable
from services.scheduler.builds import wished
from services.scheduler.observing import Observing

Aside = Callable[[Callable[[], PlanAnswer]], Awaitable[PlanAnswer]]
"""Does long work where it holds up nobody."""


class Answering:
    """Of one leader."""

    def __init__(
        self,
        *,
        observing: Observing,
        waits: Callable[[], Mapping[str, Wait]],
        history: Mapping[str, list[str]],
        unwritten: Mapping[str, str],
        instant: Callable[[], Instant],
        holder: str,
        aside: Aside,
    ) -> None:
        self._observing = observing
        self._waits = waits
        self._history = history
        self._unwritten = unwritten
        self._instant = instant
        self._holder = holder
        self._aside = aside

    def answers(self) -> Answers:
        """By verb."""
        return {AskVerb.STATUS: self.status, AskVerb.WHY: self.why, AskVerb.PLAN: self.plan}

    async def status(self, asked: StatusAsk) -> StatusAnswer | Problem:
        """How the pools stand."""
        pools = self._observing.pools
        if asked.pool and asked.pool not in pools:
            return self._no_pool(asked.pool)
        now = self._instant()
        counted: dict[str, Counter[str]] = {key: Counter() for key in pools}
        decided = self._waits()
        for node in self._observing.nodes.values():
            wait = decided.get(node.name, node.waiting)
            if wait is not None and node.pool in counted:
                counted[node.pool][wait.code.value] += 1
        return StatusAnswer(
            at=now.at,
            leader=self._holder,
            epoch=now.epoch,
            sources={name: now.at - one.proved for name, one in now.sight.sources.items()},
            pools=tuple(
                _pool(pool, counted[key], self._unwritten.get(key, ""))
                for key, pool in sorted(pools.items())
                if asked.pool in ("", key)
            ),
        )

    async def why(self, asked: WhyAsk) -> WhyAnswer | Problem:
        """Why a node is not where its policy wants it."""
        node = self._observing.nodes.get(asked.node)
        if node is None:
            message = f"no Node {asked.node} with GPUs is known; ask for one by its whole name"
            return Problem(code=ProblemCode.NOT_FOUND, message=message)
        wait, record = self._waits().get(asked.node, node.waiting), readable(node)
        pool = self._observing.pools.get(node.pool)
        return WhyAnswer(
            node=node.name,
            node_uid=node.uid,
            pool=node.pool,
            state=node.state,
            target=record.target if record is not None else pool.target if pool else "",
            in_place=wait is None and node.lease is None and not node.writing,
            wait=None if wait is None else _reason(wait),
            history=tuple(self._history.get(node.name, ())),
        )

    async def plan(self, asked: PlanAsk) -> PlanAnswer | Problem:
        """What would become of a pool."""
        pool = self._observing.pools.get(asked.pool)
        if pool is None:
            return self._no_pool(asked.pool)
        try:
            wish = self._wish(pool, asked)
        except ValueError as error:
            return Problem(code=ProblemCode.UNREADABLE, message=str(error))
        fleet = self._observing.fleet()
        seen = Fleet(pools=dict(fleet.pools), nodes=dict(fleet.nodes))
        now = self._instant()
        return await self._aside(
            lambda: answering.answer(
                plan(
                    seen,
                    now,
                    pool=asked.pool,
                    assumptions=Usual(),
                    wish=wish,
                    finish_by=asked.finish_by,
                    seed=asked.seed,
                )
            )
        )

    def _wish(self, pool: PoolView, asked: PlanAsk) -> Wish:
        driver = self._observing.placement.drivers.get(pool.key)
        wanted = ""
        builds: Mapping[str, Build] = {}
        if asked.driver_version:
            if driver is None:
                raise ValueError(f"pool {pool.key} wants no driver now: nothing can be supposed")
            supposed = _versioned(driver, asked.driver_version)
            variants = {
                node.variant for node in self._observing.nodes.values() if node.pool == pool.key
            }
            wanted, builds = target(supposed), wished(pool, supposed, sorted(variants - {""}))
        amount = asked.max_unavailable
        return Wish(
            target=wanted,
            builds=builds,
            max_unavailable=(int(amount) if amount.isdecimal() else amount) if amount else None,
            max_parallel=asked.max_parallel,
        )

    def _no_pool(self, key: str) -> Problem:
        known = ", ".join(sorted(self._observing.pools)) or "none at all"
        message = f"no pool is called {key!r}; there are {known}"
        return Problem(code=ProblemCode.NOT_FOUND, message=message)


def _pool(pool: PoolView, waits: Mapping[str, int], unwritten: str) -> PoolStatus:
    rollout = pool.rollout
    because = f"its Rollout cannot be written: {unwritten}" if unwritten else ""
    if rollout is None:
        return PoolStatus(pool=pool.key, target=pool.target, because=because, waits=dict(waits))
    status = rollout.status
    return PoolStatus(
        pool=pool.key,
        target=status.target,
        phase=status.phase.value,
        because=because or status.because,
        brake=rollout.spec.brake.value,
        counts=status.counts,
        waits=dict(waits),
    )


def _reason(wait: Wait) -> WaitReason:
    return WaitReason(
        code=wait.code, detail=wait.detail, since=wait.since, until=wait.until, who=wait.who
    )


def _versioned(driver: WantedDriver, version: str) -> WantedDriver:
    if driver.version:
        return replace(driver, version=version)
    return replace(driver, image=replace(driver.image, version=version))
