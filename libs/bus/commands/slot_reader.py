"""One slot, as its owner reads it: again after a poke, until it sees what the poke was about.

A read may be answered by a server that lags behind. What a slot says is not looked at here.
"""

import asyncio
from collections.abc import Callable
from typing import Generic

from libs.bus.port import Bus, BusUnavailable, MessageHandler
from libs.bus.slots import Content, SlotValue, read_slot
from libs.contracts import subjects
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env

READS = 4
"""How often a slot is read before what is there is believed to be all."""


async def watch_notifications(
    *,
    bus: Bus,
    env: Env,
    pattern: str,
    handler: MessageHandler,
    on_subscribed: Callable[[], None],
) -> None:
    """Hear pokes until cancelled; `began` is called once, when what comes from now on is heard."""
    backoff = Backoff(env.random)
    while True:
        try:
            pokes = await bus.subscribe(pattern, handler)
            break
        except BusUnavailable:
            await env.clock.sleep(backoff.next())
    try:
        on_subscribed()
        await asyncio.Event().wait()
    finally:
        await pokes.close()


class SlotReader(Generic[Content]):
    """Reads one slot, one read at a time by its caller's care."""

    def __init__(
        self,
        *,
        bus: Bus,
        env: Env,
        slot: subjects.Slot,
        kind: type[Content],
    ) -> None:
        self._bus = bus
        self._clock = env.clock
        self._random = env.random
        self._slot = slot
        self._kind: type[Content] = kind
        self._hint: bytes | None = None
        self._sequence = 0
        self._reads = 0
        self.has_changed = False
        """Whether the last read found another message than the one before it."""

    def notified(self, data: bytes) -> None:
        """Something was written. It is compared with what is read later, and never acted on."""
        self._hint = data

    async def read(self) -> SlotValue[Content] | None:
        """What the slot holds now; raises what the bus raises."""
        pauses = Backoff(self._random, first=0.05, cap=1.0)
        hint, self._hint = self._hint, None
        slot = await read_slot(self._bus, self._slot, self._kind)
        for _ in range(READS - 1):
            if not self._behind(slot, hint):
                break
            await self._clock.sleep(pauses.next())
            slot = await read_slot(self._bus, self._slot, self._kind)
        # Still behind: the stream was lost, and counts from 1 again.
        sequence = slot.sequence if slot else 0
        self.has_changed = self._reads > 0 and sequence != self._sequence
        self._reads += 1
        self._sequence = sequence
        return slot

    def _behind(self, slot: SlotValue[Content] | None, hint: bytes | None) -> bool:
        if slot is None:
            return self._sequence > 0 or hint is not None
        if slot.sequence == self._sequence:
            return hint is not None and slot.data != hint
        return slot.sequence < self._sequence
