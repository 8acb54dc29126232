"""Reconcile operands, owner labels and statuses while this process leads.

A resync plans everything and queues the objects that differ. Each object is then decided again
and written by itself, so that a refused or slow one delays no other. A refused write is shown in
the status of its policy and by an event, and is retried.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from libs.kube.client import Kube
from libs.kube.controller import (
    RETRY_REFUSED,
    Controller,
    ControllerMetrics,
    Reconciled,
    ReconcileRefused,
    ReconcileResult,
    RequeueAfter,
)
from libs.kube.errors import Forbidden, Invalid, UnknownKind
from libs.kube.resources import PODS
from libs.kube.views import Lease, Object
from libs.policy.render.rendered import RenderedObject
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.driver.cluster import resources
from services.driver.cluster.decide import (
    OBSERVED,
    ApplyOperand,
    DeleteOperand,
    OperandAction,
    RefuseOperand,
    without_times,
)
from services.driver.cluster.diff import difference
from services.driver.cluster.handlers import ReportedHandlers
from services.driver.cluster.plan import ObjectKey, find_pod_problems
from services.driver.cluster.planner import Planner
from services.driver.cluster.resources import Informers
from services.driver.cluster.writes import DriverMetrics, PolicyEvents, Writes

if TYPE_CHECKING:
    from libs.policy.readiness import PodProblem

NAME: Final = "operands"
"""The controller's name in its metrics."""
_RESYNC: Final = ObjectKey("resync", "")
_PODS: Final = "pods"
"""Keys of this kind look for the problems of a DaemonSet's pods."""
_DEBOUNCE: Final = 0.2
"""Seconds in which changes are gathered before a resync."""
_STATUS_DEBOUNCE: Final = 0.5
"""Seconds in which changes of a status are gathered."""
_POD_INTERVAL: Final = 30.0
"""Seconds until the pods of a DaemonSet that lacks some are listed again: they are not watched."""
_CONCURRENCY: Final = 8
"""Objects that are written at once: one that the API server answers late holds up no other."""
_PERMANENT: Final = (Invalid, Forbidden, UnknownKind)

Change = OperandAction | Mapping[str, Any]
"""An action on an operand, or the labels or status fields to write."""

_log = logger()


class StaleCache(Exception):
    """A deletion or removal needs verified caches, and some may be stale."""


def _content(node: resources.Node) -> tuple[object, ...]:
    """Return what a plan depends on."""
    return node.metadata.labels, node.record, node.handlers, node.offers_gpus, node.boot_id


