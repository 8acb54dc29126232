"""Events: what people read in `kubectl describe` about what we did and why.

They are a courtesy: `record` never waits and never fails, what cannot be kept or written is counted
and dropped, and the same thing said again within two minutes is one event with a higher count. That
a state was shown at all is never decided by whether an event of it exists.
"""

from typing import Any, Literal

import msgspec

from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import AlreadyExists, KubeError, NotFound, TooManyRequests, Unavailable
from libs.kube.queue import RETRY_CAP, WorkQueue
from libs.kube.resources import EVENTS
from libs.kube.times import format_time
from libs.runtime.backoff import jittered
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.tasks import attempt, bounded

SOURCE = "nvidia-gpu-operator"
REPEAT_WINDOW = 120.0
"""What is said again so soon after the last time is the same event."""
MIN_WRITE_INTERVAL = 10.0
"""Repetitions of one event are written no more often."""
MAX_GROUPS = 10
"""So many groups of messages about one thing, of one reason; all others together are one more."""
MAX_UNWRITTEN = 1000
MAX_EVENTS = 4096
MAX_TRIES = 5
REQUEST_TIMEOUT = 3.0
FLUSH_TIMEOUT = 3.0
MAX_MESSAGE_BYTES = 1024
_MANY = "\0"
"""The group of those others."""

_log = logger()


class InvolvedObject(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an event is about."""

    api_version: str = "v1"
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class EventCounts(msgspec.Struct, kw_only=True):
    """What became of what was recorded."""

    recorded: int = 0
    written: int = 0
    """In how many requests; one may bring many repetitions."""
    dropped: int = 0


_Family = tuple[InvolvedObject, str, str]
"""Whom it is about, type and reason."""
_Key = tuple[_Family, str]
"""And the group of the message."""


class _Event(msgspec.Struct, kw_only=True):
    name: str
    message: str
    first: float
    last: float
    heard: float
    """The monotonic clock's time of `last`."""
    count: int = 1
    written: int = 0
    """The count that the server has; none if it does not have the event."""
    not_before: float = 0.0
    tries: int = 0

    @property
    def is_written(self) -> bool:
        return self.written == self.count


class EventRecorder:
    """The recorder of one service; `run` is its task."""

    def __init__(self, *, kube: Kube, env: Env) -> None:
        self.counts = EventCounts()
        self._kube = kube
        self._clock = env.clock
        self._random = env.random
        self._ids = env.ids
        self._queue: WorkQueue[_Key] = WorkQueue(clock=env.clock)
        # What was heard last comes last.
        self._events: dict[_Key, _Event] = {}
        self._groups: dict[_Family, set[str]] = {}
        self._unwritten = 0
        self._closed = False
        self._trouble = ""

    def record(
        self,
        about: InvolvedObject,
        *,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        group: str = "",
    ) -> None:
        """Say it, if that is possible.

        Messages of one `group` are one event, which shows the last of them; without a group those
        that are equal are.
        """
        self.counts.recorded += 1
        message = _cut(message)
        key = self._key((about, type, reason), group or message)
        event = self._events.get(key)
        if self._closed or (self._unwritten >= MAX_UNWRITTEN and (not event or event.is_written)):
            self.counts.dropped += 1
            return
        if key[1] == _MANY:
            message = _cut(f"(one of many alike) {message}")
        self._hear(key, event, message)

    async def run(self) -> None:
        """Write until cancelled; what is unwritten then has a few seconds."""
        try:
            while True:
                key = await self._queue.get()
                try:
                    await self._look(key)
                finally:
                    self._queue.done(key)
        finally:
            self._closed = True
            self._queue.close()
            await attempt(bounded(self._flush(), seconds=FLUSH_TIMEOUT, clock=self._clock))
            self.counts.dropped += self._unwritten

    def _key(self, family: _Family, group: str) -> _Key:
        groups = self._groups.get(family, set())
        return (family, group if group in groups or len(groups) < MAX_GROUPS else _MANY)

    def _hear(self, key: _Key, event: _Event | None, message: str) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if event is None or event.is_written:
            self._unwritten += 1
        if event is None:
            name = self._name(key[0][0])
            event = _Event(name=name, message=message, first=now, last=now, heard=monotonic)
        else:
            event.count += 1
            event.message, event.last, event.heard = message, now, monotonic
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

    async def _look(self, key: _Key) -> None:
        """Write what is to be written, and forget what nobody says any more."""
        event = self._events.get(key)
        if event is None:
            return
        if not event.is_written:
            await self._try(key, event)
            if self._events.get(key) is not event:
                return
        until = event.heard + REPEAT_WINDOW if event.is_written else event.not_before
        wait = until - self._clock.monotonic()
        if event.is_written and wait <= 0:
            self._forget(key)
        else:
            self._queue.add_after(key, wait)

    async def _try(self, key: _Key, event: _Event) -> None:
        try:
            await self._write(key, event)
        except (TooManyRequests, Unavailable) as error:
            self._say(error)
            event.tries += 1
            if event.tries == MAX_TRIES:
                self._give_up(key)
            asked = error.retry_after if isinstance(error, TooManyRequests) else None
            wait = max(min(asked or 0.0, RETRY_CAP), jittered(2.0**event.tries, self._random))
            event.not_before = self._clock.monotonic() + wait
        except KubeError as error:
            self._say(error)
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
            except AlreadyExists:  # an earlier try was carried out, though no answer came
                await self._count(about, event)
        event.written = count
        event.tries = 0
        event.not_before = self._clock.monotonic() + MIN_WRITE_INTERVAL
        self._unwritten -= event.is_written
        self.counts.written += 1
        self._trouble = ""

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
            **_news(event),
        }
        await self._kube.create(EVENTS, body, namespace=namespace, within=REQUEST_TIMEOUT)

    async def _count(self, about: InvolvedObject, event: _Event) -> None:
        # Not guarded by a revision: nobody else writes it, and the count is the whole truth.
        await self._kube.request(
            "PATCH",
            EVENTS.path(namespace=_namespace(about), name=event.name),
            query={"fieldManager": self._kube.manager},
            body=_news(event),
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
        # What is cut off may leave an end that no name may have.
        return f"{about.name[:230].rstrip('-.')}.{self._ids.new()[:16]}"

    def _say(self, error: KubeError) -> None:
        trouble = f"{type(error).__name__}: {error.message}"
        if trouble != self._trouble:
            _log.warning("events are not written", exc_info=error)
        self._trouble = trouble


def _news(event: _Event) -> dict[str, Any]:
    return {
        "message": event.message,
        "lastTimestamp": format_time(event.last),
        "count": event.count,
    }


def _namespace(about: InvolvedObject) -> str:
    return about.namespace or "default"


def _cut(message: str) -> str:
    """Not longer than a server takes, in bytes; what cannot be written at all becomes `?`."""
    whole = message.encode(errors="replace")
    if len(whole) <= MAX_MESSAGE_BYTES:
        return whole.decode()
    return whole[: MAX_MESSAGE_BYTES - 3].decode(errors="ignore") + "…"
