"""What was last proven on this machine, in a file that outlives boots.

The agent opens the gate for it only while it cannot read its slot (docs/states.md#gate-3). The file
names the node and the machine, because a disk may be moved to another.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from libs.bus.journal import JournalUnusable
from libs.contracts.commands import Command, CommandKind, Idle, Proven
from libs.host import system
from libs.host.machine import Offload
from libs.host.tree import Tree, Unreadable
from libs.runtime.files import replace_file, sync_folder
from libs.runtime.logs import logger

VERSION: Final = 1
"""A file of another version counts as none: the driver is then proven again before it is loaded."""
_MAX_BYTES: Final = 4096
"""Bytes that are read: more than a record has, and a file that grew by damage fills no memory."""

REPLACING: Final = (CommandKind.SWAP, CommandKind.INSTALL)
"""Commands that replace the driver, and open the gate themselves."""

_log = logger()


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    node_uid: str
    hardware: str
    """What names the machine whatever disk it has; empty where nothing does."""
    proven: Proven


class ProofFile:
    """The file. Its methods block."""

    def __init__(self, path: Path, *, tree: Tree, node_uid: str) -> None:
        self._path = path
        self._tree = tree
        self._node_uid = node_uid

    def read(self) -> Proven | None:
        """Return what was proven on this machine, as this node; None if nothing was.

        Raise `OSError` where that cannot be told.
        """
        try:
            with self._path.open("rb") as file:
                record = msgspec.json.decode(file.read(_MAX_BYTES), type=_Record)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreadable(str(self._path), f"it is damaged ({error})") from error
        expected = (VERSION, self._node_uid, system.hardware_id(self._tree))
        found = (record.version, record.node_uid, record.hardware)
        return record.proven if found == expected else None

    def write(self, proven: Proven) -> None:
        """Replace the file; it is on the disk afterwards. Raise `OSError`."""
        record = _Record(
            version=VERSION,
            node_uid=self._node_uid,
            hardware=system.hardware_id(self._tree),
            proven=proven,
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, msgspec.json.encode(record))

    def erase(self) -> None:
        """Remove the file; it is gone from the disk afterwards. Raise `OSError`."""
        with suppress(FileNotFoundError):
            self._path.unlink()
            sync_folder(self._path.parent)


class LastProven:
    """Keeps the file in line with the slot."""

    def __init__(self, file: ProofFile, offload: Offload) -> None:
        self._file = file
        self._offload = offload
        self._kept: Proven | None = None
        self._is_kept = False
        """Whether the disk is known to hold `_kept`."""
        self._problem = ""
        """Why the file cannot be used, as logged."""

    async def read(self) -> Proven | None:
        """Return what was proven here; None if nothing was, or that cannot be told."""
        try:
            return await self._offload.run(self._file.read)
        except OSError as error:
            self._log(error)
            return None

    async def before_start(self, command: Command) -> None:
        """Keep what a command proves; erase what it voids, or raise `JournalUnusable`."""
        body = command.open()
        if isinstance(body, Idle) and body.proven is not None:
            await self.keep(body.proven)
            return
        if not isinstance(body, Idle) and command.kind not in REPLACING:
            return
        try:
            await self._keep(None)
        except OSError as error:
            raise JournalUnusable(
                f"what was last proven on this machine cannot be erased ({error}): make the"
                f" agent's folder writable; the next command tries again"
            ) from error

    def holds(self, proven: Proven | None) -> bool:
        return self._is_kept and self._kept == proven

    async def keep(self, proven: Proven | None) -> None:
        """Let the disk say this; what cannot be written is logged."""
        try:
            await self._keep(proven)
        except OSError as error:
            self._log(error)

    def _log(self, error: OSError) -> None:
        if self._problem != str(error):
            self._problem = str(error)
            _log.warning("the file of what was last proven cannot be used", why=str(error))

    async def _keep(self, proven: Proven | None) -> None:
        self._is_kept = False
        if proven is None:
            await self._offload.run(self._file.erase)
        else:
            await self._offload.run(lambda: self._file.write(proven))
        self._kept, self._is_kept, self._problem = proven, True, ""
