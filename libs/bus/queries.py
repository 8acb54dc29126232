"""Questions to a service: answered at the same time, found by who looks for them, never echoed.

An answer goes only into the inbox of somebody who may ask: the server does not check where a
question wants its answer. A handler knows the question and gives the answer; whatever goes wrong
comes back as a `Problem` in words. What is asked means nothing here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Self, TypeAlias, overload

from libs.bus import micro
from libs.bus.micro import Endpoint, MicroService
from libs.bus.port import Bus, BusError, Closable, NoResponders
from libs.contracts import subjects
from libs.contracts.message import MalformedMessage, Message, decode, encode
from libs.contracts.queries import (
    QUERIES,
    PlanAnswer,
    PlanQuery,
    QueryError,
    QueryErrorCode,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
    WhyAnswer,
    WhyQuery,
)
from libs.runtime.clock import Clock
from libs.runtime.env import Env

log = logging.getLogger("sluice.bus")

MAX_WAITING = 64
"""Questions that may wait for each one that is answered."""

ANSWER_SECONDS = 30.0
"""An answer that takes longer is not awaited, so that it holds up no other."""

RETRY_SECONDS = 0.25
"""Between two tries to ask a service of which no instance runs."""

QueryHandlers: TypeAlias = Mapping[QueryVerb, Callable[[Any], Awaitable[Message]]]
"""To each verb, who takes its question and gives its answer, or a `Problem`."""


class QueryResponder:
    """Answers a service's questions while it is entered; leaving it drops what `drain` did not."""

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
        self._answers = handlers
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
        self._most = concurrent * MAX_WAITING
        # A dictionary, not a set: tasks are cancelled in the order in which they were started.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._asked: list[Closable] = []
        self._looked_for: list[Closable] = []
        self.rejected = 0
        """Questions that came while too many waited: who asked asks again."""
        self.undeliverable = 0
        """Questions that wanted their answer where nobody who may ask listens."""

    @property
    def id(self) -> str:
        """The name of this instance among those of its service."""
        return self._service.id

    async def __aenter__(self) -> Self:
        try:
            for verb, endpoint in self._endpoints.items():
                self._asked.append(
                    await self._bus.subscribe(
                        endpoint.subject,
                        partial(self._take, partial(self._serve, verb)),
                        group=micro.QUEUE_GROUP,
                    )
                )
            for verb, describe in self._descriptions().items():
                for subject in micro.discovery_subjects(verb, self._service):
                    self._looked_for.append(
                        await self._bus.subscribe(
                            subject, partial(self._take, partial(self._describe, describe))
                        )
                    )
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await _close(self._asked)
        await _close(self._looked_for)
        for task in self._tasks:
            task.cancel()
        await self._idle()

    async def drain(self) -> None:
        """Take nothing new, and return when all that had arrived is answered."""
        await _close(self._asked)
        await self._idle()
        await _close(self._looked_for)
        await self._idle()

    async def _idle(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _take(
        self,
        serve: Callable[[bytes, str], Coroutine[Any, Any, None]],
        subject: str,
        data: bytes,
        reply: str,
    ) -> None:
        if not subjects.is_allowed_reply(reply, self._cluster):
            self.undeliverable += 1
            log.warning("%s: not answered: %r is not the inbox of one who may ask", subject, reply)
            return
        if len(self._tasks) >= self._most:
            self.rejected += 1
            return
        task = asyncio.get_running_loop().create_task(serve(data, reply), name=f"answer {subject}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _descriptions(self) -> dict[str, Callable[[], bytes]]:
        service, endpoints = self._service, self._endpoints.values()
        return {
            "PING": lambda: micro.ping(service),
            "INFO": lambda: micro.info(service, endpoints),
            "STATS": lambda: micro.stats(service, endpoints),
        }

    async def _describe(self, describe: Callable[[], bytes], _: bytes, reply: str) -> None:
        await self._send(reply, describe())

    async def _serve(self, verb: QueryVerb, data: bytes, reply: str) -> None:
        async with self._slots:
            began = self._clock.monotonic()
            answer = await self._answer(verb, data)
            endpoint = self._endpoints[verb]
            endpoint.requests += 1
            endpoint.seconds += self._clock.monotonic() - began
            if isinstance(answer, QueryError):
                endpoint.errors += 1
                endpoint.last_error = answer.message
        if not await self._send(reply, encode(answer)):
            # One that is too long for the bus, say: who asked shall not wait for nothing.
            await self._send(reply, encode(self._internal(verb)))

    async def _answer(self, verb: QueryVerb, data: bytes) -> Message:
        question_type, answer_type = QUERIES[verb]
        try:
            question = decode(question_type, data)
        except MalformedMessage as error:
            return QueryError(code=QueryErrorCode.UNREADABLE, message=str(error))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._answers[verb](question)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.exception("%s: what an answer waited for was cancelled", verb)
            return self._internal(verb)
        except Exception:
            log.exception("%s: a question was not answered", self._endpoints[verb].subject)
            return self._internal(verb)
        if not isinstance(answer, answer_type | QueryError):
            log.error("%s: answered with a %s", verb, type(answer).__name__)
            return self._internal(verb)
        return answer

    def _internal(self, verb: QueryVerb) -> QueryError:
        return QueryError(
            code=QueryErrorCode.INTERNAL,
            message=f"{self._service.name} failed to answer {verb}; why is in its log"
            f" (instance {self._service.id}); ask again, or tell whoever runs it",
        )

    async def _send(self, reply: str, data: bytes) -> bool:
        try:
            await self._bus.publish(reply, data)
        except BusError as error:
            log.warning("an answer of %d bytes was not sent: %s", len(data), error)
            return False
        return True


async def _close(closables: list[Closable]) -> None:
    while closables:
        await closables.pop().close()


@overload
async def send_query(
    query: StatusQuery, *, bus: Bus, clock: Clock, cluster: str, service: str, timeout: float
) -> StatusAnswer | QueryError: ...


@overload
async def send_query(
    query: WhyQuery, *, bus: Bus, clock: Clock, cluster: str, service: str, timeout: float
) -> WhyAnswer | QueryError: ...


@overload
async def send_query(
    query: PlanQuery, *, bus: Bus, clock: Clock, cluster: str, service: str, timeout: float
) -> PlanAnswer | QueryError: ...


async def send_query(
    query: Message, *, bus: Bus, clock: Clock, cluster: str, service: str, timeout: float
) -> Message:
    """Ask; a service that is not there now is asked again until `timeout` has passed.

    Raises `NobodyThere`, `Away`, or `Unreadable` for an answer that this process cannot read.
    """
    verb, answer_type = _ANSWERED_BY[type(query)]
    subject = str(subjects.Query(cluster=cluster, service=service, verb=verb))
    deadline = clock.monotonic() + timeout
    while True:
        try:
            data = await bus.request(subject, encode(query), timeout=deadline - clock.monotonic())
        except NoResponders:
            if clock.monotonic() + RETRY_SECONDS >= deadline:
                raise
            await clock.sleep(RETRY_SECONDS)
        else:
            return _read(answer_type, data)


_ANSWERED_BY: dict[type[Message], tuple[QueryVerb, type[Message]]] = {
    question: (verb, answer) for verb, (question, answer) in QUERIES.items()
}


def _read(answer_type: type[Message], data: bytes) -> Message:
    try:
        return decode(answer_type, data)
    except MalformedMessage as error:
        try:
            return decode(QueryError, data)
        except MalformedMessage:
            raise error from None
