"""The work of one leader: what differs is brought to where it should be, each object on its own.

A look at everything says on which objects something is to be done; each is then decided on again
and written by itself, so that one which is refused, or hangs, holds up no other. What the server
does not take is said in the status of its policy and by an event, and tried again now and then.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from libs.kube.client import Kube
from libs.kube.controller import (
    Controller,
    Reconciled,
    ReconcileRefused,
    ReconcileResult,
    RequeueAfter,
)
from libs.kube.errors import Forbidden, Invalid, UnknownKind
from libs.kube.metrics import ControllerMetrics
from libs.kube.queue import WorkQueue
from libs.kube.resources import PODS
from libs.kube.views import Lease, Object
from libs.policy.render.rendered import RenderedObject
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.driver.cluster import resources, statuses
from services.driver.cluster.decide import ApplyOperand, DeleteOperand, OperandAction, RefuseOperand
from services.driver.cluster.diff import difference
from services.driver.cluster.events import PolicyEvents
from services.driver.cluster.informers import Informers
from services.driver.cluster.metrics import DriverMetrics
from services.driver.cluster.plan import ObjectKey
from services.driver.cluster.planner import Planner
from services.driver.cluster.pod_problems import find_pod_problems
from services.driver.cluster.writes import Writes

if TYPE_CHECKING:
    from libs.policy.observed import PodProblem

NAME: Final = "operands"
"""Of the controller, in its metrics."""
_RESYNC: Final = ObjectKey("look", "")
_PODS: Final = "pods"
_DEBOUNCE: Final = 0.2
"""Seconds in which changes are gathered before everything is looked at."""
_STATUS_DEBOUNCE: Final = 0.5
"""Seconds in which changes of a status are gathered."""
_AGAIN: Final = 60.0
"""Seconds after which what the server does not take is tried again."""
_EXPLAIN: Final = 30.0
_CONCURRENCY: Final = 8
_PERMANENT: Final = (Invalid, Forbidden, UnknownKind)

_log = logger()


class StaleCache(Exception):
    """Nothing is taken away on old news."""


class OperandController:
    """From the begin of a term to its end."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        informers: Informers,
        planner: Planner,
        writes: Writes,
        events: PolicyEvents,
        metrics: DriverMetrics,
        controller_metrics: ControllerMetrics,
        env: Env,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._sources = informers
        self._survey = planner
        self._hands = writes
        self._telling = events
        self._meters = metrics
        self._queue = WorkQueue[ObjectKey](clock=env.clock)
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
        self._refused: dict[ObjectKey, str] = {}
        # What was tried last and failed: it has its own back-off, unless something else is wanted.
        self._failed: dict[ObjectKey, object] = {}
        # What the server keeps in another form than we send it: sent once for each wish.
        self._stubborn: dict[ObjectKey, object] = {}
        self._explained: dict[str, Sequence[PodProblem]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        end = self._sources.on_change(self._changed)
        try:
            self._queue.add(_RESYNC)
            await self._controller.run()
        finally:
            end()

    def _changed(self, before: Object | None, after: Object | None) -> None:
        if isinstance(before, resources.Node) and isinstance(after, resources.Node):
            same = before.metadata.labels == after.metadata.labels
            if same and before.record == after.record:
                return  # a heartbeat
        if isinstance(before, Lease) and isinstance(after, Lease):
            holders = {one.spec.holder_identity for one in (before, after)}
            if len(holders) == 1 and self._survey.hold_reason:
                return  # a renewal; the end of what counts as being at work is looked at in time
        self._look_soon()

    def _look_soon(self) -> None:
        self._queue.add_after(_RESYNC, _DEBOUNCE)

    async def _reconcile(self, key: ObjectKey) -> ReconcileResult:
        if key == _RESYNC:
            return await self._look()
        if key.kind == _PODS:
            return await self._explain(key.name)
        intent = self._intent(key)
        if intent is None:
            self._went_well(key)
            return Reconciled()
        if isinstance(intent, RefuseOperand):
            return self._refuse(key, intent.why)
        try:
            await self._act(key, intent)
        except _PERMANENT as error:
            self._failed[key] = _timeless(intent)
            self._queue.add_after(key, _AGAIN)
            return self._refuse(key, str(error))
        except BaseException:
            self._failed[key] = _timeless(intent)
            raise
        self._went_well(key)
        return Reconciled()

    # Looking.

    async def _look(self) -> ReconcileResult:
        if self._sources.why_not_synced():
            return RequeueAfter(1.0)
        try:
            await self._look_now()
        except Exception:
            self._meters.reconcile_failed()
            raise
        for key in dict.fromkeys((*self._survey.affected_keys(), *self._failed, *self._refused)):
            self._put(key)
        for one in self._survey.unavailable_daemon_sets():
            if one.metadata.name not in self._explained:
                self._explained[one.metadata.name] = ()
                self._queue.add(ObjectKey(_PODS, one.metadata.name))
        self._meters.reconciled(self._survey.plan, held=bool(self._survey.hold_reason))
        return RequeueAfter(self._survey.next_refresh)

    def _put(self, key: ObjectKey) -> None:
        """In line, if there is anything to do about it that is not being tried already."""
        intent = self._intent(key)
        if intent is None:
            if key in self._failed or key in self._refused:
                self._queue.add(key)
        elif self._failed.get(key) != _timeless(intent):
            self._queue.add_after(key, _STATUS_DEBOUNCE if key.kind in resources.POLICIES else 0.0)

    async def _look_now(self) -> None:
        known = tuple(one for some in self._explained.values() for one in some)
        refused = {str(key): why for key, why in self._refused.items()}
        await self._survey.refresh(pod_problems=known, refused=refused)

    def _intent(self, key: ObjectKey) -> OperandAction | Mapping[str, Any] | None:
        """What is to be done about it as things are."""
        if key.kind == resources.NODES.kind:
            return self._survey.owner_label_change(key.name)
        if key.kind in resources.POLICIES:
            return self._survey.status_change(key)
        if self._survey.hold_reason:
            return None
        action = self._survey.operand_action(key)
        if not isinstance(action, ApplyOperand) or key not in self._stubborn:
            return action
        return None if self._stubborn[key] == self._wish(key, action.made) else action

    def _wish(self, key: ObjectKey, made: RenderedObject) -> object:
        """What is wanted of an operand, and which edit of it is there."""
        there = self._survey.live_object(key)
        if there is None:
            return None
        metadata = there.metadata
        edit = metadata.generation or metadata.resource_version
        return made, edit, metadata.labels, metadata.annotations

    async def _explain(self, name: str) -> ReconcileResult:
        """Why a DaemonSet lacks pods, for as long as it does."""
        before = self._explained.get(name, ())
        one = next(
            (one for one in self._survey.unavailable_daemon_sets() if one.metadata.name == name),
            None,
        )
        if one is None:
            self._explained.pop(name, None)
        else:
            chosen: Mapping[str, str] = one.spec["selector"]["matchLabels"]
            labels = ",".join(f"{label}={value}" for label, value in chosen.items())
            page = await self._kube.list_page(
                PODS, namespace=self._namespace, labels=labels, within=10
            )
            self._explained[name] = tuple(find_pod_problems(name, one.metadata.uid, page.items))
        if self._explained.get(name, ()) != before:
            self._look_soon()
        return Reconciled() if one is None else RequeueAfter(_EXPLAIN)

    # Doing.

    async def _act(
        self, key: ObjectKey, intent: ApplyOperand | DeleteOperand | Mapping[str, Any]
    ) -> None:
        match intent:
            case ApplyOperand():
                await self._apply(key, intent)
            case DeleteOperand():
                if await self._still(key, intent):
                    await self._hands.delete_operand(key, intent)
                    _log.info("operand deleted", why=intent.because)
            case _:
                await self._write(key, intent)

    async def _apply(self, key: ObjectKey, what: ApplyOperand) -> None:
        view = await self._hands.apply_operand(what.made)
        _log.info("operand applied", why=what.because)
        self._stubborn.pop(key, None)
        path = difference(what.made.object, view)
        if path:
            _log.warning("the server keeps it otherwise", field=path)
            self._stubborn[key] = self._wish(key, what.made)

    async def _write(self, key: ObjectKey, change: Mapping[str, Any]) -> None:
        kind, name = key
        if kind in resources.POLICIES:
            there = self._sources.policies[kind].cache.get(name)
            if there is not None:
                await self._hands.write_status(kind, there, change)
                self._telling.status_written(kind, there, change)
            return
        taken = None in change.values()
        node = self._sources.nodes.cache.get(name)
        if node is not None and not (taken and not await self._still(key, change)):
            await self._hands.label_node(node, change)

    async def _still(self, key: ObjectKey, intent: object) -> bool:
        """Whether that is to be done on what is proved to be of now."""
        doubts = await self._sources.why_stale()
        if doubts:
            raise StaleCache(f"nothing is taken away while it is not known what there is: {doubts}")
        await self._look_now()
        return self._intent(key) == intent

    # What becomes of it.

    def _refuse(self, key: ObjectKey, why: str) -> ReconcileRefused:
        if self._refused.get(key) != why:
            self._refused[key] = why
            self._telling.operand_refused(key, why, self._survey.plan)
            self._look_soon()
        return ReconcileRefused(why)

    def _went_well(self, key: ObjectKey) -> None:
        self._failed.pop(key, None)
        if self._refused.pop(key, None) is not None:
            self._look_soon()


def _timeless(intent: OperandAction | Mapping[str, Any]) -> object:
    """What it is about, whenever it is decided."""
    if isinstance(intent, Mapping) and "conditions" in intent:
        return statuses.without_times(dict(intent))
    return intent
