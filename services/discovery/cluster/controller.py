"""The work of one leader: each Node is looked at by itself, when something that counts has changed.

What holds for all nodes is looked at first: the policies, and whether somebody else is at work
here. While a GPU Operator is, or while that cannot be told, no Node is written to.
"""

from typing import Any, Final

from libs.bus.reports import ReportCache
from libs.contracts.identities import Writer
from libs.contracts.reports import Report, StateKind
from libs.contracts.subjects import State
from libs.kube.controller import (
    Controller,
    Reconciled,
    ReconcileRefused,
    ReconcileResult,
    RequeueAfter,
)
from libs.kube.errors import Forbidden, Invalid, NotFound, UnknownKind
from libs.kube.gpu_operator import GpuOperatorDetector
from libs.kube.metrics import ControllerMetrics
from libs.kube.queue import WorkQueue
from libs.kube.views import Lease
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.discovery.cluster.decide import (
    ABSENCE_CONFIRMED,
    LabelDecision,
    LabelPolicy,
    ReportedFacts,
    decide,
    label_policy,
)
from services.discovery.cluster.informers import Informers
from services.discovery.cluster.metrics import DiscoveryMetrics
from services.discovery.cluster.reports import ReportReader
from services.discovery.cluster.resources import Node
from services.discovery.cluster.writes import Writes

NAME: Final = "labels"
"""Of the controller, in its metrics."""
_EVERYTHING: Final = ""
"""No Node has this name."""
_DEBOUNCE: Final = 0.5
"""Seconds in which reports of a node, or changes of policies, are gathered."""
_SEEN: Final = 30.0
"""A Lease that was proved so long ago says nothing of who is at work now."""
_AGAIN: Final = 60.0
"""Seconds after which what the server does not take is tried again."""
_RESYNC: Final = 300.0
_CONCURRENCY: Final = 8
_REPORTERS: Final = (Writer.DISCOVERY, Writer.DRIVER)

_log = logger()


class LabelController:
    """From the begin of a term to its end."""

    def __init__(
        self,
        *,
        informers: Informers,
        reports: ReportCache,
        foreign: GpuOperatorDetector,
        writes: Writes,
        metrics: DiscoveryMetrics,
        controller_metrics: ControllerMetrics,
        env: Env,
    ) -> None:
        self._sources = informers
        self._mirror = reports
        self._foreign = foreign
        self._hands = writes
        self._meters = metrics
        self._clock = env.clock
        self._hearing = ReportReader(reports, clock=env.clock)
        self._wish: LabelPolicy | None = None
        """None: nothing may be done now."""
        self._holding = ""
        self._queue = WorkQueue[str](clock=env.clock)
        self._controller = Controller(
            name=NAME,
            reconcile=self._reconcile,
            queue=self._queue,
            concurrency=_CONCURRENCY,
            timeout=30.0,
            grace=0.0,
            env=env,
            metrics=controller_metrics,
        )

    async def run(self) -> None:
        """Until cancelled."""
        sources = self._sources
        ends = [
            sources.nodes.cache.on_change(self._node),
            self._mirror.on_change(self._report),
            sources.gpu_clusters.cache.on_change(self._everything),
            sources.leases.cache.on_change(self._lease),
            *(source.cache.on_change(self._everything) for source in sources.policies.values()),
        ]
        try:
            self._queue.add(_EVERYTHING)
            await self._controller.run()
        finally:
            for end in ends:
                end()

    # What changed.

    def _node(self, before: Node | None, after: Node | None) -> None:
        if after is None:
            if before is not None:
                self._hearing.forget(before.metadata.name)
                self._meters.set_foreign(before.metadata.name, 0)
        elif before is None or before.matters != after.matters:
            self._queue.add(after.metadata.name)

    def _report(self, of: State, _before: Report | None, _after: Report | None) -> None:
        if of.kind == StateKind.FACTS and of.component in _REPORTERS:
            self._queue.add_after(of.node, _DEBOUNCE)

    def _everything(self, _before: Any, _after: Any) -> None:
        self._queue.add_after(_EVERYTHING, _DEBOUNCE)

    def _lease(self, before: Lease | None, after: Lease | None) -> None:
        """A renewal is no news while that counts as being at work: its end is looked at in time."""
        holders = {one.spec.holder_identity for one in (before, after) if one is not None}
        if not self._holding or before is None or after is None or len(holders) > 1:
            self._everything(before, after)

    # What follows.

    async def _reconcile(self, key: str) -> ReconcileResult:
        if key == _EVERYTHING:
            return await self._look()
        node = self._sources.nodes.cache.get(key)
        if node is None or self._wish is None or node.metadata.deletion_timestamp:
            return Reconciled()
        told = self._hearing.read(node)
        decision = decide(node, told, self._wish)
        self._meters.set_foreign(key, decision.foreign)
        try:
            return await self._carry_out(node, decision, told)
        except UnknownKind:
            raise
        except NotFound:
            return Reconciled()
        except (Invalid, Forbidden) as error:
            self._queue.add_after(key, _AGAIN)
            return ReconcileRefused(str(error))

    async def _carry_out(
        self, node: Node, decision: LabelDecision, told: ReportedFacts
    ) -> ReconcileResult:
        if decision.change is not None:
            # Its answer is a change of the Node, which is then looked at once more.
            await self._hands.write(node, decision.change)
            _log.info("node labelled", node=node.metadata.name)
        missing = told.without_gpus
        return (
            RequeueAfter(ABSENCE_CONFIRMED - missing)
            if missing is not None and missing < ABSENCE_CONFIRMED
            else Reconciled()
        )

    async def _look(self) -> ReconcileResult:
        """At what holds for all nodes."""
        sources = self._sources
        if sources.why_not_synced():
            return RequeueAfter(1.0)
        blind = await sources.leases.verify_current() if sources.leases.age > _SEEN else ""
        now = self._clock.monotonic()
        self._hold(blind or self._foreign.active_holders(now=now))
        wish = label_policy(
            {kind: tuple(source) for kind, source in sources.policies.items()},
            gpu_clusters=tuple(one.metadata.name for one in sources.gpu_clusters),
        )
        before, self._wish = self._wish, None if self._holding else wish
        if self._wish is not None and self._wish != before:
            for node in sources.nodes:
                self._queue.add(node.metadata.name)
        return RequeueAfter(
            5.0 if blind else min(_RESYNC, self._foreign.seconds_until_expiry(now=now) or _RESYNC)
        )

    def _hold(self, why: str) -> None:
        if why != self._holding:
            self._holding = why
            _log.info("no node is labelled" if why else "nodes are labelled", why=why)
