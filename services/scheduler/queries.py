"""Answer the queries status, why and plan. Read-only."""

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from libs.bus.queries import QueryHandlers
from libs.contracts.lengths import JobLengths
from libs.contracts.node import NodeLease, UpgradeState
from libs.contracts.numbers import parse_count
from libs.contracts.queries import (
    HeldNode,
    NodeWait,
    PlanAnswer,
    PlanQuery,
    PoolStatus,
    QueryError,
    QueryErrorCode,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
    WhyAnswer,
    WhyQuery,
)
from libs.contracts.reports import named_diagnoses
from libs.contracts.waits import WaitCode
from libs.contracts.words import excerpt
from libs.kube.errors import KubeError
from libs.policy.digest import target_digest
from libs.policy.driver_checks import misnamed_version
from libs.policy.next_kernel import next_kernel_problem
from libs.policy.variants import labels_of_key
from libs.policy.wanted import InstallMethod, WantedDriver, with_version
from libs.rollout.decision import Wait
from libs.rollout.persons_lease import has_persons_lease
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView, Readiness
from libs.runtime.logs import logger
from services.scheduler.events import PastStep
from services.scheduler.plan_pods import TooManyPods
from services.scheduler.plan_process import PlanFailed, PlanRequest, PlanRunner
from services.scheduler.snapshot.pools import driver_version, hypothetical_builds
from services.scheduler.snapshot.tracker import SnapshotTracker

if TYPE_CHECKING:
    from libs.forecast.options import PlanOptions

_log = logger()

_MOST_HELD: Final = 100
_MOST_WAITS: Final = 100
_MAX_DETAIL: Final = 300
"""Characters of the details of a wait, in the overview of all nodes."""
_MAX_TEXT: Final = 200
"""Characters of what a person wrote that are repeated."""

PlanPods = Callable[[Fleet, str], Awaitable[Fleet]]
"""Returns the fleet with all pods of a pool, which are listed for a plan."""


