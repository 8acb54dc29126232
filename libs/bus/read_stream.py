"""What a stream has now, read once from its start to its present end."""

import asyncio

from libs.bus.port import Bus, LastPerSubject, StartFrom, StoredMessage
from libs.contracts.subjects import Stream


class _Reading:
    """The messages of one reading; an interruption begins another."""

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []
        self.complete = asyncio.Event()

    # Called by the bus (`Follower`).

    def began(self, _recreated: bool, /) -> None:
        self.messages.clear()

    def received(self, message: StoredMessage) -> None:
        self.messages.append(message)

    def caught_up(self) -> None:
        self.complete.set()

    def lost(self) -> None: ...


async def read_stream(
    bus: Bus, stream: Stream, pattern: str, *, start: StartFrom | None = None
) -> list[StoredMessage]:
    """Return the messages on these subjects, by default the last on each; wait for the bus.

    Raise `BusError` as `follow` does.
    """
    reading = _Reading()
    following = await bus.follow(stream, pattern, reading, start=start or LastPerSubject())
    try:
        await reading.complete.wait()
    finally:
        await following.close()
    return reading.messages
