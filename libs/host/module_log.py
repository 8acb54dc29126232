"""Why the kernel refused modules of the driver, and why GPUs do not start, from its log.

Only the kernel's own records count, not those that a process wrote to `/dev/kmsg`.
"""

import os
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from libs.host.kernel_log import ADDRESS, LOAD_BEGINS, LOADED, PATH, slot_of
from libs.host.tree import Tree

_AT_ONCE: Final = 8192
"""Bytes of a read: no record of `/dev/kmsg` is longer."""
_MOST_READS: Final = 20_000
"""Records of one look: a kernel that logs faster than they are read must not hold the agent."""

_RECORD: Final = re.compile(rb"([0-9]{1,9}),[0-9]{1,19},[0-9]{1,19}[^;]{0,200};(.{0,400})")
_MODULE: Final = rb"nvidia(?:[-_][a-z]{1,20})?: "


class Refusal(StrEnum):
    """Why a module was refused, by the kernel or by itself."""

    KEY = "key"
    KERNEL = "kernel"
    SYMBOL = "symbol"
    NO_GPU = "no-gpu"


_REFUSALS: Final = (
    (Refusal.KEY, re.compile(rb"(?:" + _MODULE + rb")?Loading of .{1,60} is rejected")),
    (Refusal.KEY, re.compile(rb"Lockdown: .{1,40}: unsigned module loading is restricted")),
    (Refusal.KERNEL, re.compile(_MODULE + rb"version magic '")),
    (Refusal.KERNEL, re.compile(_MODULE + rb"disagrees about version of symbol")),
    (Refusal.SYMBOL, re.compile(_MODULE + rb"Unknown symbol .{1,60} \(err -2\)")),
    (Refusal.NO_GPU, re.compile(rb"NVRM: No NVIDIA (?:GPU found|devices probed)")),
    (Refusal.NO_GPU, re.compile(rb"NVRM: None of the NVIDIA devices were initialized")),
)


_GPU: Final = re.compile(rb"NVRM: (?:The NVIDIA )?GPU " + ADDRESS + rb":?(?: |\\x0aNVRM: )(.+)")
_CAUSE: Final = re.compile(rb"NVRM: (\w{1,60}: No firmware image found)")
_REPEATS: Final = b"rm_init_adapter failed"
"""The driver follows the line that has the codes of the error with this one."""
_LINE_END: Final = re.compile(rb"\\x0a(?:NVRM: )?")
"""`/dev/kmsg` writes an end of line within a record so."""
_MOST_QUOTED: Final = 200
"""Bytes of a line that are quoted in a message."""


def unstarted_gpus(lines: Iterable[bytes]) -> dict[str, str]:
    """Return, by PCI slot, what the driver said last of each GPU since its load began."""
    said: dict[str, str] = {}
    cause = b""
    for line in lines:
        record = _RECORD.match(line)
        if record is None or int(record[1]) >> 3:
            continue
        if LOAD_BEGINS.match(record[2]):  # it speaks of such GPUs before `LOADED`
            said, cause = {}, b""
        elif found := _CAUSE.match(record[2]):
            cause = found[1] + b"; "
        elif (found := _GPU.match(record[2])) and not found[2].startswith(_REPEATS):
            text = _quotable(cause + found[2])
            said[slot_of(found[1].decode())], cause = text, b""
    return said


def _quotable(text: bytes) -> str:
    """Return a text of the log as one line that can be printed: what GPUs send may be in it."""
    line = _LINE_END.sub(b" ", text)[:_MOST_QUOTED].decode(errors="backslashreplace").strip()
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def last_refusal(lines: Iterable[bytes], earlier: Refusal | None = None) -> Refusal | None:
    """Return the last refusal since the driver was loaded; `earlier`: that before these lines."""
    for line in lines:
        record = _RECORD.match(line)
        if record is None or int(record[1]) >> 3:
            continue
        if LOADED.match(record[2]):
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

    def unstarted_gpus(self) -> dict[str, str]:
        """Return what is new of GPUs that do not start; nothing if the log cannot be read."""
        try:
            return unstarted_gpus(self._lines())
        except OSError:
            self.close()
            return {}

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
