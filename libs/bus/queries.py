"""Answer the queries to a service, which NATS's service discovery (ADR-32) lists.

Queries are answered concurrently, every failure with a `QueryError`. An answer is sent only to an
inbox that may receive answers, because the server does not check the reply subject of a query.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self, TypeAlias

import msgspec

from libs.bus.port import Bus, BusError, Closable
from libs.contracts import subjects
from libs.contracts.message import MalformedMessage, Message, decode, encode
from libs.contracts.queries import (
    QUERIES,
    QueryError,
    QueryErrorCode,
    QueryVerb,
)
from libs.runtime.env import Env

log = logging.getLogger("sluice.bus")

QUEUE_GROUP = "q"
"""ADR-32's queue group: each query goes to one instance of a service."""

MAX_WAITING = 64
"""Queries that may wait, for each one that may run."""

ANSWER_SECONDS: Final = {
    QueryVerb.STATUS: 30.0,
    QueryVerb.WHY: 30.0,
    QueryVerb.PLAN: 180.0,
    QueryVerb.JOURNAL: 30.0,
}
"""A handler that takes longer is cancelled, so that it does not hold up other queries."""

QueryHandlers: TypeAlias = Mapping[QueryVerb, Callable[[Any], Awaitable[Message]]]
"""The handler of each verb; it returns the verb's answer or a `QueryError`."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


class MicroService(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a service."""

    id: str
    name: str
    version: str
    started: float
    """Unix seconds."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"service {self.name!r}: a name may contain only A-Z, a-z, 0-9, '_' and '-'"
            )
        if not _VERSION.fullmatch(self.version):
            raise ValueError(
                f"service {self.name}: version {self.version!r} is not semantic, as in 1.2.3"
            )


class Endpoint(msgspec.Struct, kw_only=True):
    """One query of a service, with its statistics."""

    name: str
    subject: str
    requests: int = 0
    errors: int = 0
    last_error: str = ""
    seconds: float = 0.0


def _discovery_subjects(verb: str, service: MicroService) -> tuple[str, str, str]:
    """Return a verb's subjects: for all services, for this service, for this instance."""
    return (
        subjects.service(verb),
        subjects.service(verb, service.name),
        subjects.service(verb, service.name, service.id),
    )


def _reply(service: MicroService, kind: str, **fields: object) -> bytes:
    head = {"type": f"io.nats.micro.v1.{kind}_response", "name": service.name, "id": service.id}
    return msgspec.json.encode({**head, "version": service.version, "metadata": {}, **fields})


def _info(service: MicroService, endpoints: Iterable[Endpoint]) -> bytes:
    described: list[dict[str, object]] = [
        {"name": each.name, "subject": each.subject, "queue_group": QUEUE_GROUP, "metadata": {}}
        for each in endpoints
    ]
    description = f"read-only questions: {', '.join(each.name for each in endpoints)}"
    return _reply(service, "info", description=description, endpoints=described)


def _stats(service: MicroService, endpoints: Iterable[Endpoint]) -> bytes:
    started = datetime.fromtimestamp(service.started, UTC).isoformat(timespec="microseconds")
    return _reply(
        service,
        "stats",
        started=started.replace("+00:00", "Z"),
        endpoints=[_endpoint_stats(each) for each in endpoints],
    )


def _endpoint_stats(endpoint: Endpoint) -> dict[str, object]:
    nanoseconds = round(endpoint.seconds * 1e9)
    return {
        "name": endpoint.name,
        "subject": endpoint.subject,
        "queue_group": QUEUE_GROUP,
        "num_requests": endpoint.requests,
        "num_errors": endpoint.errors,
        "last_error": endpoint.last_error,
        "processing_time": nanoseconds,
        "average_processing_time": nanoseconds // (endpoint.requests or 1),
        "data": None,
    }


