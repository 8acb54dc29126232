"""NATS as a person: queries to the scheduler, and the connection for events."""

import asyncio
import logging
import random
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import MalformedMessage, Message, decode, encode
from libs.contracts.queries import (
    PlanAnswer,
    PlanQuery,
    QueryError,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
)
from libs.ctl.failures import (
    ExitCode,
    Failure,
    NotReady,
    bus_failure,
    query_failure,
    without_subject,
)
from libs.ctl.options import Access
from libs.ctl.route import Route, find_route
from libs.runtime.clock import SystemClock

if TYPE_CHECKING:
    from libs.bus.nats.bus import NatsBus

BUSY_SECONDS: Final = 180.0
"""Seconds for which a busy scheduler is asked again: as long as another plan may take."""
BUSY_PAUSE: Final = 0.5
SECONDS: Final = {
    QueryVerb.STATUS: 5.0,
    QueryVerb.WHY: 5.0,
    QueryVerb.PLAN: 185.0,
    QueryVerb.JOURNAL: 35.0,
}
"""A plan is played many times before it is answered; agents are asked for journals."""

TERM_PAUSE: Final = 5.0
"""Seconds between two questions whether the scheduler that computes a plan still leads."""
NO_LEADER_SECONDS: Final = 60.0
"""As long as the next scheduler may take: a lease that runs out, and a start."""
_ASKED_FOR: Final = {QueryVerb.PLAN: "a plan", QueryVerb.JOURNAL: "journals of agents"}

A = TypeVar("A", bound=Message)
Term: TypeAlias = tuple[str, int] | None


def ignore(_: str) -> None:
    """Tell nobody."""


def tell_on_stderr(text: str) -> None:
    """Tell a person what is waited for, beside what `shown` counts there."""
    print(f"\r{text}", file=sys.stderr)


class Scheduler:
    """The scheduler's answers. Errors are failures of the command."""

    def __init__(self, bus: "NatsBus", *, reached: str = "") -> None:
        self._bus = bus
        self.reached = reached
        """Where NATS is, and by which way it was reached."""

    async def ask(self, query: Message, verb: QueryVerb, answer: type[A]) -> A:
        """Return the answer to a query."""
        from libs.bus.port import BusError, BusUnavailable

        cluster = self._bus.identity.cluster
        subject = str(
            subjects.Query(cluster=cluster, service=Writer.SCHEDULER.value, verb=verb.value)
        )
        try:
            data = await self._bus.request(subject, encode(query), timeout=SECONDS[verb])
        except BusUnavailable as error:
            why = without_subject(error)
            raise Failure(
                ExitCode.NOT_REACHABLE,
                f"asking the scheduler for {_ASKED_FOR.get(verb, verb.value)}: {why}; try again,"
                " and look at NATS and the scheduler's pods if that lasts",
            ) from error
        except BusError as error:
            raise bus_failure(error) from error
        return _decoded(data, answer)

    async def plan(self, query: PlanQuery, *, tell: Callable[[str], None] = ignore) -> PlanAnswer:
        """Return a plan of the scheduler that leads.

        Who is asked computes for minutes, and answers no more once another leads: then that one is
        asked. `tell` is given what is waited for meanwhile.
        """
        while True:
            term = await self._term()
            plan = asyncio.ensure_future(self.ask(query, QueryVerb.PLAN, PlanAnswer))
            ended = asyncio.ensure_future(self._end_of(term, tell))
            try:
                await asyncio.wait({plan, ended}, return_when=asyncio.FIRST_COMPLETED)
                if plan.done():
                    return plan.result()
                tell(f"{ended.result()} leads now, and is asked for the plan")
            finally:
                await _cancelled(plan, ended)

    async def _end_of(self, term: Term, tell: Callable[[str], None]) -> str:
        """Return the name of the leader after a term; fail if there is none for long."""
        missed = 0
        while missed * TERM_PAUSE < NO_LEADER_SECONDS:
            await asyncio.sleep(TERM_PAUSE)
            now = await self._term()
            if now is not None and term is not None and now != term:
                return now[0] or "another scheduler"
            term = term or now
            missed = 0 if now is not None else missed + 1
            if missed == 1:
                tell("the scheduler that computes the plan does not lead any more: waiting for one")
        raise Failure(
            ExitCode.NOT_REACHABLE,
            "the scheduler that computed the plan does not answer any more, and no other has led"
            f" for {NO_LEADER_SECONDS:g} s; look at its pods",
        )

    async def _term(self) -> Term:
        """Return whose term it is, and which; None: none answers."""
        try:
            status = await self.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
        except Failure:
            return None
        return status.leader, status.epoch


