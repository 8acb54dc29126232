"""Keep the streams as the contracts want them: one that was deleted is created again, empty."""

from collections.abc import Iterable
from typing import Final, NoReturn

import msgspec

from libs.bus.port import Bus, BusError
from libs.contracts.subjects import STREAMS, Stream
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

PERIOD: Final = 30.0
"""Seconds between two looks at the streams: a stream that is only written is not missed."""

_log = logger()


def streams_with(replicas: int, *, origin: str = "") -> tuple[Stream, ...]:
    """Return the streams with this number of replicas, which needs as many servers."""
    return tuple(
        msgspec.structs.replace(stream, replicas=replicas, origin=origin) for stream in STREAMS
    )


async def keep_streams(*, bus: Bus, clock: Clock, streams: Iterable[Stream]) -> NoReturn:
    """Ensure each stream again and again; log those that cannot be ensured."""
    while True:
        await clock.sleep(PERIOD)
        for stream in streams:
            try:
                await bus.ensure(stream)
            except BusError as error:
                _log.warning("a stream is not as it should be", stream=stream.name, why=str(error))