class SchedulerQueries:
    """The query handlers of one leader."""

    def __init__(
        self,
        *,
        tracker: SnapshotTracker,
        waits: Callable[[], Mapping[str, Wait]],
        is_skipped: Callable[[str], bool],
        history: Mapping[str, Sequence[PastStep]],
        rollout_errors: Mapping[str, str],
        instant: Callable[[], Instant],
        clocks: Callable[[str], str],
        holder: str,
        plan_pods: PlanPods,
        plan_runner: PlanRunner,
        on_plan: Callable[[PlanAnswer, str], None],
        job_lengths: Callable[[str], JobLengths | None],
    ) -> None:
        self._tracker = tracker
        self._waits = waits
        self._is_skipped = is_skipped
        self._history = history
        self._rollout_errors = rollout_errors
        self._instant = instant
        self._clocks = clocks
        self._holder = holder
        self._plan_pods = plan_pods
        self._plan_runner = plan_runner
        self._on_plan = on_plan
        self._job_lengths = job_lengths
        self._is_planning = False

    def handlers(self) -> QueryHandlers:
        return {QueryVerb.STATUS: self.status, QueryVerb.WHY: self.why, QueryVerb.PLAN: self.plan}

    async def status(self, query: StatusQuery) -> StatusAnswer | QueryError:
        """Return the status of one pool, or of all."""
        pools = self._tracker.pools
        if query.pool and query.pool not in pools:
            return self._no_pool(query.pool)
        now = self._instant()
        waits_by_pool: dict[str, Counter[str]] = {key: Counter() for key in pools}
        without_gpus = Counter[str]()
        held_by_pool: dict[str, list[HeldNode]] = {key: [] for key in pools}
        budgets: dict[str, Counter[str]] = {key: Counter() for key in pools}
        waiting: dict[str, list[tuple[NodeView, Wait]]] = {key: [] for key in pools}
        waits = self._waits()
        for node in self._tracker.nodes.values():
            without_gpus[node.pool] += lacks_gpus(node)
            if (held := held_node(node)) is not None and node.pool in held_by_pool:
                held_by_pool[node.pool].append(held)
            wait = waits.get(node.name, node.last_wait)
            if wait is not None and node.pool in waiting:
                waiting[node.pool].append((node, wait))
            is_counted = node.pool in waits_by_pool and not self._is_skipped(node.name)
            if wait is not None and is_counted:
                waits_by_pool[node.pool][wait.code.value] += 1
                if wait.code is WaitCode.BUDGET:
                    budgets[node.pool][wait.detail] += 1
        sources = now.visibility.sources
        return StatusAnswer(
            at=now.at,
            leader=self._holder,
            epoch=now.epoch,
            sources={name: now.at - source.proved for name, source in sources.items()},
            pools=tuple(
                replace(
                    _pool_status(pool, waits_by_pool[key], self._rollout_error(key, now)),
                    without_gpus=without_gpus[key],
                    budget=next((detail for detail, _ in budgets[key].most_common(1)), ""),
                    held=first_by_name(held_by_pool[key]),
                    node_waits=foremost_waits(waiting[key]),
                )
                for key, pool in sorted(pools.items())
                if query.pool in ("", key)
            ),
        )

    async def why(self, query: WhyQuery) -> WhyAnswer | QueryError:
        """Return what a node waits for."""
        node = self._tracker.nodes.get(query.node)
        if node is None:
            message = (
                f"Node {query.node!r} not found, or it has no GPUs; use the full name of a Node"
            )
            if problem := self._tracker.why_unreadable(query.node):
                message = f"Node {query.node!r} cannot be read, and is left as it is: {problem}"
            return QueryError(code=QueryErrorCode.NOT_FOUND, message=message)
        wait, record = self._waits().get(query.node, node.last_wait), node.current_record
        pool, history = self._tracker.pools.get(node.pool), self._history.get(node.name, ())
        return WhyAnswer(
            node=node.name,
            node_uid=node.uid,
            pool=node.pool,
            state=node.state,
            target=record.target if record is not None else pool.target if pool else "",
            in_place=wait is None and is_free(node) and not node.write_pending,
            wait=wait,
            history=tuple(step.text for step in history),
            history_at=tuple(step.at for step in history),
            no_gpus=node.no_gpus,
            container_runtime=node.runtime_problem,
            next_kernel=self._next_kernel(node, pool),
            diagnoses=named_diagnoses(node.evidence, node.obstacle, node.outdated_diagnoses),
            clocks=self._clocks(node.name),
        )

    def _next_kernel(self, node: NodeView, pool: PoolView | None) -> str:
        driver = self._tracker.pool_snapshot.wanted_drivers.get(node.pool)
        if pool is None or driver is None or node.excluded:
            return ""
        return next_kernel_problem(
            node.next_kernel,
            pool=pool.key,
            driver=driver,
            labels=labels_of_key(node.variant),
            has_daemon_set=lambda label: _has_daemon_set(pool, label),
        )

    async def plan(self, query: PlanQuery) -> PlanAnswer | QueryError:
        """Forecast the upgrade of a pool, one at a time: to wait would outlast a query."""
        pool = self._tracker.pools.get(query.pool)
        if pool is None:
            return self._no_pool(query.pool)
        try:
            options = self._plan_options(pool, query)
        except ValueError as error:
            return QueryError(code=QueryErrorCode.UNREADABLE, message=str(error))
        if self._is_planning:
            message = "another plan is being computed: ask again when it is answered"
            return QueryError(code=QueryErrorCode.NOT_READY, message=message)
        self._is_planning = True
        try:
            return await self._answer_plan(query, options)
        except (PlanFailed, TooManyPods) as error:
            return QueryError(code=QueryErrorCode.INTERNAL, message=str(error))
        finally:
            self._is_planning = False

    async def _answer_plan(self, query: PlanQuery, options: "PlanOptions") -> PlanAnswer:
        fleet = Fleet(pools=dict(self._tracker.pools), nodes=dict(self._tracker.nodes))
        now = self._instant()
        try:
            fleet = await self._plan_pods(fleet, query.pool)
        except KubeError as error:
            _log.warning("pods are not in the plan", pool=query.pool, why=str(error))
        request = PlanRequest(
            fleet=fleet,
            now=now,
            pool=query.pool,
            options=options,
            finish_by=query.finish_by,
            seed=query.seed,
            job_lengths=self._job_lengths(query.pool),
        )
        answer = await self._plan_runner(request)
        self._on_plan(answer, options.version or fleet.pools[query.pool].version)
        return answer

    def _plan_options(self, pool: PoolView, query: PlanQuery) -> "PlanOptions":
        from libs.forecast.options import PlanOptions

        target = version = ""
        builds: Mapping[str, Build] = {}
        if query.driver_version or query.driver:
            snapshot = self._tracker.pool_snapshot
            wanted = snapshot.wanted_drivers.get(pool.key)
            if wanted is None:
                raise ValueError(
                    f"the policy of pool {pool.key} names no driver whose version could be replaced"
                )
            driver = _other_driver(wanted, query)
            nodes = self._tracker.nodes.values()
            version = driver_version(driver)
            variants = {node.variant for node in nodes if node.pool == pool.key}
            target = target_digest(driver, snapshot.artefacts)
            builds = hypothetical_builds(pool, driver, sorted(variants - {""}), snapshot.artefacts)
        amount = query.max_unavailable
        count = parse_count(amount)
        return PlanOptions(
            target=target,
            version=version,
            builds=builds,
            max_unavailable=(amount or None) if count is None else count,
            max_parallel=query.max_parallel,
        )

    def _rollout_error(self, key: str, now: Instant) -> str:
        return now.visibility.no_rollouts or self._rollout_errors.get(key, "")

    def _no_pool(self, key: str) -> QueryError:
        known = ", ".join(sorted(self._tracker.pools)) or "none"
        message = f"pool {key!r} not found; known pools: {known}"
        return QueryError(code=QueryErrorCode.NOT_FOUND, message=message)


