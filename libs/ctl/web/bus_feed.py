"""Follow events on the bus, and ask the scheduler for status and plans. The bus may be away."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from libs.bus.events import RecordedEvent, read_events
from libs.bus.nats.bus import NatsBus
from libs.bus.port import BusError
from libs.contracts.events import Event, StepEvent, WaitEvent
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.queries import PlanQuery, QueryVerb, StatusAnswer, StatusQuery
from libs.ctl import answers
from libs.ctl.answers import EventLine, Source
from libs.ctl.bus import Scheduler, open_bus
from libs.ctl.cluster import TOKEN_SECONDS
from libs.ctl.failures import Failure, bus_failure
from libs.ctl.options import Access
from libs.ctl.text import printable
from libs.ctl.web import history, model
from libs.ctl.web.board import Board
from libs.ctl.web.history import Move, Planned
from libs.ctl.web.model import Wait
from libs.runtime.clock import Clock

STATUS_SECONDS: Final = 5.0
PLAN_SECONDS: Final = 600.0
"""A plan is made again this often: what has not started is drawn as it is expected now."""
EVENTS_OF_NODE: Final = 12
"""Events that are kept of each node; `sluice events --node` has all."""
RETRY_SECONDS: Final = 5.0
SESSION_SECONDS: Final = 0.8 * TOKEN_SECONDS
"""A connection is opened anew before its token ends."""
_AT_A_TIME: Final = 200
"""Stored events that are read before others have their turn."""


class BusFeed:
    """What the bus says, for as long as `run` runs; kept while the bus is away."""

    def __init__(
        self,
        access: Access,
        board: Board,
        *,
        clock: Clock,
        versions: Callable[[], Mapping[str, str]],
    ) -> None:
        self._access = access
        self._board = board
        self._clock = clock
        self._versions = versions
        self._changed: set[str] = set()
        self._moves: dict[str, tuple[str, Move]] = {}
        """By node, with the uid of the Node that moved."""
        self._waits: dict[str, tuple[str, Wait]] = {}
        self._happened: dict[str, tuple[EventLine, ...]] = {}
        self._plans: dict[str, tuple[str, float, dict[str, Planned]]] = {}
        """By pool: the target, when it was planned, and start and end by node."""
        self._last: tuple[int, float] = (0, 0.0)
        """Sequence and time of the last event that was read."""
        self._problem = "not connected yet"
        self._bus: NatsBus | None = None
        self._status_problem = ""
        self._read_at: float | None = None
        self.status: StatusAnswer | None = None
        self.scheduler: Scheduler | None = None
        """To ask while it is connected."""
        self.pools_to_plan: Callable[[], Mapping[str, str]] = dict
        self.started: Callable[[str], set[str]] = lambda _: set()

    async def run(self) -> None:
        """Follow the bus until cancelled."""
        if not self._access.nats:
            self._problem = "no address of NATS is given (--nats or SLUICE_NATS_URL)"
            return
        while True:
            try:
                await self._session()
            except* (Failure, BusError) as failed:
                self._problem = printable("; ".join(map(str, failed.exceptions)))
                await self._clock.sleep(RETRY_SECONDS)
            except* TimeoutError:
                pass  # the token is renewed

    @property
    def why_away(self) -> str:
        """Why the scheduler cannot be asked; empty if it can."""
        return self._problem or "the connection to NATS is being opened"

    def sources(self) -> tuple[Source, ...]:
        """Return what the bus gives, how old it is, and what it does not give, and why."""
        away = (
            self._problem or (self._bus.unready_reason() if self._bus is not None else None) or ""
        )
        problem = away or self._status_problem
        waits = (
            answers.scheduler_source(self.status, now=self._clock.now())
            if self.status is not None
            else Source(name="the scheduler", gives="waits")
        )
        return (
            Source(
                name=printable(waits.name),
                gives="waits and plans",
                age=waits.age,
                problem=printable(problem),
                behind=waits.behind,
            ),
            Source(
                name="NATS",
                gives="events and the timeline's past",
                age=0.0 if self._read_at is not None and not away else None,
                problem=printable(away),
            ),
        )

    def take_changed(self) -> set[str]:
        """Return the nodes about which there was something since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def wait(self, node: str, uid: str) -> Wait | None:
        of, wait = self._waits.get(node, ("", None))
        return wait if of in ("", uid) else None

    def move(self, node: str, uid: str) -> Move | None:
        of, move = self._moves.get(node, ("", None))
        return move if of in ("", uid) else None

    def happened(self, node: str) -> tuple[EventLine, ...]:
        """Return the last events of a node, the oldest first."""
        return self._happened.get(node, ())

    def forget(self, node: str) -> None:
        """Drop what is known of a Node that was deleted."""
        for known in (self._moves, self._waits, self._happened):
            known.pop(node, None)

    def planned(self, pool: str, target: str, node: str) -> Planned | None:
        planned_for, _, nodes = self._plans.get(pool, ("", 0.0, {}))
        return nodes.get(node) if planned_for == target else None

    async def _session(self) -> None:
        async with asyncio.timeout(SESSION_SECONDS), open_bus(self._access) as bus:
            self._problem, self._bus, self.scheduler = "", bus, Scheduler(bus)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow_events(bus))
                    tasks.create_task(self._ask_status(self.scheduler))
                    tasks.create_task(self._ask_plans(self.scheduler))
            finally:
                self._bus = self.scheduler = None

    async def _follow_events(self, bus: NatsBus) -> None:
        count = 0
        try:
            async with read_events(bus=bus, cluster=self._access.cluster, follow=True) as events:
                async for stored in events:
                    count += 1
                    if count % _AT_A_TIME == 0:
                        await asyncio.sleep(0)
                    if isinstance(stored, RecordedEvent) and self._is_new(stored):
                        self.take(stored.event)
        except BusError as error:
            raise bus_failure(error) from error

    def _is_new(self, stored: RecordedEvent) -> bool:
        """Whether an event was not read in an earlier session; a new stream counts from 1."""
        sequence, time = self._last
        if stored.sequence <= sequence and stored.time <= time:
            return False
        self._last = (stored.sequence, stored.time)
        self._read_at = self._clock.monotonic()
        return True

    def take(self, event: Event) -> None:
        """Show an event, and learn of a node's move or wait if the scheduler says so."""
        line = model.clean_event(EventLine.of(event, self._versions()))
        self._board.add_event(line)
        if event.node:
            self._happened[event.node] = (*self.happened(event.node), line)[-EVENTS_OF_NODE:]
        if event.writer != Writer.SCHEDULER or not event.node:
            return
        try:
            body = event.open()
        except MalformedMessage:
            return
        if isinstance(body, StepEvent):
            move = history.advance(self.move(event.node, event.node_uid), body, event.at)
            if move is not None:
                self._moves[event.node] = (event.node_uid, move)
        elif isinstance(body, WaitEvent):
            wait = model.wait_of(body, self._versions())
            self._waits.pop(event.node, None)
            if wait is not None:
                self._waits[event.node] = (event.node_uid, wait)
        self._changed.add(event.node)

    async def _ask_status(self, scheduler: Scheduler) -> None:
        while True:
            try:
                self.status = await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
                self._status_problem = ""
            except Failure as failure:
                self._status_problem = printable(str(failure))
            await self._clock.sleep(STATUS_SECONDS)

    async def _ask_plans(self, scheduler: Scheduler) -> None:
        while True:
            for pool, target in self.pools_to_plan().items():
                planned_for, at, _ = self._plans.get(pool, ("", 0.0, {}))
                if planned_for != target or self._clock.monotonic() - at >= PLAN_SECONDS:
                    await self._ask_plan(scheduler, pool, target)
            await self._clock.sleep(STATUS_SECONDS)

    async def _ask_plan(self, scheduler: Scheduler, pool: str, target: str) -> None:
        """Plan what has not started; what has keeps the plan that was made for it before."""
        planned_for, _, nodes = self._plans.get(pool, ("", 0.0, {}))
        kept = nodes if planned_for == target else {}
        try:
            plan = await scheduler.plan(PlanQuery(pool=pool))
        except Failure as failure:
            self._status_problem = f"no plan of {printable(pool)}: {printable(str(failure))}"
            plan = None
        if plan is not None and plan.target == target:
            started = self.started(pool)
            new = history.planned_times(plan, at=self._clock.now(), started=started)
            kept = {name: times for name, times in kept.items() if name in started} | new
        self._plans[pool] = (target, self._clock.monotonic(), kept)
        self._changed |= set(kept) | set(nodes)
