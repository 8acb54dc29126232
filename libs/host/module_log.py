"""Why the kernel refused modules of the driver, from its log.

Only the kernel's own records count, not those that a process wrote to `/dev/kmsg`.
"""

import os
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from libs.host.kernel_log import PATH
from libs.host.tree import Tree

_AT_ONCE: Final = 8192
"""Bytes of a read: no record of `/dev/kmsg` is longer."""
_MOST_READS: Final = 20_000

_RECORD: Final = re.compile(rb"([0-9]{1,9}),[0-9]{1,19},[0-9]{1,19}[^;]{0,200};(.{0,400})")
_MODULE: Final = rb"nvidia(?:[-_][a-z]{1,20})?: "


class Refusal(StrEnum):
    """Why a module was refused."""

    KEY = "key"
    KERNEL = "kernel"


_LOADED: Final = re.compile(rb"NVRM: loading NVIDIA")
_REFUSALS: Final = (
    (Refusal.KEY, re.compile(rb"(?:" + _MODULE + rb")?Loading of .{1,60} is rejected")),
    (Refusal.KEY, re.compile(rb"Lockdown: .{1,40}: unsigned module loading is restricted")),
    (Refusal.KERNEL, re.compile(_MODULE + rb"version magic '")),
    (Refusal.KERNEL, re.compile(_MODULE + rb"disagrees about version of symbol")),
)


def last_refusal(lines: Iterable[bytes], earlier: Refusal | None = None) -> Refusal | None:
    """Return the last refusal since the driver was loaded; `earlier`: that before these lines."""
    for line in lines:
        record = _RECORD.match(line)
        if record is None or int(record[1]) >> 3:
            continue
        if _LOADED.match(record[2]):
            earlier = None
        for refusal, pattern in _REFUSALS:
            if pattern.match(record[2]):
                earlier = refusal
    return earlier


class ModuleLog:
    """Reads the kernel log from its begin, without waiting, and then what is new in it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._file: int | None = None
        self._refusal: Refusal | None = None
        self.is_readable = False

    def refusal(self) -> Refusal | None:
        """Return why a module of the driver was refused, since one was loaded; None: none was."""
        try:
            lines = self._lines()
        except OSError:
            self.close()
            lines = []
        self._refusal = last_refusal(lines, self._refusal)
        return self._refusal

    def close(self) -> None:
        self.is_readable = False
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lines(self) -> list[bytes]:
        if self._file is None:
            path = self._tree.real_path(PATH)
            if path is None:
                return []
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        data = b""
        for _ in range(_MOST_READS):
            try:
                chunk = os.read(self._file, _AT_ONCE)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # records were overwritten; the next read returns the oldest one
            if not chunk:
                break
            data += chunk
        self.is_readable = True
        return data.splitlines()
