"""Answers to whoever asks how it stands, why a node waits, and what would happen. Read-only."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from libs.bus.queries import QueryHandlers
from libs.contracts.queries import (
    PlanAnswer,
    PlanQuery,
    PoolStatus,
    QueryError,
    QueryErrorCode,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
    WaitReason,
    WhyAnswer,
    WhyQuery,
)
from libs.forecast import response
from libs.forecast.assumptions import DefaultAssumptions
from libs.forecast.options import PlanOptions
from libs.forecast.plan import plan
from libs.policy.digest import target_digest
from libs.policy.wanted import WantedDriver
from libs.rollout.decision import Wait
from libs.rollout.node_writes import current_record
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.pool import Build, PoolView
from services.scheduler.snapshot.pools import hypothetical_builds
from services.scheduler.snapshot.tracker import SnapshotTracker

PlanRunner = Callable[[Callable[[], PlanAnswer]], Awaitable[PlanAnswer]]
"""Does long work where it holds up nobody."""


class SchedulerQueries:
    """Of one leader."""

    def __init__(
        self,
        *,
        tracker: SnapshotTracker,
        waits: Callable[[], Mapping[str, Wait]],
        history: Mapping[str, list[str]],
        rollout_errors: Mapping[str, str],
        instant: Callable[[], Instant],
        holder: str,
        plan_runner: PlanRunner,
    ) -> None:
        self._observing = tracker
        self._waits = waits
        self._history = history
        self._unwritten = rollout_errors
        self._instant = instant
        self._holder = holder
        self._aside = plan_runner

    def handlers(self) -> QueryHandlers:
        """By verb."""
        return {QueryVerb.STATUS: self.status, QueryVerb.WHY: self.why, QueryVerb.PLAN: self.plan}

    async def status(self, query: StatusQuery) -> StatusAnswer | QueryError:
        """How the pools stand."""
        pools = self._observing.pools
        if query.pool and query.pool not in pools:
            return self._no_pool(query.pool)
        now = self._instant()
        counted: dict[str, Counter[str]] = {key: Counter() for key in pools}
        decided = self._waits()
        for node in self._observing.nodes.values():
            wait = decided.get(node.name, node.last_wait)
            if wait is not None and node.pool in counted:
                counted[node.pool][wait.code.value] += 1
        return StatusAnswer(
            at=now.at,
            leader=self._holder,
            epoch=now.epoch,
            sources={name: now.at - one.proved for name, one in now.visibility.sources.items()},
            pools=tuple(
                _pool(pool, counted[key], self._unwritten.get(key, ""))
                for key, pool in sorted(pools.items())
                if query.pool in ("", key)
            ),
        )

    async def why(self, query: WhyQuery) -> WhyAnswer | QueryError:
        """Why a node is not where its policy wants it."""
        node = self._observing.nodes.get(query.node)
        if node is None:
            message = f"no Node {query.node} with GPUs is known; ask for one by its whole name"
            return QueryError(code=QueryErrorCode.NOT_FOUND, message=message)
        wait, record = self._waits().get(query.node, node.last_wait), current_record(node)
        pool = self._observing.pools.get(node.pool)
        return WhyAnswer(
            node=node.name,
            node_uid=node.uid,
            pool=node.pool,
            state=node.state,
            target=record.target if record is not None else pool.target if pool else "",
            in_place=wait is None and node.lease is None and not node.write_pending,
            wait=None if wait is None else _reason(wait),
            history=tuple(self._history.get(node.name, ())),
        )

    async def plan(self, query: PlanQuery) -> PlanAnswer | QueryError:
        """What would become of a pool."""
        pool = self._observing.pools.get(query.pool)
        if pool is None:
            return self._no_pool(query.pool)
        try:
            wish = self._wish(pool, query)
        except ValueError as error:
            return QueryError(code=QueryErrorCode.UNREADABLE, message=str(error))
        fleet = self._observing.fleet()
        seen = Fleet(pools=dict(fleet.pools), nodes=dict(fleet.nodes))
        now = self._instant()
        return await self._aside(
            lambda: response.plan_response(
                plan(
                    seen,
                    now,
                    pool=query.pool,
                    assumptions=DefaultAssumptions(),
                    options=wish,
                    finish_by=query.finish_by,
                    seed=query.seed,
                )
            )
        )

    def _wish(self, pool: PoolView, asked: PlanQuery) -> PlanOptions:
        driver = self._observing.pool_snapshot.wanted_drivers.get(pool.key)
        wanted = ""
        builds: Mapping[str, Build] = {}
        if asked.driver_version:
            if driver is None:
                raise ValueError(f"pool {pool.key} wants no driver now: nothing can be supposed")
            supposed = _versioned(driver, asked.driver_version)
            variants = {
                node.variant for node in self._observing.nodes.values() if node.pool == pool.key
            }
            wanted, builds = (
                target_digest(supposed),
                hypothetical_builds(pool, supposed, sorted(variants - {""})),
            )
        amount = asked.max_unavailable
        return PlanOptions(
            target=wanted,
            builds=builds,
            max_unavailable=(int(amount) if amount.isdecimal() else amount) if amount else None,
            max_parallel=asked.max_parallel,
        )

    def _no_pool(self, key: str) -> QueryError:
        known = ", ".join(sorted(self._observing.pools)) or "none at all"
        message = f"no pool is called {key!r}; there are {known}"
        return QueryError(code=QueryErrorCode.NOT_FOUND, message=message)


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
