"""Count each XID once, although NVML and the kernel log both report it. Pure.

NVML tells each XID once, but only to a process that has the GPU open. The kernel log has those of
other times too, yet several lines for some of them. So NVML's count is taken as it is, and an XID
of the kernel log is added only if NVML reported no such XID of this GPU within `WINDOW` of it;
several lines within that time are one XID. A line waits for `WINDOW` before it is judged.
"""

from collections.abc import Iterable
from typing import Final

from libs.host.kernel_log import Xid

WINDOW: Final = 10.0
"""Seconds. The two clocks began up to some seconds apart."""
REMEMBERED: Final = 600.0
"""Seconds for which an XID is remembered that was counted."""
MAX_KEPT: Final = 10_000
"""The most lines of the kernel log that wait at a time."""


class XidMerge:
    def __init__(self) -> None:
        self._waiting: list[Xid] = []
        self._reported: dict[tuple[str, int], list[float]] = {}
        """By slot and code: the times of the XIDs that NVML reported lately."""
        self._added: dict[tuple[str, int, int | None], float] = {}
        """By slot, code and instance: the time of the last one taken from the kernel log."""

    def add_reported(self, xids: Iterable[Xid]) -> None:
        """Remember XIDs that NVML reported; they are counted already."""
        for xid in xids:
            self._reported.setdefault((xid.slot, xid.code), []).append(xid.at)

    def add_logged(self, xids: Iterable[Xid]) -> None:
        """Let XIDs of the kernel log wait until they can be judged."""
        self._waiting.extend(xids)
        del self._waiting[:-MAX_KEPT]

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def forget_logged(self) -> None:
        """Drop the lines that wait: they are of an earlier load of the driver."""
        self._waiting = []

    def take_unreported(self, now: float) -> list[Xid]:
        """Return the XIDs of the kernel log that NVML did not report."""
        due = [xid for xid in self._waiting if xid.at < now - WINDOW]
        self._waiting = [xid for xid in self._waiting if xid.at >= now - WINDOW]
        found = [xid for xid in due if self._is_another(xid)]
        oldest = now - REMEMBERED
        self._reported = {
            key: kept
            for key, times in self._reported.items()
            if (kept := [at for at in times if at >= oldest])
        }
        self._added = {key: at for key, at in self._added.items() if at >= oldest}
        return found

    def _is_another(self, xid: Xid) -> bool:
        key = (xid.slot, xid.code, xid.gpu_instance)
        if any(abs(at - xid.at) <= WINDOW for at in self._reported.get(key[:2], ())):
            return False
        last = self._added.get(key)
        if last is not None and xid.at - last <= WINDOW:
            return False
        self._added[key] = xid.at
        return True
