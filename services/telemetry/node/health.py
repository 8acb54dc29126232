"""Judge the GPUs after each sweep, and report the verdict when it changes.

What is known of the GPUs outlives the agent, in a file beside its journal: an XID is told once, and
an agent that restarts must not forget it. It does not outlive the boot that the file names.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem
from libs.contracts.health import Health
from libs.contracts.telemetry import GpuSample
from libs.health.node import Records, Sweep, after_sweep, node_health
from libs.health.record import GpuRecord, Moment, durable, resumed
from libs.host import modules
from libs.host.kernel_log import SwitchError, slot_of
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

NAME: Final = "health"
_VERSION: Final = 1

_log = logger()


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    health: int
    """The version of the file."""
    boot_id: str
    loaded_at: float
    gpus: Records


class RecordFile:
    """The file with the records. Calls block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tree = Tree(folder)
        self._failed = False

    def read(self, *, boot_id: str) -> tuple[Records, float]:
        """Return the records of this boot, and when their driver was loaded."""
        try:
            data = self._tree.data(f"/{NAME}") if self._folder.exists() else None
            kept = None if data is None else msgspec.json.decode(data, type=_Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.warning(
                "what was known of the GPUs' health cannot be read: XIDs before this start of the"
                " agent are forgotten",
                file=str(self._folder / NAME),
                error=str(error),
            )
            kept = None
        if kept is None or kept.health != _VERSION or kept.boot_id != boot_id:
            return (), 0.0
        return kept.gpus, kept.loaded_at

    def write(self, records: Records, *, boot_id: str, loaded_at: float) -> bool:
        """Replace the file; return False if that is impossible, which is logged once."""
        kept = _Kept(health=_VERSION, boot_id=boot_id, loaded_at=loaded_at, gpus=records)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tree.write(f"/{NAME}", msgspec.json.encode(kept), mode=0o600)
        except OSError as error:
            if not self._failed:
                _log.warning(
                    "what is known of the GPUs' health cannot be written: a restart of the agent"
                    " forgets XIDs",
                    file=str(self._folder / NAME),
                    error=str(error),
                )
            self._failed = True
            return False
        self._failed = False
        return True


class HealthReporter:
    """The verdict on one machine's GPUs during one boot."""

    def __init__(
        self,
        *,
        machine: Machine,
        file: RecordFile,
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
        self._written: Records = ()
        self._loaded_at = 0.0
        self._reported: Health | None = None

    async def open(self) -> None:
        """Read what an earlier process of this boot knew."""
        records, self._loaded_at = await self._machine.offload.run(
            lambda: self._file.read(boot_id=self._boot_id)
        )
        at = self._moment()
        self._records = tuple(resumed(record, at) for record in records)
        self._written = records

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
            xids=self._by_uuid(xids, gpus or ()),
            switch_error=max(fatal, default=None),
            reloaded=bool(loaded_at and self._loaded_at and loaded_at != self._loaded_at),
        )
        self._loaded_at = loaded_at or self._loaded_at
        self._records = after_sweep(self._records, sweep, self._moment())
        await self._keep()
        health = node_health(self._records)
        if health != self._reported and (health.gpus or self._reported):
            self._reported = health
            self._report(health)

    async def _keep(self) -> None:
        records = tuple(map(durable, self._records))
        if records == self._written:
            return
        if await self._machine.offload.run(
            lambda: self._file.write(records, boot_id=self._boot_id, loaded_at=self._loaded_at)
        ):
            self._written = records

    def _by_uuid(
        self, xids: Mapping[str, tuple[int, ...]], gpus: tuple[Gpu, ...]
    ) -> dict[str, tuple[int, ...]]:
        """Name GPUs by UUID where the kernel log named their slot."""
        named: tuple[Gpu | GpuRecord, ...] = (*self._records, *gpus)
        uuids = {slot_of(each.pci): each.uuid for each in named if each.pci and each.uuid}
        found: dict[str, tuple[int, ...]] = {}
        for name, codes in xids.items():
            uuid = uuids.get(name, name)
            found[uuid] = (*found.get(uuid, ()), *codes)
        return found

    def _read_machine(self) -> tuple[float, tuple[SwitchError, ...]]:
        return self._read_load(), self._machine.gpus.switch_errors()

    def _read_load(self) -> float:
        try:
            return modules.driver_loaded_at(self._machine.tree)
        except Unreadable:
            return 0.0

    def _moment(self) -> Moment:
        return Moment(now=self._clock.now(), monotonic=self._clock.monotonic())
