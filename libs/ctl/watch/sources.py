"""Where the live view has its figures from: caches of Kubernetes, and the stream of events."""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec

from libs.contracts import subjects
from libs.contracts.events import Event
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
)
from libs.ctl.answers import EventLine, Source
from libs.ctl.cluster import ROLLOUTS, Cluster, NodeEvent
from libs.ctl.failures import Failure
from libs.ctl.node_rows import VERSION_LABEL
from libs.ctl.options import Access
from libs.ctl.text import parse_time
from libs.ctl.watch.fleet import FleetState
from libs.kube import views
from libs.kube.cache import Cache
from libs.kube.resources import EVENTS, Resource
from libs.runtime.clock import SystemClock
from libs.runtime.env import Env, RandomIds
from libs.runtime.metrics import Metrics

if TYPE_CHECKING:
    from libs.bus.port import StoredMessage

PRESENT: Final = "nvidia.com/gpu.present=true"
"""Discovery writes this label on each node that has a GPU."""
_CORDONED: Final = "spec.unschedulable=true"
"""Selects cordoned nodes: they are followed apart, as whole nodes would take megabytes."""
_KEPT_LABELS: Final = (STATE_LABEL, SKIP_LABEL, VERSION_LABEL)
_KEPT_ANNOTATIONS: Final = (RECORD_ANNOTATION, LEASE_ANNOTATION, INITIALLY_CORDONED_ANNOTATION)
_PROBE_AFTER: Final = 45.0
"""Seconds without a word from the API server after which it is asked whether it has news."""
_PROBE_EVERY: Final = 15.0
_PROBE_WITHIN: Final = 5.0
_RETRY_AFTER: Final = 10.0
_LOST_FOR: Final = 20.0
"""Seconds without NATS after which it is signed in anew: a token ends after an hour."""


