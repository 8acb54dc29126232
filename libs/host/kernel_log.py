"""The errors of GPUs and NVSwitches in the kernel log: XIDs and SXids.

Only the kernel's own records count, not those that a process wrote to `/dev/kmsg`.
"""

import errno
import os
import re
from typing import Final

import msgspec

from libs.host.tree import Tree

PATH: Final = "/dev/kmsg"
_LONGEST: Final = 8192
"""Bytes of a record; the kernel gives none out to a buffer that is too small."""
_RECORDS_AT_ONCE: Final = 20_000
"""Records of one look: a kernel that logs faster than they are read must not hold the agent."""

_RECORD: Final = re.compile(rb"([0-9]{1,9}),([0-9]{1,19}),([0-9]{1,19})[^;]{0,200};([^\n]*)")
ADDRESS: Final = rb"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
"""A PCI address in the driver's messages; its group is for `slot_of`."""
_XID: Final = re.compile(
    rb"NVRM: Xid \((?:PCI:)?"
    + ADDRESS
    + rb"(?: GPU-I:([0-9]{1,3})(?![0-9]))?[^)]{0,40}\): ([0-9]{1,6})\b"
)
_SXID: Final = re.compile(
    rb"nvidia-nvswitch[0-9]{1,4}: SXid \(PCI:"
    + ADDRESS
    + rb"\): ([0-9]{1,6}), (Fatal|Non-fatal), (.{0,200})"
)
"""The driver follows each error with lines of detail, which name no such severity."""
LOAD_BEGINS: Final = re.compile(rb"nvidia-nvlink: Nvlink Core is being initialized")
"""The driver's first words of each load."""
LOADED: Final = re.compile(rb"NVRM: loading NVIDIA")


class Xid(msgspec.Struct, frozen=True):
    """An error of a GPU."""

    slot: str
    """Its PCI slot, as `slot_of` returns it."""
    code: int
    at: float
    """Seconds since boot, by the kernel log's clock."""
    gpu_instance: int | None = None
    """The one to which the driver attributes it; None: the whole GPU."""


class SwitchError(msgspec.Struct, frozen=True):
    """An error of an NVSwitch (SXid)."""

    slot: str
    code: int
    is_fatal: bool
    text: str
    at: float


class Record(msgspec.Struct, frozen=True):
    sequence: int
    error: Xid | SwitchError | None
    is_load: bool = False
    """The driver is being loaded."""


def slot_of(address: str) -> str:
    """Return a PCI address without its function, as the kernel writes it: `0000:41:00`."""
    domain, bus, device = address.lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{device[:2]}"


def parse(data: bytes) -> Record | None:
    """Return a record of `/dev/kmsg`; None for what is none."""
    found = _RECORD.match(data)
    if found is None:
        return None
    level, sequence, microseconds = (int(found[number]) for number in (1, 2, 3))
    is_of_the_kernel = level >> 3 == 0
    if not is_of_the_kernel:
        return Record(sequence, None)
    is_load = LOAD_BEGINS.match(found[4]) or LOADED.match(found[4])
    return Record(sequence, _error(found[4], microseconds / 1e6), is_load is not None)


def _error(text: bytes, at: float) -> Xid | SwitchError | None:
    if xid := _XID.match(text):
        instance = None if xid[2] is None else int(xid[2])
        return Xid(slot_of(xid[1].decode()), int(xid[3]), at, instance)
    if sxid := _SXID.match(text):
        return SwitchError(
            slot=slot_of(sxid[1].decode()),
            code=int(sxid[2]),
            is_fatal=sxid[3] == b"Fatal",
            text=sxid[4].decode(errors="replace"),
            at=at,
        )
    return None


class KernelLog:
    """Reads what is new in the kernel log, without waiting.

    It begins after the record `after`, if that is known from an earlier run in the same boot, and
    otherwise with what the log still holds. What it says of an earlier load of the driver counts
    no more.
    """

    def __init__(self, tree: Tree, *, after: int | None = None) -> None:
        self._tree = tree
        self._file: int | None = None
        self.sequence = after
        self.last_error: int | None = None
        """The last record that is an error."""
        self.loads = 0
        """How often a load of the driver began in what was read."""
        self.missed = 0
        """Records that the kernel overwrote before they were read."""

    def read(self) -> list[Xid | SwitchError]:
        """Return the errors since the last call, and since the driver's load began.

        Raise `OSError` if the log cannot be read.
        """
        if self._file is None:
            self._file = self._open()
        errors: list[Xid | SwitchError] = []
        for _ in range(_RECORDS_AT_ONCE):
            try:
                data = os.read(self._file, _LONGEST)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    self.close()
                    raise
                continue  # records were overwritten; the next read returns the oldest one
            if not data:
                break
            if (record := parse(data)) is None or not self._is_new(record):
                continue
            if record.is_load:
                self.loads += 1
                errors.clear()
            elif record.error is not None:
                self.last_error = record.sequence
                errors.append(record.error)
        return errors

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> int:
        path = self._tree.real_path(PATH)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), PATH)
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def _is_new(self, record: Record) -> bool:
        last, self.sequence = self.sequence, max(record.sequence, self.sequence or 0)
        if last is None:
            return True
        self.missed += max(0, record.sequence - last - 1)
        return record.sequence > last