async def _cancelled(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def when_ready(ask: Callable[[], Awaitable[A]], *, tell: Callable[[str], None] = ignore) -> A:
    """Return an answer of the scheduler, asked again while it cannot give one yet.

    `tell` is given what is waited for, once.
    """
    waited = 0.0
    while True:
        try:
            return await ask()
        except NotReady as busy:
            if waited >= BUSY_SECONDS:
                raise
            if not waited:
                tell(str(busy))
            await asyncio.sleep(BUSY_PAUSE)
            waited += BUSY_PAUSE


def _decoded(data: bytes, answer: type[A]) -> A:
    """Return an answer, or fail with the problem and the remedy that the scheduler sent instead."""
    try:
        return decode(answer, data)
    except MalformedMessage as error:
        try:
            refused = decode(QueryError, data)
        except MalformedMessage:
            raise Failure(
                ExitCode.UNEXPECTED, f"the scheduler's answer cannot be read: {error}"
            ) from None
        raise query_failure(refused) from None


@asynccontextmanager
async def open_scheduler(access: Access) -> AsyncGenerator[Scheduler]:
    """Connect to NATS; fail with the remedy if there is no way to it, or no connection."""
    async with _open(access) as (bus, route):
        yield Scheduler(bus, reached=str(route))


@asynccontextmanager
async def open_bus(access: Access) -> AsyncGenerator["NatsBus"]:
    """Connect to NATS as a person; fail with the remedy if there is no way, or no connection."""
    async with _open(access) as (bus, _):
        yield bus


@asynccontextmanager
async def _open(access: Access) -> AsyncGenerator[tuple["NatsBus", Route]]:
    with _without_logs(), tempfile.TemporaryDirectory(prefix="sluice-ctl-") as folder:
        async with find_route(access, Path(folder)) as route:
            # Slow to import, and of no use without a way.
            from libs.bus.nats.bus import connect
            from libs.bus.port import BusError
            from libs.runtime.env import Env, RandomIds
            from libs.runtime.metrics import Metrics

            clock = SystemClock()
            env = Env(
                clock=clock,
                random=random.Random(),
                ids=RandomIds(),
                metrics=Metrics(version=version("sluice")),
            )
            connection = connect(
                url=route.url,
                identity=Identity(cluster=access.cluster, writer=Writer.CTL),
                env=env,
                credentials=route.credentials,
                wait=route.seconds,
                dial=route.dial,
            )
            try:
                bus = await connection.__aenter__()
            except (BusError, ValueError) as error:
                raise _connect_failure(error, route) from error
            try:
                yield bus, route
            finally:
                await connection.__aexit__(None, None, None)


@contextmanager
def _without_logs() -> Generator[None]:
    """Keep the libraries from logging failures: the command tells them once."""
    logs = logging.getLogger("sluice")
    level = logs.level
    logs.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logs.setLevel(level)


def _connect_failure(error: Exception, route: Route) -> Failure:
    """Return why NATS was not reached; a refusal names the token that could not be had."""
    from libs.bus.port import BusError

    failure = (
        bus_failure(error)
        if isinstance(error, BusError)
        else Failure(ExitCode.WRONG_ARGUMENTS, f"NATS: {error}")
    )
    refused = "authorization violation" in str(error).lower()
    if refused and route.without:
        return Failure(ExitCode.NOT_ALLOWED, f"NATS wants a token, and {route.without}")
    code = ExitCode.NOT_ALLOWED if refused else failure.code
    return Failure(code, route.explained(str(failure)))
