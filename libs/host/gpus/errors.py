"""The XIDs of a machine's GPUs, from NVML and from the kernel log, until they are taken."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from libs.contracts.facts import Gpu
from libs.contracts.gpus import XidCode
from libs.host.gpus.protocol import Event
from libs.host.gpus.xids import XidMerge
from libs.host.kernel_log import KernelLog, SwitchError, Xid, slot_of
from libs.runtime.logs import logger

UNKNOWN: Final = "unknown"
"""Stands for the UUID of a GPU of which neither UUID nor address was ever known."""
MAX_KEPT: Final = 10_000
"""The most XIDs of a GPU that are kept until they are taken."""

_log = logger()


def clock() -> float:
    """Return seconds since boot that no one adjusts, as the kernel log counts them."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


def by_uuid(
    xids: Mapping[str, Sequence[int]], gpus: Iterable[tuple[str, str]]
) -> dict[str, tuple[int, ...]]:
    """Name GPUs by UUID where the kernel log named their slot; `gpus` are addresses and UUIDs."""
    uuids = {slot_of(pci): uuid for pci, uuid in gpus if pci and uuid}
    found: dict[str, tuple[int, ...]] = {}
    for name, codes in xids.items():
        uuid = uuids.get(name, name)
        found[uuid] = (*found.get(uuid, ()), *codes)
    return found


class GpuErrors:
    def __init__(self, log: KernelLog, *, now: Callable[[], float] = clock) -> None:
        self._log = log
        self._now = now
        self._merge = XidMerge()
        self._uuids: dict[str, str] = {}
        """By PCI slot."""
        self._xids: dict[str, list[int]] = {}
        self._switch_errors: list[SwitchError] = []
        self._problem = ""
        self._reads_log = False
        self.logged_until: int | None = None
        """The last record of the kernel log of which `take` returned what it says."""

    def follow_log(self, after: int | None) -> None:
        """Let the kernel log be read after this record; `None`: from the driver's load on."""
        self._log.sequence = self.logged_until = after

    def begin(self) -> None:
        """Let the kernel log be read from now on: it names slots, and GPUs can be found by them."""
        self._reads_log = True

    def learn(self, gpus: Iterable[Gpu]) -> None:
        """Remember which GPU is in which slot; the kernel log names slots."""
        self._uuids |= {slot_of(gpu.pci): gpu.uuid for gpu in gpus if gpu.pci and gpu.uuid}

    def add(self, events: Iterable[Event], gpus: Mapping[int, Gpu]) -> None:
        """Count what NVML reported; `gpus` are those that are known, by index."""
        for event in events:
            gpu = gpus.get(event.gpu)
            slot = slot_of(gpu.pci) if gpu is not None and gpu.pci else ""
            if slot:
                self._merge.add_reported([Xid(slot, event.xid, event.at)])
            code = XidCode(event.xid, event.gpu_instance)
            self._count((gpu.uuid if gpu is not None else "") or slot, code)

    def take(self) -> dict[str, tuple[int, ...]]:
        """Return the XIDs since the last call, by UUID, or by PCI slot where that is not known."""
        self._merge.add_logged(self._read_log())
        for xid in self._merge.take_unreported(self._now()):
            code = XidCode(xid.code, xid.gpu_instance)
            self._count(self._uuids.get(xid.slot, xid.slot), code)
        if self._log.last_error is not None and not self._merge.waits:
            self.logged_until = self._log.last_error
        xids, self._xids = self._xids, {}
        return {uuid: tuple(codes) for uuid, codes in xids.items()}

    def take_switch_errors(self) -> tuple[SwitchError, ...]:
        """Return the errors of NVSwitches that `take` found since the last call."""
        errors, self._switch_errors = self._switch_errors, []
        return tuple(errors)

    def _count(self, uuid: str, code: int) -> None:
        codes = self._xids.setdefault(uuid or UNKNOWN, [])
        if len(codes) < MAX_KEPT:
            codes.append(code)

    def _read_log(self) -> list[Xid]:
        if not self._reads_log:
            return []
        problem, loads = "", self._log.loads
        errors: list[Xid | SwitchError] = []
        try:
            errors = self._log.read()
        except OSError as error:
            problem = str(error)
        if problem and problem != self._problem:
            _log.warning(
                "the kernel log cannot be read: XIDs are counted only while NVML is open",
                error=problem,
            )
        self._problem = problem
        if self._log.loads != loads:
            self._merge.forget_logged()
        for error in errors:
            if isinstance(error, SwitchError):
                if len(self._switch_errors) < MAX_KEPT:
                    self._switch_errors.append(error)
                _log.warning(
                    "an NVSwitch reported an error",
                    pci=error.slot,
                    sxid=error.code,
                    fatal=error.is_fatal,
                    detail=error.text,
                )
        return [error for error in errors if isinstance(error, Xid)]