def _other_driver(wanted: WantedDriver, query: PlanQuery) -> WantedDriver:
    """Return the driver that a query asks about; raise `ValueError` if it cannot be read."""
    driver = wanted
    if query.driver:
        try:
            driver = msgspec.json.decode(query.driver, type=WantedDriver)
        except msgspec.DecodeError as error:
            raise ValueError(f"the driver of the query cannot be read: {error}") from error
        if driver.method is not wanted.method:
            raise ValueError(
                f"a driver that is installed by the method {driver.method.value} cannot be planned:"
                f" the policy has {wanted.method.value}"
            )
    if not query.driver_version:
        return driver
    precompiled = driver.use_precompiled and driver.method is InstallMethod.CONTAINER
    problem = misnamed_version(
        query.driver_version, driver_version(driver), precompiled=precompiled
    )
    if problem:
        raise ValueError(problem)
    return with_version(driver, query.driver_version)


def _pool_status(pool: PoolView, waits: Mapping[str, int], rollout_error: str) -> PoolStatus:
    rollout = pool.rollout
    because = f"the Rollout cannot be written: {rollout_error}" if rollout_error else ""
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


def is_free(node: NodeView) -> bool:
    """Whether no operation has the lease of the node."""
    return node.lease is None or has_persons_lease(node)


def lacks_gpus(node: NodeView) -> bool:
    """Whether containers lack GPUs of a node whose driver is there, or should be since it was done.

    While an operation has the node, its GPUs are withdrawn on purpose.
    """
    has_driver = node.loaded is not None or node.state == UpgradeState.UPGRADE_DONE
    return bool(node.no_gpus) and has_driver and is_free(node)


def held_node(node: NodeView) -> HeldNode | None:
    """Return the lease that a person has on the node, or waits for."""
    lease = node.lease if has_persons_lease(node) else node.claim
    if not isinstance(lease, NodeLease):
        return None
    return HeldNode(
        node=node.name,
        who=excerpt(lease.who, _MAX_TEXT),
        since=lease.since,
        reason=excerpt(lease.reason, _MAX_TEXT),
        waits=lease is node.claim,
    )


def foremost_waits(waiting: Iterable[tuple[NodeView, Wait]]) -> tuple[NodeWait, ...]:
    """Return what the nodes wait for that are shown first."""
    failed = UpgradeState.UPGRADE_FAILED

    def order(each: tuple[NodeView, Wait]) -> tuple[bool, bool, str]:
        node, _ = each
        return node.state != failed, is_free(node), node.name

    return tuple(
        NodeWait(node=node.name, code=wait.code, detail=wait.detail[:_MAX_DETAIL])
        for node, wait in heapq.nsmallest(_MOST_WAITS, waiting, key=order)
    )


def first_by_name(held: Sequence[HeldNode]) -> tuple[HeldNode, ...]:
    return tuple(sorted(held, key=lambda each: each.node)[:_MOST_HELD])


def _has_daemon_set(pool: PoolView, label: str) -> bool:
    return any(
        build.label == label and build.readiness is not Readiness.MISSING
        for by_variant in pool.builds.values()
        for build in by_variant.values()
    )
