"""Which telemetry agents have stopped sending heartbeats.

Verdicts of an agent that is silent are no longer known to be true.
"""

from collections.abc import Callable, Iterable
from typing import Final

from libs.bus.heartbeats import HeartbeatMonitor
from libs.contracts.identities import Writer
from libs.runtime.clock import Clock

_CHECK: Final = 15.0
"""Seconds between two looks at all nodes."""


class TelemetrySilence:
    """Each node's agent, for one term of leadership."""

    def __init__(self, beats: HeartbeatMonitor, *, clock: Clock) -> None:
        self._beats = beats
        self._clock = clock
        self._seen: dict[str, bool | None] = {}

    def of(self, node: str) -> bool | None:
        """Return whether the agent is silent; None while that is not known yet."""
        if self._beats.is_silent(node, Writer.TELEMETRY):
            return True
        return None if self._beats.last(node, Writer.TELEMETRY) is None else False

    def forget(self, node: str) -> None:
        self._beats.forget(node)
        self._seen.pop(node, None)

    async def watch(
        self, nodes: Callable[[], Iterable[str]], changed: Callable[[str], None]
    ) -> None:
        """Call `changed` for each node whose agent falls silent or is heard again."""
        while True:
            for node in nodes():
                now = self.of(node)
                if self._seen.get(node) is not now:
                    self._seen[node] = now
                    changed(node)
            await self._clock.sleep(_CHECK)
