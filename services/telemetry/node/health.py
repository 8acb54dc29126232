"""Judge the GPUs after each sweep, and report the verdict when it changes.

What is known of the GPUs outlives the agent, in a file beside its journal: an XID is told once, and
an agent that restarts must not forget it. It does not outlive the boot that the file names. Those
who offer the GPUs of the machine read the file, and see by its time that they need not judge.
"""

from collections.abc import Callable, Mapping

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem
from libs.contracts.health import Health
from libs.contracts.telemetry import GpuSample
from libs.health.node import Records, Sweep, after_sweep, node_health, with_xids_of
from libs.health.record import durable, resumed
from libs.host.gpus.errors import by_uuid
from libs.host.kernel_log import SwitchError
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from services.health_file import (
    BEAT_EVERY,
    OFFERING,
    DriverLoad,
    HealthFile,
    Kept,
    driver_loaded_at,
    logged_until,
    moment,
)


class HealthReporter:
    """The verdict on one machine's GPUs during one boot."""

    def __init__(
        self,
        *,
        machine: Machine,
        file: HealthFile,
        boot_id: str,
        clock: Clock,
        report: Callable[[Health], None],
    ) -> None:
        self._machine = machine
        self._file = file
        self._boot_id = boot_id
        self._clock = clock
        self._report = report
        self._records: Records = ()
        self._written: Kept | None = None
        self._marked_at = 0.0
        self._load = DriverLoad()
        self._reported: Health | None = None

    async def open(self) -> None:
        """Read what an earlier process of this boot knew."""
        kept, others = await self._machine.offload.run(self._read_kept)
        at = moment(self._clock)
        self._load.at = kept.loaded_at
        records = tuple(resumed(record, at) for record in kept.gpus)
        for other in others:
            records = with_xids_of(records, tuple(resumed(record, at) for record in other.gpus))
        self._records = records
        self._machine.gpus.follow_log(logged_until(kept, *others))

    def _read_kept(self) -> tuple[Kept, tuple[Kept, ...]]:
        """Return what was kept, and what those who offer the GPUs have kept since then.

        The driver tells an XID to the processes that run then, and this one did not.
        """
        marked_at = self._file.marked_at or 0.0
        files = [HealthFile(self._machine.tree, path) for path in OFFERING]
        later = [file for file in files if (file.marked_at or 0.0) > marked_at]
        kept = self._file.read(boot_id=self._boot_id)
        return kept, tuple(file.read(boot_id=self._boot_id) for file in later)

    async def add(
        self,
        gpus: tuple[Gpu, ...] | None,
        samples: tuple[GpuSample, ...],
        problem: GpuProblem | None,
        xids: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Judge a sweep; `gpus` is None if they could not be read, because of `problem` if any."""
        loaded_at, switch_errors = await self._machine.offload.run(self._read_machine)
        fatal = [(error.slot, error.code) for error in switch_errors if error.is_fatal]
        sweep = Sweep(
            gpus=gpus,
            samples=samples,
            problem=problem,
            xids=by_uuid(xids, ((each.pci, each.uuid) for each in (*self._records, *(gpus or ())))),
            switch_error=max(fatal, default=None),
            reloaded=self._load.see(loaded_at),
        )
        self._records = after_sweep(self._records, sweep, moment(self._clock))
        await self._keep()
        health = node_health(self._records)
        if health != self._reported and (health.gpus or self._reported):
            self._reported = health
            self._report(health)

    async def _keep(self) -> None:
        """Write what changed, and mark the file for those who read it."""
        now = self._clock.monotonic()
        kept = Kept(
            loaded_at=self._load.at,
            gpus=tuple(map(durable, self._records)),
            logged_until=self._machine.gpus.logged_until,
        )
        if kept != self._written:
            if await self._machine.offload.run(
                lambda: self._file.write(kept, boot_id=self._boot_id)
            ):
                self._written = kept
        elif now - self._marked_at < BEAT_EVERY:
            return
        at = self._clock.now()
        await self._machine.offload.run(lambda: self._file.mark(at))
        self._marked_at = now

    def _read_machine(self) -> tuple[float, tuple[SwitchError, ...]]:
        return driver_loaded_at(self._machine.tree), self._machine.gpus.switch_errors()
