"""Publish pages of a component's journal, as the scheduler's checks for the audit ask for them.

Pages are neither stored nor repeated: what is lost is asked for again. Their size and their rate
have limits, because a whole fleet may be asked.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from libs.bus.journal import JournalUnusable, OpHistory
from libs.bus.port import Bus
from libs.contracts import subjects
from libs.contracts.commands import Check, JournalCheck
from libs.contracts.journal import Entry, JournalPage
from libs.contracts.message import encode
from libs.runtime.clock import Clock

PAGE_BYTES: Final = 32 * 1024
"""Bytes of entries in a page: those of all components of a node fit into one message."""

PAUSE: Final = 0.1
"""Seconds between two pages."""

_MAX_DETAIL: Final = 1_000
"""Characters of the detail of an entry that alone would fill a page."""


class JournalPages:
    """Answers the checks for the journal of one component."""

    def __init__(self, *, bus: Bus, clock: Clock, history: OpHistory, boot_id: str) -> None:
        identity = bus.identity
        self._bus = bus
        self._clock = clock
        self._history = history
        self._empty = JournalPage(
            node=identity.node,
            node_uid=history.seen.node_uid,
            boot_id=boot_id,
            component=identity.writer,
            check="",
        )
        self._subject = str(
            subjects.Journal(
                cluster=identity.cluster, node=identity.node, component=identity.writer
            )
        )

    async def answer(self, check: Check, refusal: str) -> None:
        """Publish the page that a check asks for, or why it gets none. Raise `BusError`."""
        page = replace(self._empty, check=check.id, problem=refusal)
        if not refusal:
            page = await self._page(page, check)
        await self._bus.publish(self._subject, encode(page))
        await self._clock.sleep(PAUSE)

    async def _page(self, page: JournalPage, check: Check) -> JournalPage:
        body = check.open()
        if not isinstance(body, JournalCheck):
            return replace(page, problem=f"check {check.kind}: only journals are handed over here")
        try:
            content = await self._history.read()
        except JournalUnusable as error:
            return replace(page, problem=str(error))
        entries = fill_page(content.entries[body.after :])
        end = body.after + len(entries)
        return replace(
            page,
            entries=entries,
            next=end if end < len(content.entries) else None,
            complete_since=content.complete_since,
        )


def fill_page(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the first entries, as many as a page has room for, and at least one."""
    room, page = PAGE_BYTES, list[Entry]()
    for each in entries:
        entry, size = each, len(encode(each)) + 1
        if size > PAGE_BYTES:
            entry = replace(each, detail=each.detail[:_MAX_DETAIL])
            size = len(encode(entry)) + 1
        if size > room and page:
            break
        page.append(entry)
        room -= size
    return tuple(page)
