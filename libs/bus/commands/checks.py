"""Answer the checks that a component receives, each once: with a report, or a page of the journal.

Checks are read-only, need no order and run beside any op. An exception of a handler is a defect
and ends the component.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from typing import TypeAlias

from libs.bus.commands.journal_pages import JournalPages
from libs.bus.port import Bus, BusError
from libs.bus.reporter import RECONNECT_SPREAD, Reporter
from libs.bus.slots import SlotReader, SlotValue, watch_notifications
from libs.contracts import subjects
from libs.contracts.admission import is_for
from libs.contracts.commands import CHECKS, Check, CheckBody, CheckKind
from libs.contracts.identities import CHECK_SENDERS
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import Holders, Preflight, Refusal, RefusalCode
from libs.runtime.clock import Backoff
from libs.runtime.env import Env
from libs.runtime.tasks import wait_up_to

CheckAnswer: TypeAlias = Holders | Preflight
CheckHandler: TypeAlias = Callable[[Check, CheckBody], Awaitable[CheckAnswer]]


class CheckReceiver:
    """Read one slot per asker on start, on notification and on reconnect."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        reporter: Reporter,
        node_uid: str,
        boot_id: str,
        handlers: Mapping[CheckKind, CheckHandler],
        pages: JournalPages,
    ) -> None:
        self._env = env
        self._bus = bus
        self._random = env.random
        self._reporter = reporter
        self._clock = env.clock
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._handlers = handlers
        self._pages = pages
        askers = (*map(str, CHECK_SENDERS), subjects.AUDIT)
        self._readers = {
            asker: SlotReader(bus=bus, env=env, slot=self._slot(asker), kind=Check)
            for asker in askers
        }
        self._changed = {asker: asyncio.Event() for asker in askers}

    async def run(self) -> None:
        unwatch = self._bus.link.watch(self._link_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(
                    watch_notifications(
                        bus=self._bus,
                        env=self._env,
                        pattern=subjects.notify(self._slot(subjects.ANY)),
                        handler=self._notified,
                        on_subscribed=self._wake_all,
                    ),
                    name="notifications of checks",
                )
                for asker in CHECK_SENDERS:
                    tasks.create_task(self._serve(asker), name=f"checks of {asker}")
                tasks.create_task(self._serve_audit(), name="checks of the audit")
        finally:
            unwatch()

    def _link_changed(self, up: bool) -> None:
        if up:
            spread = self._random.uniform(0.0, RECONNECT_SPREAD)
            asyncio.get_running_loop().call_later(spread, self._wake_all)

    async def _serve(self, asker: str) -> None:
        changed, reader = self._changed[asker], self._readers[asker]
        backoff = Backoff(self._random)
        answered = ""
        while True:
            await changed.wait()
            changed.clear()
            try:
                slot = await reader.read()
            except BusError:
                await wait_up_to(backoff.next(), changed)
                changed.set()
                continue
            backoff.reset()
            key = slot and (slot.content.id if slot.content else slot.malformed)
            if slot and key and key != answered:
                self._reporter.report(await self._answer(slot), asker=asker)
                answered = key

    async def _serve_audit(self) -> None:
        """Answer checks for the journal. A failed one is not retried: it is sent again."""
        changed, reader = self._changed[subjects.AUDIT], self._readers[subjects.AUDIT]
        answered = ""
        while True:
            await changed.wait()
            changed.clear()
            with suppress(BusError):
                slot = await reader.read()
                check = slot and slot.content
                if check and check.id != answered:
                    refusal = self._find_refusal(check, (CheckKind.JOURNAL,))
                    await self._pages.answer(check, refusal[1] if refusal else "")
                    answered = check.id

    async def _answer(self, slot: SlotValue[Check]) -> CheckAnswer | Refusal:
        check = slot.content
        if check is None:
            return Refusal(code=RefusalCode.UNREADABLE, message=slot.malformed)
        refusal = self._find_refusal(check, self._handlers)
        if refusal is None:
            try:
                async with asyncio.timeout(self._seconds_left(check)):
                    return await self._handlers[check.kind](check, check.open())
            except TimeoutError:
                message = f"{check.kind}: it expired before it was answered; send a new check"
                refusal = RefusalCode.EXPIRED, message
        code, message = refusal
        return Refusal(code=code, message=message, check=check.id, command=check.kind)

    def _find_refusal(
        self, check: Check, answered: Container[CheckKind]
    ) -> tuple[RefusalCode, str] | None:
        node = self._bus.identity.node
        if not is_for(check, node=node, node_uid=self._node_uid):
            message = (
                f"the check is for node {check.node} with uid {check.node_uid}, but this is"
                f" {node} with uid {self._node_uid}"
            )
            return RefusalCode.OTHER_NODE, message
        if check.boot_id != self._boot_id:
            message = f"the check is for boot {check.boot_id}, but this is boot {self._boot_id}"
            return RefusalCode.OTHER_BOOT, message
        if check.kind not in CHECKS.kinds:
            message = f"check {check.kind}: this release supports only {', '.join(CHECKS.kinds)}"
            return RefusalCode.UNKNOWN_KIND, message
        if check.kind not in answered:
            message = f"check {check.kind}: {self._bus.identity.writer} does not answer it"
            return RefusalCode.NOT_FOR_ME, message
        if self._seconds_left(check) <= 0:
            message = f"check {check.kind}: it expired before it was read"
            return RefusalCode.EXPIRED, message
        try:
            check.open()
        except MalformedMessage as error:
            return RefusalCode.UNREADABLE, str(error)
        return None

    def _seconds_left(self, check: Check) -> float:
        """Return how long a check that was read now may take: each is answered once."""
        return check.valid_seconds or check.expires - self._clock.now()

    def _slot(self, asker: str) -> subjects.Check:
        identity = self._bus.identity
        return subjects.Check(
            cluster=identity.cluster, node=identity.node, component=identity.writer, asker=asker
        )

    def _notified(self, subject: str, data: bytes, _reply: str) -> None:
        with suppress(subjects.NotASubject):
            slot = subjects.slot_of(subject)
            if isinstance(slot, subjects.Check) and slot.asker in self._changed:
                self._readers[slot.asker].notified(data)
                self._changed[slot.asker].set()

    def _wake_all(self) -> None:
        for asker in CHECK_SENDERS:
            self._changed[asker].set()
