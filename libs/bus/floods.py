"""Find the connections that send more to NATS than any component of a node does. Pure.

nats-server counts what each connection sends, and does not limit it. A flood costs every reader
CPU and network, even if the messages are dropped unread. `libs.bus.connections` therefore cuts all
connections of the sender, and keeps the sender out for a minute.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from libs.bus.connection_list import Connection, Traffic

MOST_MESSAGES: Final = 500.0
"""Messages in a second, on average between two looks. A component sends a few, and some hundred
where it has much to repeat after an outage."""
MOST_BYTES: Final = 8 * 1024.0 * 1024.0
SHORTEST: Final = 5.0
"""Seconds between two looks that tell a flood from what a component says when it connects."""
QUARANTINE: Final = 60.0
"""Seconds for which a sender is kept out: others have their turn, and a repaired one comes back."""

_Key = tuple[str, int]


class Flood(msgspec.Struct, frozen=True):
    """A connection that sends too much, and what it sends in a second."""

    connection: Connection
    messages: float
    bytes: float


class FloodWatch:
    """Compares what each connection has sent with what it had sent before."""

    def __init__(self) -> None:
        self._before: dict[_Key, Traffic] = {}

    def observe(self, listed: Collection[Traffic]) -> list[Flood]:
        """Return which of these connections flood since they were listed last, or connected."""
        floods: list[Flood] = []
        for now in listed:
            before = self._before.get(now.connection.key)
            seconds = (now.at - (before.at if before else now.connection.start)).total_seconds()
            if seconds < SHORTEST:
                continue
            self._before[now.connection.key] = now
            messages = (now.messages - (before.messages if before else 0)) / seconds
            size = (now.bytes - (before.bytes if before else 0)) / seconds
            if messages > MOST_MESSAGES or size > MOST_BYTES:
                floods.append(Flood(now.connection, messages, size))
        return floods

    def keep(self, open_keys: Collection[_Key]) -> None:
        """Forget the connections that are closed."""
        self._before = {key: each for key, each in self._before.items() if key in open_keys}
