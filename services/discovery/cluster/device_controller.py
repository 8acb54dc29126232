"""Reconcile the Devices and the condition of each Node while this process leads."""

import asyncio
from collections.abc import Coroutine
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
from libs.kube.errors import Forbidden, Invalid, KubeError, NotFound, UnknownKind
from libs.kube.events import EventRecorder, InvolvedObject
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.discovery.cluster.absences import Absences
from services.discovery.cluster.device_decide import (
    DeleteDevice,
    DeviceDecision,
    absent_keys,
    decide_devices,
)
from services.discovery.cluster.device_health import GpuEvent
from services.discovery.cluster.device_writes import DeviceWrites
from services.discovery.cluster.devices import BY_NODE, Device
from services.discovery.cluster.hold import Hold
from services.discovery.cluster.pace import Pace
from services.discovery.cluster.reports import read_devices
from services.discovery.cluster.resources import Informers, Node
from services.discovery.cluster.silence import TelemetrySilence
from services.discovery.cluster.writes import DiscoveryMetrics, Writes

NAME: Final = "devices"
"""The controller's name in its metrics."""
_DEBOUNCE: Final = 0.5
"""Seconds in which reports of a node are gathered."""
_NOT_SERVED: Final = 30.0
"""Seconds after which it is checked again whether the server has the kind Device."""
_CONCURRENCY: Final = 8
_REPORTED: Final = (
    (Writer.DISCOVERY, StateKind.FACTS),
    (Writer.DRIVER, StateKind.FACTS),
    (Writer.TELEMETRY, StateKind.HEALTH),
)

_log = logger()


class DeviceController:
    """Runs for one term of leadership."""

    def __init__(
        self,
        *,
        informers: Informers,
        reports: ReportCache,
        silence: TelemetrySilence,
        writes: Writes,
        device_writes: DeviceWrites,
        events: EventRecorder,
        hold: Hold,
        metrics: DiscoveryMetrics,
        controller_metrics: ControllerMetrics,
        env: Env,
    ) -> None:
        self._informers = informers
        self._reports = reports
        self._silence = silence
        self._writes = writes
        self._device_writes = device_writes
        self._events = events
        self._hold = hold
        self._metrics = metrics
        self._clock = env.clock
        self._absences = Absences(reports, clock=env.clock)
        self._pace = Pace(clock=env.clock)
        self._controller = Controller(
            name=NAME,
            reconcile=self._reconcile,
            concurrency=_CONCURRENCY,
            timeout=60.0,
            env=env,
            metrics=controller_metrics,
        )
        self._queue = self._controller.queue

    async def run(self) -> None:
        self._queue_all()
        async with asyncio.TaskGroup() as tasks:
            watch = self._silence.watch(self._node_names, self._queue.add)
            tasks.create_task(watch, name="silence")
            await self._controller.run_subscribed(
                self._informers.nodes.cache.on_change(self._on_node),
                self._informers.devices.cache.on_change(self._on_device),
                self._reports.on_change(self._on_report),
                self._hold.on_change(self._queue_all),
            )

    def _node_names(self) -> list[str]:
        return [node.metadata.name for node in self._informers.nodes]

    def _queue_all(self) -> None:
        for name in self._node_names():
            self._queue.add(name)

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        if after is None:
            if before is not None:
                name = before.metadata.name
                self._absences.forget(name)
                self._pace.forget(name)
                self._silence.forget(name)
                self._metrics.set_refused(name, 0)
        elif before is None or before.relevant_to_devices != after.relevant_to_devices:
            self._queue.add(after.metadata.name)

    def _on_device(self, before: Device | None, after: Device | None) -> None:
        for device in (before, after):
            if device is not None:
                self._queue.add_after(device.node, _DEBOUNCE)

    def _on_report(self, state: State, _before: Report | None, _after: Report | None) -> None:
        if (state.component, state.kind) in _REPORTED:
            self._queue.add_after(state.node, _DEBOUNCE)

    async def _reconcile(self, key: str) -> ReconcileResult:
        node = self._informers.nodes.cache.get(key)
        if node is None or self._hold.reason or node.metadata.deletion_timestamp:
            return Reconciled()
        if self._informers.devices.why_not_synced:
            return RequeueAfter(1.0)
        if self._informers.devices.missing:
            return RequeueAfter(_NOT_SERVED)
        decision = self._decide(node)
        if not decision.is_empty:
            wait = self._pace.take(key)
            if wait > 0:
                return RequeueAfter(wait)
            refused = await self._write(node, decision)
            if refused:
                return ReconcileRefused(refused, again_in=RETRY_REFUSED)
        return Reconciled() if decision.again_in is None else RequeueAfter(decision.again_in)

    def _decide(self, node: Node) -> DeviceDecision:
        name, now = node.metadata.name, self._clock.now()
        is_silent = self._silence.of(name)
        reported = read_devices(self._reports, node, now=now, is_silent=is_silent)
        if self._metrics.set_refused(name, reported.refused) and reported.refused:
            _log.warning(
                "a node's agents report values of GPUs that cannot be true; they are left out",
                node=name,
                values=reported.refused,
            )
        present = self._informers.devices.cache.by_index(BY_NODE, name)
        absent = self._absences.update(node, absent_keys(node, present, reported))
        return decide_devices(node, present, reported, absent, now=now)

    async def _write(self, node: Node, decision: DeviceDecision) -> str:
        """Write everything that can be written; return why the server refused something.

        Devices are deleted last: the condition of a node without GPUs is removed before.
        """
        errors: list[KubeError] = []
        for write in decision.writes:
            if not isinstance(write, DeleteDevice) and await _succeeds(
                self._device_writes.write(node, write), errors
            ):
                self._record(node, write.event)
        if decision.condition is not None:
            change = decision.condition
            if await _succeeds(self._writes.set_condition(node, change), errors):
                self._record(node, change.event)
        for write in decision.writes:
            if isinstance(write, DeleteDevice) and not errors:
                await _succeeds(self._device_writes.write(node, write), errors)
        passing = [each for each in errors if not isinstance(each, Invalid | Forbidden)]
        if passing:
            raise passing[0]
        return str(errors[0]) if errors else ""

    def _record(self, node: Node, event: GpuEvent | None) -> None:
        if event is not None:
            about = InvolvedObject(kind="Node", name=node.metadata.name, uid=node.metadata.uid)
            self._events.record(
                about,
                type=event.type,
                reason=event.reason,
                message=event.message,
                group=event.group,
            )


async def _succeeds(request: Coroutine[Any, Any, None], errors: list[KubeError]) -> bool:
    """Return whether a write succeeded; an object that is gone meanwhile is no error."""
    try:
        await request
    except UnknownKind:
        raise
    except NotFound:
        return False
    except KubeError as error:
        errors.append(error)
        return False
    return True