class WatchedNodeObject(views.Object, frozen=True, kw_only=True):
    """A Node with the labels and annotations in use alone: the others would take megabytes."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        lean = views.Metadata(
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            labels=_only(metadata.labels, _KEPT_LABELS),
            annotations=_only(metadata.annotations, _KEPT_ANNOTATIONS),
        )
        msgspec.structs.force_setattr(self, "metadata", lean)


def _only(mapping: dict[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: mapping[key] for key in keys if key in mapping}


class _InvolvedObject(views.View, frozen=True, kw_only=True):
    name: str = ""


class _EventOfNode(NodeEvent, frozen=True, kw_only=True):
    involved_object: _InvolvedObject = _InvolvedObject()


_NODES: Final = Resource(
    plural="nodes", kind="Node", namespaced=False, metadata_only=True, view=WatchedNodeObject
)
_NODE_EVENTS: Final = Resource(plural=EVENTS.plural, kind=EVENTS.kind, view=_EventOfNode)


def make_env() -> Env:
    return Env(
        clock=SystemClock(),
        random=random.Random(),
        ids=RandomIds(),
        metrics=Metrics(version=version("sluice")),
    )


class KubernetesSource:
    """Nodes and Rollouts, followed."""

    def __init__(self, cluster: Cluster, state: FleetState, *, env: Env) -> None:
        self._cluster = cluster
        self._state = state
        self._env = env
        self._nodes = cluster.cache(_NODES, env=env, labels=PRESENT)
        self._cordoned = cluster.cache(_NODES, env=env, labels=PRESENT, fields=_CORDONED)
        self._rollouts = cluster.cache(ROLLOUTS, env=env)
        self._caches = (self._nodes, self._cordoned, self._rollouts)
        self._cordoned.on_change(self._cordon_changed)
        self._nodes.on_change(self._node_changed)
        self._rollouts.on_change(state.rollout_changed)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches:
                group.create_task(cache.run())
                group.create_task(self._probe(cache))

    async def _probe(self, cache: Cache[Any]) -> None:
        """Notice a server that has fallen silent, and prove a quiet cache current."""
        await cache.wait_synced()
        while True:
            await self._env.clock.sleep(_PROBE_EVERY)
            if cache.age > _PROBE_AFTER:
                await cache.verify_current(within=_PROBE_WITHIN)

    def _node_changed(self, old: WatchedNodeObject | None, new: WatchedNodeObject | None) -> None:
        self._state.node_changed(old and old.metadata, new and new.metadata)

    def _cordon_changed(self, old: WatchedNodeObject | None, new: WatchedNodeObject | None) -> None:
        if node := new or old:
            self._state.cordon_changed(node.metadata.name, cordoned=new is not None)

    def source(self) -> Source:
        """Return how old nodes and pools are."""
        age = max(cache.age for cache in self._caches)
        problems = [cache.problem for cache in self._caches if cache.problem]
        problems += [
            f"{key} cannot be read: {problem}"
            for cache in self._caches
            for key, problem in cache.unreadable.items()
        ]
        return Source(
            name=f"Kubernetes ({self._cluster.address})",
            gives="Kubernetes",
            age=None if math.isinf(age) else age,
            problem=problems[0] if problems else "",
        )


class EventSource:
    """Events and waits over NATS; while it is away, the Events of Kubernetes."""

    def __init__(self, access: Access, cluster: Cluster, state: FleetState, *, env: Env) -> None:
        self._access = access
        self._cluster = cluster
        self._state = state
        self._env = env
        self._problem = ""
        self._is_current = False
        self._current_at: float | None = None
        self._lost = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled. Without an address of NATS there are the Events alone."""
        if not self._access.nats:
            self._problem = "no address of NATS is given (--nats or SLUICE_NATS_URL)"
            await self._follow_kubernetes()
        from libs.bus.port import BusError

        while True:
            try:
                await self._follow_nats()
            except (Failure, BusError) as error:
                self._problem = str(error)
            self._set_current(False)
            if self._current_at is None:  # it was never there: the Events are better than nothing
                async with _beside(self._follow_kubernetes()):
                    await self._env.clock.sleep(_RETRY_AFTER)
            else:
                await self._env.clock.sleep(_RETRY_AFTER)

    async def _follow_nats(self) -> None:
        """Follow the stream, from the last event of each kind of each node on, until it is lost."""
        from libs.bus.port import LastPerSubject
        from libs.ctl.bus import open_bus

        async with open_bus(self._access) as bus:
            pattern = subjects.cluster_pattern(subjects.Event, self._access.cluster)
            following = await bus.follow(subjects.EVENTS, pattern, self, start=LastPerSubject())
            try:
                while True:
                    await self._lost.wait()
                    await self._env.clock.sleep(_LOST_FOR)
                    if not self._is_current:
                        return
            finally:
                await following.close()

    async def _follow_kubernetes(self) -> None:
        """List the Events about nodes."""
        cache = self._cluster.cache(_NODE_EVENTS, env=self._env, fields="involvedObject.kind=Node")
        self._state.events_begin()
        cache.on_change(self._event_changed)
        await cache.run()

    def _event_changed(self, _old: _EventOfNode | None, new: _EventOfNode | None) -> None:
        if new is None:
            return
        said = new.last_timestamp or new.event_time or new.metadata.creation_timestamp
        line = EventLine(
            at=parse_time(said) or 0.0,
            writer="kubernetes",
            node=new.involved_object.name,
            kind=new.reason,
            message=f"{new.reason}: {new.message}",
        )
        self._state.event_listed(line)

    def source(self) -> Source:
        """Return how old events and waits are."""
        now, at = self._env.clock.monotonic(), self._current_at
        age = None if at is None else 0.0 if self._is_current else now - at
        problem = "" if self._is_current else self._problem
        if not problem and not self._is_current and at is not None:
            problem = "NATS does not answer"
        return Source(name="the scheduler's events", gives="waits", age=age, problem=problem)

    def _set_current(self, is_current: bool) -> None:
        if self._is_current or is_current:
            self._current_at = self._env.clock.monotonic()
        self._is_current = is_current
        self._state.is_changed = True

    # Called by the bus (`Follower`).

    def began(self, _recreated: bool, /) -> None:
        """Prepare for all events to be repeated."""
        self._state.events_begin()

    def received(self, message: "StoredMessage") -> None:
        try:
            self._state.event_received(decode(Event, message.data))
        except MalformedMessage:
            return

    def caught_up(self) -> None:
        self._problem = ""
        self._lost.clear()
        self._set_current(True)

    def lost(self) -> None:
        self._set_current(False)
        self._lost.set()


@asynccontextmanager
async def _beside(work: Any) -> AsyncGenerator[None]:
    """Run work beside the block, until its end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
