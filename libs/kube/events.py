"""Record Kubernetes events about what was done and why.

Events are best effort: `record` never waits or fails, and events that cannot be kept or written are
counted as dropped. Repetitions within two minutes are one event with a higher count. No decision
depends on whether an event exists.
"""

from typing import Any, Literal

import msgspec

from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import AlreadyExists, KubeError, NotFound, TooManyRequests, Unavailable
from libs.kube.queue import RETRY_CAP, WorkQueue
from libs.kube.resources import EVENTS
from libs.kube.views import format_time
from libs.runtime.clock import jittered
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.tasks import attempt, bounded

SOURCE = "nvidia-gpu-operator"
REPEAT_WINDOW = 120.0
"""Seconds within which a repetition belongs to the same event."""
MIN_WRITE_INTERVAL = 10.0
"""Minimum seconds between two writes of one event."""
MAX_GROUPS = 10
"""Message groups per object, type and reason; further groups share one more event."""
MAX_UNWRITTEN = 1000
"""New events that wait while the API server is away; others are dropped and counted. Nothing
depends on events, and memory must not grow with an outage.
"""
MAX_EVENTS = 4096
"""Events that are kept, as they may be repeated; the oldest written one is forgotten."""
MAX_TRIES = 5
"""Attempts to write one event, until it is given up: later it would be told as news."""
REQUEST_TIMEOUT = 3.0
"""Seconds for one write, so that a server that hangs holds up few of them."""
FLUSH_TIMEOUT = 3.0
"""Seconds at the end of the process: what a kubelet grants a pod is needed for more than events."""
MAX_MESSAGE_BYTES = 1024
"""The API server refuses an event with a longer message."""
_OVERFLOW = "\0"
"""The group of all further messages."""

_log = logger()