class OperandController:
    """Runs for one term of leadership."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        informers: Informers,
        planner: Planner,
        handlers: ReportedHandlers,
        writes: Writes,
        events: PolicyEvents,
        metrics: DriverMetrics,
        controller_metrics: ControllerMetrics,
        env: Env,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._informers = informers
        self._planner = planner
        self._handlers = handlers
        self._writes = writes
        self._events = events
        self._metrics = metrics
        self._controller = Controller(
            name=NAME,
            reconcile=self._reconcile,
            concurrency=_CONCURRENCY,
            timeout=30.0,
            env=env,
            metrics=controller_metrics,
        )
        self._queue = self._controller.queue
        self._refused: dict[ObjectKey, str] = {}
        # The last change that failed: its own back-off retries it, unless the change differs now.
        self._failed: dict[ObjectKey, object] = {}
        # Operands that the server stores in another form; each version is applied only once.
        self._unstable: dict[ObjectKey, object] = {}
        self._pod_problems: dict[str, Sequence[PodProblem]] = {}
        """By DaemonSet that lacks pods."""

    async def run(self) -> None:
        self._queue.add(_RESYNC)
        await self._controller.run_subscribed(
            self._informers.on_change(self._on_change),
            self._handlers.on_change(self._resync_soon),
        )

    def _on_change(self, before: Object | None, after: Object | None) -> None:
        nodes = [each for each in (before, after) if isinstance(each, resources.Node)]
        if len(nodes) == 2 and _content(nodes[0]) == _content(nodes[1]):
            return  # a heartbeat
        if isinstance(before, Lease) and isinstance(after, Lease):
            holders = {lease.spec.holder_identity for lease in (before, after)}
            if len(holders) == 1 and self._planner.hold_reason:
                return  # a renewal; the planner schedules a resync for the expiry
        self._resync_soon()

    def _resync_soon(self) -> None:
        self._queue.add_after(_RESYNC, _DEBOUNCE)

    async def _reconcile(self, key: ObjectKey) -> ReconcileResult:
        if key == _RESYNC:
            return await self._resync()
        if key.kind == _PODS:
            return await self._check_pods(key.name)
        change = self._change(key)
        if change is None:
            self._succeed(key)
            return Reconciled()
        if isinstance(change, RefuseOperand):
            return ReconcileRefused(self._refuse(key, change.why))
        try:
            await self._carry_out(key, change)
        except _PERMANENT as error:
            self._failed[key] = _without_times(change)
            return ReconcileRefused(self._refuse(key, str(error)), again_in=RETRY_REFUSED)
        except BaseException:
            self._failed[key] = _without_times(change)
            raise
        self._succeed(key)
        return Reconciled()

    # Plan.

    async def _resync(self) -> ReconcileResult:
        if self._informers.why_not_synced():
            return RequeueAfter(1.0)
        try:
            await self._refresh_plan()
        except Exception:
            self._metrics.reconcile_failed()
            raise
        for key in dict.fromkeys((*self._planner.affected_keys(), *self._failed, *self._refused)):
            self._enqueue(key)
        for daemon_set in self._planner.unavailable_daemon_sets():
            name = daemon_set.metadata.name
            if name not in self._pod_problems:
                self._pod_problems[name] = ()
                self._queue.add(ObjectKey(_PODS, name))
        self._metrics.reconciled(self._planner.plan, held=bool(self._planner.hold_reason))
        return RequeueAfter(self._planner.next_refresh)

    def _enqueue(self, key: ObjectKey) -> None:
        """Queue an object that needs a change which is not being retried already."""
        change = self._change(key)
        if change is None:
            if key in self._failed or key in self._refused:
                self._queue.add(key)
        elif self._failed.get(key) != _without_times(change):
            self._queue.add_after(key, _STATUS_DEBOUNCE if key.kind in resources.POLICIES else 0.0)

    async def _refresh_plan(self) -> None:
        problems = tuple(each for found in self._pod_problems.values() for each in found)
        refused = {str(key): why for key, why in self._refused.items()}
        await self._planner.refresh(pod_problems=problems, refused=refused)

    def _change(self, key: ObjectKey) -> Change | None:
        """Return the change that an object needs now."""
        if key.kind == resources.NODES.kind:
            return self._planner.owner_label_change(key.name)
        if key.kind in resources.POLICIES:
            return self._planner.status_change(key)
        if self._planner.hold_reason:
            return None
        action = self._planner.operand_action(key)
        if not isinstance(action, ApplyOperand) or key not in self._unstable:
            return action
        return None if self._unstable[key] == self._version(key, action.rendered) else action

    def _version(self, key: ObjectKey, rendered: RenderedObject) -> object:
        """Identify the rendered operand and the live edit of it."""
        live = self._planner.live_object(key)
        if live is None:
            return None
        metadata = live.metadata
        edit = metadata.generation or metadata.resource_version
        return rendered, edit, metadata.labels, metadata.annotations

    async def _check_pods(self, name: str) -> ReconcileResult:
        """Find out why a DaemonSet lacks pods, and repeat while it does."""
        before = self._pod_problems.get(name, ())
        lacking = self._planner.unavailable_daemon_sets()
        daemon_set = next((each for each in lacking if each.metadata.name == name), None)
        if daemon_set is None:
            self._pod_problems.pop(name, None)
        else:
            selector: Mapping[str, str] = daemon_set.spec["selector"]["matchLabels"]
            labels = ",".join(f"{label}={value}" for label, value in selector.items())
            page = await self._kube.list_page(
                PODS, namespace=self._namespace, labels=labels, within=10
            )
            uid = daemon_set.metadata.uid
            self._pod_problems[name] = tuple(find_pod_problems(name, uid, page.items))
        if self._pod_problems.get(name, ()) != before:
            self._resync_soon()
        return Reconciled() if daemon_set is None else RequeueAfter(_POD_INTERVAL)

    # Write.

    async def _carry_out(
        self, key: ObjectKey, change: ApplyOperand | DeleteOperand | Mapping[str, Any]
    ) -> None:
        kind, name = key
        if isinstance(change, ApplyOperand):
            await self._apply(key, change)
        elif isinstance(change, DeleteOperand):
            if await self._is_still_due(key, change):
                await self._writes.delete_operand(key, change)
                _log.info("operand deleted", why=change.because)
        elif kind in resources.POLICIES:
            policy = self._informers.policies[kind].cache.get(name)
            if policy is not None:
                written = await self._writes.write_status(kind, policy, change)
                if change.get(OBSERVED) is not None:
                    self._planner.note_status(kind, written)
                self._events.status_written(kind, policy, change)
        else:
            removes = None in change.values()
            node = self._informers.nodes.cache.get(name)
            if node is not None and not (removes and not await self._is_still_due(key, change)):
                await self._writes.label_node(node, change)

    async def _apply(self, key: ObjectKey, action: ApplyOperand) -> None:
        exists = self._planner.live_object(key) is not None
        view = await self._writes.apply_operand(action.rendered, exists=exists)
        _log.info("operand applied", why=action.because)
        self._unstable.pop(key, None)
        path = difference(action.rendered.object, view)
        if path:
            _log.warning("the server stores the operand in another form", field=path)
            self._unstable[key] = self._version(key, action.rendered)

    async def _is_still_due(self, key: ObjectKey, change: object) -> bool:
        """Return whether a plan on verified caches asks for the same change."""
        stale = await self._informers.why_stale()
        if stale:
            raise StaleCache(f"nothing is deleted while caches may be stale: {stale}")
        await self._refresh_plan()
        return self._change(key) == change

    # Results.

    def _refuse(self, key: ObjectKey, why: str) -> str:
        """Tell once why an object cannot be written; return it."""
        if self._refused.get(key) != why:
            self._refused[key] = why
            self._events.operand_refused(key, why, self._planner.plan)
            self._resync_soon()
        return why

    def _succeed(self, key: ObjectKey) -> None:
        self._failed.pop(key, None)
        if self._refused.pop(key, None) is not None:
            self._resync_soon()


def _without_times(change: Change) -> object:
    """Make equal changes compare equal, whenever they are decided."""
    if isinstance(change, Mapping) and "conditions" in change:
        return without_times(dict(change))
    return change
