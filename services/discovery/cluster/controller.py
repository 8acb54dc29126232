"""Reconcile the labels of each Node while this process leads.

One key of the queue stands for all nodes: for the policies, and for whether a GPU Operator is
active. While a GPU Operator is active, or while that is unknown, no Node is written.
"""

from typing import Any, Final

from libs.bus.reports import ReportCache
from libs.contracts.identities import Writer
from libs.contracts.reports import Report, StateKind
from libs.contracts.subjects import State
from libs.kube.controller import (
    RETRY_REFUSED,
    Controller,
    ControllerMetrics,
    Reconciled,
    ReconcileRefused,
    ReconcileResult,
    RequeueAfter,
)
from libs.kube.errors import Forbidden, Invalid, NotFound, UnknownKind
from libs.kube.events import EventRecorder, InvolvedObject
from libs.kube.lease.record import GpuOperatorDetector
from libs.kube.views import Lease
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.discovery.cluster.decide import (
    ABSENCE_CONFIRMED,
    LabelPolicy,
    RefusedLabels,
    decide,
    label_policy,
)
from services.discovery.cluster.hold import Hold
from services.discovery.cluster.pace import Pace
from services.discovery.cluster.reports import ReportReader
from services.discovery.cluster.resources import Informers, Node
from services.discovery.cluster.writes import DiscoveryMetrics, Writes

NAME: Final = "labels"
"""The controller's name in its metrics."""
_ALL_NODES: Final = ""
"""The queue key for all nodes; no Node has this name."""
_DEBOUNCE: Final = 0.5
"""Seconds in which reports of a node, or changes of policies, are gathered."""
_REFUSED: Final = "refused-labels"
"""All refused labels of a node are one Event."""
_RESYNC: Final = 300.0
"""Seconds until the policies are read again if nothing changes, in case a change was missed."""
_CONCURRENCY: Final = 8
"""Nodes that are written at once: one that the API server answers late holds up no other."""
_REPORTERS: Final = (Writer.DISCOVERY, Writer.DRIVER)

_log = logger()


class LabelController:
    """Runs for one term of leadership."""

    def __init__(
        self,
        *,
        informers: Informers,
        reports: ReportCache,
        foreign: GpuOperatorDetector,
        writes: Writes,
        events: EventRecorder,
        hold: Hold,
        nfd_labels: bool,
        metrics: DiscoveryMetrics,
        controller_metrics: ControllerMetrics,
        env: Env,
    ) -> None:
        self._informers = informers
        self._reports = reports
        self._foreign = foreign
        self._writes = writes
        self._metrics = metrics
        self._events = events
        self._nfd_labels = nfd_labels
        self._clock = env.clock
        self._report_reader = ReportReader(reports, clock=env.clock)
        self._pace = Pace(clock=env.clock)
        self._policy: LabelPolicy | None = None
        """None: no Node may be written now."""
        self._hold_reason = ""
        self._hold = hold
        self._controller = Controller(
            name=NAME,
            reconcile=self._reconcile,
            concurrency=_CONCURRENCY,
            timeout=30.0,
            env=env,
            metrics=controller_metrics,
        )
        self._queue = self._controller.queue

    async def run(self) -> None:
        informers = self._informers
        self._queue.add(_ALL_NODES)
        await self._controller.run_subscribed(
            informers.nodes.cache.on_change(self._on_node),
            self._reports.on_change(self._on_report),
            informers.gpu_clusters.cache.on_change(self._on_policy),
            informers.configs.cache.on_change(self._on_policy),
            informers.leases.cache.on_change(self._on_lease),
            *(
                policies.cache.on_change(self._on_policy)
                for policies in informers.policies.values()
            ),
        )

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        if after is None:
            if before is not None:
                self._report_reader.forget(before.metadata.name)
                self._metrics.set_foreign(before.metadata.name, 0)
                self._metrics.set_refused_labels(before.metadata.name, 0)
                self._pace.forget(before.metadata.name)
        elif before is None or before.relevant != after.relevant:
            self._queue.add(after.metadata.name)

    def _on_report(self, state: State, _before: Report | None, _after: Report | None) -> None:
        if state.kind == StateKind.FACTS and state.component in _REPORTERS:
            self._queue.add_after(state.node, _DEBOUNCE)

    def _on_policy(self, _before: Any, _after: Any) -> None:
        self._queue.add_after(_ALL_NODES, _DEBOUNCE)

    def _on_lease(self, before: Lease | None, after: Lease | None) -> None:
        """Skip renewals during a hold: its end is reconciled when the lease expires."""
        holders = {lease.spec.holder_identity for lease in (before, after) if lease is not None}
        if not self._hold_reason or before is None or after is None or len(holders) > 1:
            self._on_policy(before, after)

    async def _reconcile(self, key: str) -> ReconcileResult:
        if key == _ALL_NODES:
            return await self._reconcile_all()
        node = self._informers.nodes.cache.get(key)
        if node is None or self._policy is None or node.metadata.deletion_timestamp:
            return Reconciled()
        reported = self._report_reader.read(node)
        decision = decide(node, reported, self._policy)
        self._metrics.set_foreign(key, decision.foreign)
        self._report_refused(node, decision.refused)
        if decision.change is not None and not decision.changes_operands:
            wait = self._pace.take(key)
            if wait > 0:
                return RequeueAfter(wait)
        try:
            if decision.change is not None:
                # The response changes the cached Node, which is then reconciled once more.
                await self._writes.write(node, decision.change)
                _log.info("node labelled", node=key)
        except UnknownKind:
            raise
        except NotFound:
            return Reconciled()
        except (Invalid, Forbidden) as error:
            return ReconcileRefused(str(error), again_in=RETRY_REFUSED)
        absent = reported.without_gpus
        if absent is not None and absent < ABSENCE_CONFIRMED:
            return RequeueAfter(ABSENCE_CONFIRMED - absent)
        return Reconciled()

    def _report_refused(self, node: Node, refused: RefusedLabels) -> None:
        name = node.metadata.name
        if not self._metrics.set_refused_labels(name, refused.count) or not refused.count:
            return
        why = str(refused)
        _log.warning("reported values cannot be labels; they are left out", node=name, why=why)
        self._events.record(
            InvolvedObject(kind="Node", name=name, uid=node.metadata.uid),
            type="Warning",
            reason="LabelsRefused",
            message=f"left out, and the labels stay as they are: {why}",
            group=_REFUSED,
        )

    async def _reconcile_all(self) -> ReconcileResult:
        """Update the policy and the hold; queue every Node if the policy changed."""
        informers = self._informers
        if informers.why_not_synced():
            return RequeueAfter(1.0)
        unverified = await informers.why_operator_unknown()
        now = self._clock.monotonic()
        reason = unverified or self._foreign.active_holders(now=now)
        if reason != self._hold_reason:
            self._hold_reason = reason
            _log.info("labelling paused" if reason else "labelling resumed", why=reason)
        self._hold.set(reason)
        policy = label_policy(
            {kind: tuple(policies) for kind, policies in informers.policies.items()},
            gpu_clusters=tuple(each.metadata.name for each in informers.gpu_clusters),
            config_maps=informers.configs,
            nfd_labels=self._nfd_labels,
        )
        before, self._policy = self._policy, None if self._hold_reason else policy
        if self._policy is not None and self._policy != before:
            for node in informers.nodes:
                self._queue.add(node.metadata.name)
        if unverified:
            return RequeueAfter(5.0)
        return RequeueAfter(min(_RESYNC, self._foreign.seconds_until_expiry(now=now) or _RESYNC))
