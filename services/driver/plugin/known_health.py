"""What is known against the GPUs of a node, by the telemetry agent or, where none judges, by us.

One agent judges, so that a GPU is failed for its Device, the scheduler and the kubelet at the same
time and for the same reason. That is the telemetry agent, which measures all values. Where a fleet
has none, or while it is away, this process continues from its last records with sweeps of its own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from libs.health.node import Sweep
from libs.health.record import Moment, durable, resumed
from libs.host.machine import Machine
from services.driver.plugin.sickness import Sickness, XidSwitches
from services.health_file import (
    BEAT_EVERY,
    CURRENT_FOR,
    SHARED,
    DriverLoad,
    HealthFile,
    Kept,
    logged_until,
)

if TYPE_CHECKING:
    from libs.contracts.facts import Gpu

XID_GRACE: Final = 5.0
"""Seconds by which the telemetry agent may learn of an XID later than this process."""


class KnownHealth:
    """`own` is the file of this process. Calls block."""

    def __init__(
        self, *, machine: Machine, own: HealthFile, boot_id: str, xids: XidSwitches
    ) -> None:
        self._log = machine.gpus
        self._shared = HealthFile(machine.tree, SHARED)
        self._own = own
        self._boot_id = boot_id
        self._xids = xids
        self._sickness = Sickness()
        self._gpus: Sequence[Gpu] = ()
        """As they were listed last."""
        self._written = Kept()
        self._load = DriverLoad()
        self._mark: float | None = None
        """The time of the telemetry agent's file."""
        self._seen_at = 0.0
        """When that changed, by the clock of this process: hosts' clocks step."""
        self._outdated: float | None = None
        """The mark of a file whose agent judges no more."""
        self._judged = Kept()
        """The content of the file."""
        self._recent: list[tuple[float, str, int]] = []
        """XIDs that the telemetry agent may not have learnt of yet: when they came, GPU, number."""

    def open(self, at: Moment) -> None:
        """Read what an earlier process of this boot knew."""
        self._written = kept = self._own.read(boot_id=self._boot_id)
        records = tuple(resumed(record, at) for record in kept.gpus)
        self._sickness = Sickness(records=records, forced=kept.forced)
        self._load.at = kept.loaded_at
        self._outdated = kept.outdated or None
        self._log.follow_log(logged_until(kept, self._shared.read(boot_id=self._boot_id)))

    def is_judged(self, at: Moment) -> bool:
        """Look whether the telemetry agent judges; if not, sweeps of ours need samples."""
        mark = self._shared.marked_at
        if mark is None or mark == self._outdated:
            return False
        if mark != self._mark:
            self._mark, self._seen_at = mark, at.monotonic
            self._judged = self._shared.read(boot_id=self._boot_id)
        if not self._judged.boot_id:
            return False  # of an earlier boot, or unreadable
        if at.monotonic - self._seen_at > CURRENT_FOR:
            self._outdated = mark
            return False
        return True

    def judge(self, sweep: Sweep, at: Moment, *, loaded_at: float) -> None:
        """Take a sweep into account; `loaded_at` is when the driver was loaded, 0: unknown."""
        reloaded = self._load.see(loaded_at)
        sweep = replace(sweep, reloaded=reloaded)
        if reloaded:
            self._recent = []
        if self.is_judged(at):
            records = tuple(resumed(record, at) for record in self._judged.gpus)
            self._sickness = replace(self._sickness, records=records)
            sweep = replace(sweep, xids=self._unjudged(sweep.xids, at))
        self._gpus = self._gpus if sweep.gpus is None else sweep.gpus
        self._sickness = self._sickness.after(sweep, at, self._xids)
        self._keep()

    def reasons(self) -> dict[str, str]:
        """Return why GPUs and MIG devices are not to be used, by UUID."""
        return self._sickness.reasons(self._xids, self._gpus)

    def _unjudged(
        self, xids: Mapping[str, Sequence[int]], at: Moment
    ) -> dict[str, tuple[int, ...]]:
        """Return the XIDs of late, until the telemetry agent has judged for a while after them."""
        self._recent += [
            (at.monotonic, uuid, code) for uuid, codes in xids.items() for code in codes
        ]
        self._recent = [
            each for each in self._recent if each[0] + XID_GRACE + BEAT_EVERY > self._seen_at
        ]
        found: dict[str, tuple[int, ...]] = {}
        for _, uuid, code in self._recent:
            found[uuid] = (*found.get(uuid, ()), code)
        return found

    def _keep(self) -> None:
        kept = Kept(
            loaded_at=self._load.at,
            gpus=tuple(map(durable, self._sickness.records)),
            forced=self._sickness.forced,
            logged_until=self._log.logged_until,
            outdated=self._outdated or 0.0,
        )
        written = replace(self._written, health=0, boot_id="")
        if kept != written and self._own.write(kept, boot_id=self._boot_id):
            self._written = kept


def known_health(
    machine: Machine, state_dir: Path, *, boot_id: str, xids: XidSwitches
) -> KnownHealth:
    """Return what is known on this machine; `state_dir` has this process's own file."""
    own = HealthFile.beside_journal(state_dir)
    return KnownHealth(machine=machine, own=own, boot_id=boot_id, xids=xids)
