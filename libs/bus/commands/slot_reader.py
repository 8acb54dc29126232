"""Read the slot of a component, and again while the server's answer lags behind a notification."""

import asyncio
from collections.abc import Callable
from typing import Generic

from libs.bus.port import Bus, BusUnavailable, MessageHandler
from libs.bus.slots import Content, SlotValue, read_slot
from libs.contracts import subjects
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env

READS = 4
"""Reads after which an answer that seems to lag behind is accepted."""


async def watch_notifications(
    *,
    bus: Bus,
    env: Env,
    pattern: str,
    handler: MessageHandler,
    on_subscribed: Callable[[], None],
) -> None:
    """Receive notifications until cancelled; call `on_subscribed` once the subscription is made."""
    backoff = Backoff(env.random)
    while True:
        try:
            subscription = await bus.subscribe(pattern, handler)
            break
        except BusUnavailable:
            await env.clock.sleep(backoff.next())
    try:
        on_subscribed()
        await asyncio.Event().wait()
    finally:
        await subscription.close()


class SlotReader(Generic[Content]):
    """Reads one slot. The caller must not read concurrently."""

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
        """Whether the last two reads returned different messages."""

    def notified(self, data: bytes) -> None:
        """Remember what was written, only to compare it with the next read."""
        self._hint = data

    async def read(self) -> SlotValue[Content] | None:
        """Return what the slot holds, or None for an empty one. Raise `BusError`."""
        pauses = Backoff(self._random, first=0.05, cap=1.0)
        hint, self._hint = self._hint, None
        slot = await read_slot(self._bus, self._slot, self._kind)
        for _ in range(READS - 1):
            if not self._is_behind(slot, hint):
                break
            await self._clock.sleep(pauses.next())
            slot = await read_slot(self._bus, self._slot, self._kind)
        # If it is still behind, the stream was lost and its sequence numbers restarted at 1.
        sequence = slot.sequence if slot else 0
        self.has_changed = self._reads > 0 and sequence != self._sequence
        self._reads += 1
        self._sequence = sequence
        return slot

    def _is_behind(self, slot: SlotValue[Content] | None, hint: bytes | None) -> bool:
        if slot is None:
            return self._sequence > 0 or hint is not None
        if slot.sequence == self._sequence:
            return hint is not None and slot.data != hint
        return slot.sequence < self._sequence
