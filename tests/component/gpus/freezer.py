"""Processes that a kill does not end, as one that waits in a driver."""

import os
import signal
from contextlib import suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup/freezer")
"""Only the first version of control groups keeps a frozen process from being killed."""


class Freezer:
    """A control group. Raises `OSError` where there are none of that kind, or for others."""

    def __init__(self) -> None:
        self._group = GROUPS / f"sluice-test-{os.getpid()}"
        self._group.mkdir()

    def freeze(self, *pids: int) -> None:
        for pid in pids:
            (self._group / "cgroup.procs").write_text(str(pid))
        (self._group / "freezer.state").write_text("FROZEN")

    def thaw(self) -> None:
        (self._group / "freezer.state").write_text("THAWED")

    def remove(self) -> None:
        """End what is left in the group."""
        self.thaw()
        for pid in map(int, (self._group / "cgroup.procs").read_text().split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                (GROUPS / "cgroup.procs").write_text(str(pid))
        self._group.rmdir()
