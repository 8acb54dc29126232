"""Events on the bus: in order, each with a name that it keeps, and never in anybody's way.

What cannot be sent waits; when too much waits, the oldest goes. What happened is not known here.
"""

import asyncio
import random as chance
from collections import deque
from collections.abc import Callable
from typing import Final

from libs.bus.port import Away, Bus, BusError
from libs.contracts import streams, subjects
from libs.contracts.events import Event, EventBody
from libs.contracts.message import encode
from libs.runtime.backoff import Backoff
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

WAITING: Final = 2_000

_log = logger()


class Telling:
    """One writer's events; they are sent while `run` does."""

    def __init__(
        self, *, bus: Bus, clock: Clock, random: chance.Random, dropped: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._random = random
        self._dropped = dropped
        self._waiting: deque[Event] = deque()
        self._there = asyncio.Event()

    def tell(
        self, body: EventBody, *, id: str, message: str, node: str = "", node_uid: str = ""
    ) -> None:
        """`id` is the same for the same event, whoever tells it."""
        event = Event.of(
            body,
            id=id,
            at=self._clock.now(),
            writer=self._bus.identity.writer,
            message=message,
            node=node,
            node_uid=node_uid,
        )
        if len(self._waiting) >= WAITING:
            self._waiting.popleft()
            self._dropped()
        self._waiting.append(event)
        self._there.set()

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(self._random, first=0.5, cap=10.0)
        while True:
            while not self._waiting:
                self._there.clear()
                await self._there.wait()
            event = self._waiting[0]
            try:
                await self._send(event)
            except Away:
                await self._clock.sleep(0.1 + backoff.next())
                continue
            except BusError as error:
                _log.warning("an event was not taken", why=str(error), said=event.message)
                self._dropped()
            backoff.reset()
            if self._waiting and self._waiting[0] is event:
                self._waiting.popleft()

    async def _send(self, event: Event) -> None:
        subject = subjects.Event(
            cluster=self._bus.identity.cluster,
            node=event.node,
            writer=event.writer,
            kind=event.kind,
        )
        await self._bus.store(streams.EVENTS, str(subject), encode(event), id=event.id)