class InvolvedObject(msgspec.Struct, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class EventCounts(msgspec.Struct, kw_only=True):
    recorded: int = 0
    written: int = 0
    """Number of requests; one may carry several repetitions."""
    dropped: int = 0


_Family = tuple[InvolvedObject, str, str]
"""The involved object, type and reason."""
_Key = tuple[_Family, str]
"""A family and the group of the message."""


class _Event(msgspec.Struct, kw_only=True):
    name: str
    message: str
    first: float
    last: float
    last_monotonic: float
    """Monotonic time of `last`."""
    count: int = 1
    written: int = 0
    """The count on the server; 0 if the event does not exist there."""
    not_before: float = 0.0
    tries: int = 0

    @property
    def is_written(self) -> bool:
        return self.written == self.count


class EventRecorder:
    """Records the events of one service; `run` writes them."""

    def __init__(self, *, kube: Kube, env: Env) -> None:
        self.counts = EventCounts()
        self._kube = kube
        self._clock = env.clock
        self._random = env.random
        self._ids = env.ids
        self._queue: WorkQueue[_Key] = WorkQueue(clock=env.clock)
        # Ordered by the last occurrence.
        self._events: dict[_Key, _Event] = {}
        self._groups: dict[_Family, set[str]] = {}
        self._unwritten = 0
        self._closed = False
        self._last_error = ""

    def record(
        self,
        about: InvolvedObject,
        *,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        group: str = "",
    ) -> None:
        """Record an event, best effort.

        Messages of one `group` are one event, which shows the latest; without a group, equal
        messages are one event.
        """
        self.counts.recorded += 1
        message = _cut(message)
        key = self._key((about, type, reason), group or message)
        event = self._events.get(key)
        if self._closed or (self._unwritten >= MAX_UNWRITTEN and (not event or event.is_written)):
            self.counts.dropped += 1
            return
        if key[1] == _OVERFLOW:
            message = _cut(f"(one of many alike) {message}")
        self._add(key, event, message)

    async def run(self) -> None:
        """Write events until cancelled, then flush the unwritten ones within `FLUSH_TIMEOUT`."""
        try:
            while True:
                key = await self._queue.get()
                try:
                    await self._process(key)
                finally:
                    self._queue.done(key)
        finally:
            self._closed = True
            self._queue.close()
            await attempt(bounded(self._flush(), seconds=FLUSH_TIMEOUT, clock=self._clock))
            self.counts.dropped += self._unwritten

    def _key(self, family: _Family, group: str) -> _Key:
        groups = self._groups.get(family, set())
        return (family, group if group in groups or len(groups) < MAX_GROUPS else _OVERFLOW)

    def _add(self, key: _Key, event: _Event | None, message: str) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if event is None or event.is_written:
            self._unwritten += 1
        if event is None:
            name = self._name(key[0][0])
            event = _Event(
                name=name, message=message, first=now, last=now, last_monotonic=monotonic
            )
        else:
            event.count += 1
            event.message, event.last, event.last_monotonic = message, now, monotonic
        self._events.pop(key, None)
        self._events[key] = event
        self._groups.setdefault(key[0], set()).add(key[1])
        self._queue.add_after(key, event.not_before - monotonic)
        if len(self._events) > MAX_EVENTS:
            self._forget(next(key for key, event in self._events.items() if event.is_written))

    def _forget(self, key: _Key) -> None:
        del self._events[key]
        family, group = key
        self._groups[family].discard(group)
        if not self._groups[family]:
            del self._groups[family]

    async def _process(self, key: _Key) -> None:
        """Write the event if it changed, and forget it once its repeat window is over."""
        event = self._events.get(key)
        if event is None:
            return
        if not event.is_written:
            await self._write_or_back_off(key, event)
            if self._events.get(key) is not event:
                return
        until = event.last_monotonic + REPEAT_WINDOW if event.is_written else event.not_before
        delay = until - self._clock.monotonic()
        if event.is_written and delay <= 0:
            self._forget(key)
        else:
            self._queue.add_after(key, delay)

    async def _write_or_back_off(self, key: _Key, event: _Event) -> None:
        try:
            await self._write(key, event)
        except (TooManyRequests, Unavailable) as error:
            self._log_error(error)
            event.tries += 1
            if event.tries == MAX_TRIES:
                self._give_up(key)
            at_least = min(error.retry_after or 0.0, RETRY_CAP)
            delay = max(at_least, jittered(2.0**event.tries, self._random))
            event.not_before = self._clock.monotonic() + delay
        except KubeError as error:
            self._log_error(error)
            self._give_up(key)

    async def _write(self, key: _Key, event: _Event) -> None:
        count = event.count
        about = key[0][0]
        if event.written:
            try:
                await self._count(about, event)
            except NotFound:
                event.name = self._name(about)
                await self._create(key[0], event)
        else:
            try:
                await self._create(key[0], event)
            except AlreadyExists:  # an earlier attempt succeeded without a response
                await self._count(about, event)
        event.written = count
        event.tries = 0
        event.not_before = self._clock.monotonic() + MIN_WRITE_INTERVAL
        self._unwritten -= event.is_written
        self.counts.written += 1
        self._last_error = ""

    async def _create(self, family: _Family, event: _Event) -> None:
        about, kind, reason = family
        namespace = _namespace(about)
        involved = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        }
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": event.name, "namespace": namespace},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "type": kind,
            "reason": reason,
            "source": {"component": SOURCE},
            "reportingComponent": SOURCE,
            "firstTimestamp": format_time(event.first),
            **_mutable_fields(event),
        }
        await self._kube.create(EVENTS, body, namespace=namespace, within=REQUEST_TIMEOUT)

    async def _count(self, about: InvolvedObject, event: _Event) -> None:
        # Unconditional: there is no other writer, and the count is absolute.
        await self._kube.request(
            "PATCH",
            EVENTS.path(namespace=_namespace(about), name=event.name),
            query={"fieldManager": self._kube.manager},
            body=_mutable_fields(event),
            content_type=MERGE_PATCH,
            within=REQUEST_TIMEOUT,
        )

    async def _flush(self) -> None:
        for key, event in tuple(self._events.items()):
            if not event.is_written:
                await attempt(self._write(key, event))

    def _give_up(self, key: _Key) -> None:
        self._forget(key)
        self._unwritten -= 1
        self.counts.dropped += 1

    def _name(self, about: InvolvedObject) -> str:
        # Cutting may leave an end that is invalid in a name.
        return f"{about.name[:230].rstrip('-.')}.{self._ids.new()[:16]}"

    def _log_error(self, error: KubeError) -> None:
        text = f"{type(error).__name__}: {error.message}"
        if text != self._last_error:
            _log.warning("events are not written", exc_info=error)
        self._last_error = text


def _mutable_fields(event: _Event) -> dict[str, Any]:
    return {
        "message": event.message,
        "lastTimestamp": format_time(event.last),
        "count": event.count,
    }


def _namespace(about: InvolvedObject) -> str:
    return about.namespace or "default"


def _cut(message: str) -> str:
    """Cut the message to the server's limit in bytes; replace unencodable characters by `?`."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
