"""Collect the journals of a node's agents for an audit: by a read-only check to each, page by page.

Nothing is kept: a page is passed on to the person who asked. The checks have slots of their own, so
that they replace no preflight check; an agent that does not answer costs only its own page.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from libs.bus.heartbeats import HeartbeatMonitor, LastBeat
from libs.bus.port import Bus, BusError
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import CheckKind, JournalCheck
from libs.contracts.identities import COMPONENTS
from libs.contracts.journal import JournalPage
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.numbers import Count
from libs.contracts.queries import (
    JournalAnswer,
    JournalPart,
    JournalQuery,
    QueryError,
    QueryErrorCode,
)
from libs.contracts.words import format_duration
from libs.rollout.views.node import NodeView
from libs.runtime.env import Env
from libs.runtime.logs import logger

SECONDS: Final = 10.0
"""Seconds in which an agent answers."""
REPEAT_SECONDS: Final = 4.0
"""Seconds after which a check is sent once more: a notification may be lost."""
CONCURRENT: Final = 2
"""Nodes that are asked at a time, which leaves room for other queries."""

_BUSY: Final = "other journals are being collected: ask again"

_log = logger()


class JournalCollector:
    """Answers the query `journal`, while `follow` is entered."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        reports: ReportCache,
        heartbeats: HeartbeatMonitor,
        slot_cache: SlotCache,
        find_node: Callable[[str], NodeView | None],
    ) -> None:
        self._bus = bus
        self._ids = env.ids
        self._reports = reports
        self._heartbeats = heartbeats
        self._slot_cache = slot_cache
        self._find_node = find_node
        self._cluster = bus.identity.cluster
        self._slots = SlotWriter(bus=bus, clock=env.clock)
        self._waiting: dict[str, tuple[str, asyncio.Future[JournalPage]]] = {}
        """By id of a check: the subject of the answer, and who waits for it."""
        self._nodes = 0

    @asynccontextmanager
    async def follow(self) -> AsyncGenerator[None]:
        """Receive the agents' answers until the end of the block."""
        pattern = subjects.cluster_pattern(subjects.Journal, self._cluster)
        following = await self._bus.subscribe(pattern, self._received)
        try:
            yield
        finally:
            await following.close()

    async def answer(self, query: JournalQuery) -> JournalAnswer | QueryError:
        """Return a page of each journal of a node; what cannot be had says why."""
        node = self._find_node(query.node)
        if node is None:
            message = f"Node {query.node!r} not found, or it has no GPUs"
            return QueryError(code=QueryErrorCode.NOT_FOUND, message=message)
        if unknown := ", ".join(query.after.keys() - set(COMPONENTS)):
            message = f"no component of a node is named {unknown}"
            return QueryError(code=QueryErrorCode.UNREADABLE, message=message)
        if self._nodes >= CONCURRENT:
            return QueryError(code=QueryErrorCode.NOT_READY, message=_BUSY)
        self._nodes += 1
        try:
            wanted = query.after or dict.fromkeys(self._components(node.name), 0)
            parts = await asyncio.gather(
                *(self._part(node, each, after) for each, after in sorted(wanted.items()))
            )
        finally:
            self._nodes -= 1
        return JournalAnswer(node=node.name, node_uid=node.uid, parts=tuple(parts))

    def _components(self, node: str) -> list[str]:
        """Return the components of which a heartbeat, a report or a command is known."""
        known = {subject.component for subject, _ in self._reports.reports(node)}
        known |= self._slot_cache.commands_of(node).keys()
        return [
            str(each) for each in COMPONENTS if each in known or self._heartbeats.last(node, each)
        ]

    async def _part(self, node: NodeView, component: str, after: Count) -> JournalPart:
        part = JournalPart(component=component)
        beat = self._heartbeats.last(node.name, component)
        if problem := self._unanswerable(node, component, beat):
            return replace(part, problem=problem)
        try:
            page = await self._ask(node, component, after)
        except TimeoutError:
            return replace(part, problem=f"the agent did not answer within {SECONDS:g} s")
        except BusError as error:
            return replace(part, problem=f"the agent could not be asked: {error}")
        if any((each.node, each.component) != (node.name, component) for each in page.entries):
            return replace(part, problem="the answer has entries of another agent")
        return replace(
            part,
            entries=page.entries,
            next=page.next if page.next is not None and page.next > after else None,
            complete_since=page.complete_since,
            problem=page.problem,
        )

    def _unanswerable(self, node: NodeView, component: str, beat: LastBeat | None) -> str:
        """Return why a check would not be answered; empty where it may be."""
        if self._heartbeats.is_silent(node.name, component):
            since = "" if beat is None else f", for {format_duration(beat.age)}"
            return f"the agent is silent{since}"
        if beat is not None and CheckKind.JOURNAL.value not in beat.beat.knows:
            release = beat.beat.release or "an earlier release"
            return f"the agent is of {release}, which hands over no journal: upgrade it"
        return ""

    async def _ask(self, node: NodeView, component: str, after: Count) -> JournalPage:
        """Return the agent's answer. Raise `BusError`, or `TimeoutError` if there is none."""
        scope = {"cluster": self._cluster, "node": node.name, "component": component}
        slot = subjects.Check(**scope, asker=subjects.AUDIT)
        check, page = self._ids.new(), asyncio.get_running_loop().create_future()
        self._waiting[check] = str(subjects.Journal(**scope)), page
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    await self._slots.put_check(
                        slot,
                        JournalCheck(after=after),
                        id=check,
                        node_uid=node.uid,
                        boot_id=node.boot_id,
                    )
                    await asyncio.wait({page}, timeout=REPEAT_SECONDS)
                    if page.done():
                        return page.result()
        finally:
            del self._waiting[check]
            page.cancel()

    def _received(self, subject: str, data: bytes, _reply: str) -> None:
        """Pass a page on to who waits for it, if it is of the agent that was asked."""
        if len(data) > subjects.Journal.max_message:
            _log.warning("a page of a journal is too large", subject=subject, bytes=len(data))
            return
        try:
            page = decode(JournalPage, data)
        except MalformedMessage as error:
            _log.warning("a page of a journal cannot be read", subject=subject, why=str(error))
            return
        asked, waiting = self._waiting.get(page.check, ("", None))
        if waiting is not None and subject == asked and not waiting.done():
            waiting.set_result(page)
