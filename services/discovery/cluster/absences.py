"""For how long something has been missing in the reports about a node.

Time counts only while the reports are current, and only within one boot of the node.
"""

from collections.abc import Mapping

import msgspec

from libs.bus.reports import ReportCache
from libs.runtime.clock import Clock
from services.discovery.cluster.resources import Node


class _Missing(msgspec.Struct):
    boot: tuple[str, str]
    """Node uid and boot id."""
    since: dict[str, tuple[float, float]]
    """By key: the time, and the cache's total of stale seconds then."""


class Absences:
    """Keeps only the nodes of which something is missing."""

    def __init__(self, reports: ReportCache, *, clock: Clock) -> None:
        self._reports = reports
        self._clock = clock
        self._by_node: dict[str, _Missing] = {}

    def update(self, node: Node, keys: frozenset[str]) -> Mapping[str, float]:
        """Return for how many seconds each of these keys has been missing; forget all others."""
        name, now = node.metadata.name, self._clock.monotonic()
        if not keys:
            self.forget(name)
            return {}
        boot = node.metadata.uid, node.status.node_info.boot_id
        missing = self._by_node.get(name)
        if missing is None or missing.boot != boot:
            missing = self._by_node[name] = _Missing(boot, {})
        stale = self._reports.stale_seconds
        missing.since = {key: missing.since.get(key, (now, stale)) for key in keys}
        if self._reports.age:
            return dict.fromkeys(keys, 0.0)  # a newer report may be missed now
        return {
            key: now - since - (stale - stale_then)
            for key, (since, stale_then) in missing.since.items()
        }

    def forget(self, name: str) -> None:
        self._by_node.pop(name, None)