class QueryResponder:
    """Answers a service's queries while it is entered; call `drain` first to leave gracefully."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        name: str,
        version: str,
        handlers: QueryHandlers,
        concurrent: int,
    ) -> None:
        self._bus = bus
        self._clock = env.clock
        self._cluster = bus.identity.cluster
        self._handlers = handlers
        self._service = MicroService(
            id=env.ids.new(), name=name, version=version, started=env.clock.now()
        )
        self._endpoints = {
            verb: Endpoint(
                name=verb,
                subject=str(subjects.Query(cluster=self._cluster, service=name, verb=verb)),
            )
            for verb in handlers
        }
        self._slots = asyncio.Semaphore(concurrent)
        self._max_tasks = concurrent * MAX_WAITING
        # A dictionary and not a set, so that tasks are cancelled in the order of their start.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._query_subscriptions: list[Closable] = []
        self._discovery_subscriptions: list[Closable] = []
        self.rejected = 0
        """Queries that were dropped because too many were waiting."""
        self.undeliverable = 0
        """Queries that were dropped because of their reply subject."""

    @property
    def id(self) -> str:
        """The id of this instance of the service."""
        return self._service.id

    async def __aenter__(self) -> Self:
        try:
            for verb, endpoint in self._endpoints.items():
                self._query_subscriptions.append(
                    await self._bus.subscribe(
                        endpoint.subject,
                        partial(self._start, partial(self._serve, verb)),
                        group=QUEUE_GROUP,
                    )
                )
            for verb, describe in self._descriptions().items():
                for subject in _discovery_subjects(verb, self._service):
                    self._discovery_subscriptions.append(
                        await self._bus.subscribe(
                            subject, partial(self._start, partial(self._describe, describe))
                        )
                    )
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await _close(self._query_subscriptions)
        await _close(self._discovery_subscriptions)
        for task in self._tasks:
            task.cancel()
        await self._idle()

    async def drain(self) -> None:
        """Accept no more queries, and return when all that were received are answered."""
        await _close(self._query_subscriptions)
        await self._idle()
        await _close(self._discovery_subscriptions)
        await self._idle()

    async def _idle(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _start(
        self,
        serve: Callable[[bytes, str], Coroutine[Any, Any, None]],
        subject: str,
        data: bytes,
        reply: str,
    ) -> None:
        if not subjects.is_allowed_reply(reply, self._cluster):
            self.undeliverable += 1
            log.warning(
                "%s: not answered: %r is not an inbox that may send queries", subject, reply[:80]
            )
            return
        if len(self._tasks) >= self._max_tasks:
            self.rejected += 1
            return
        task = asyncio.get_running_loop().create_task(serve(data, reply), name=f"answer {subject}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _descriptions(self) -> dict[str, Callable[[], bytes]]:
        service, endpoints = self._service, self._endpoints.values()
        return {
            "PING": lambda: _reply(service, "ping"),
            "INFO": lambda: _info(service, endpoints),
            "STATS": lambda: _stats(service, endpoints),
        }

    async def _describe(self, describe: Callable[[], bytes], _: bytes, reply: str) -> None:
        await self._send(reply, describe())

    async def _serve(self, verb: QueryVerb, data: bytes, reply: str) -> None:
        async with self._slots:
            started_at = self._clock.monotonic()
            answer = await self._answer(verb, data)
            endpoint = self._endpoints[verb]
            endpoint.requests += 1
            endpoint.seconds += self._clock.monotonic() - started_at
            if isinstance(answer, QueryError):
                endpoint.errors += 1
                endpoint.last_error = answer.message
        if not await self._send(reply, encode(answer)):
            # The answer may be too long for the bus; send an error rather than let the asker wait.
            await self._send(reply, encode(self._internal(verb)))

    async def _answer(self, verb: QueryVerb, data: bytes) -> Message:
        query_type, answer_type = QUERIES[verb]
        try:
            query = decode(query_type, data)
        except MalformedMessage as error:
            return QueryError(code=QueryErrorCode.UNREADABLE, message=str(error))
        try:
            async with asyncio.timeout(ANSWER_SECONDS[verb]):
                answer = await self._handlers[verb](query)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.exception("%s: a task of the handler was cancelled", verb)
            return self._internal(verb)
        except Exception:
            log.exception("%s: a query was not answered", self._endpoints[verb].subject)
            return self._internal(verb)
        if not isinstance(answer, answer_type | QueryError):
            log.error("%s: the handler returned a %s", verb, type(answer).__name__)
            return self._internal(verb)
        return answer

    def _internal(self, verb: QueryVerb) -> QueryError:
        return QueryError(
            code=QueryErrorCode.INTERNAL,
            message=f"{self._service.name} failed to answer {verb}; the cause is in its log"
            f" (instance {self._service.id}); try again",
        )

    async def _send(self, reply: str, data: bytes) -> bool:
        try:
            await self._bus.publish(reply, data)
        except BusError as error:
            log.warning("an answer of %d bytes could not be sent: %s", len(data), error)
            return False
        return True


async def _close(closables: list[Closable]) -> None:
    while closables:
        await closables.pop().close()
