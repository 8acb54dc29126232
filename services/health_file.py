"""The file that keeps what is known of the GPUs' health over restarts of agents, for one boot.

The telemetry agent judges the GPUs and keeps its records here; those who offer GPUs read them, so
that a GPU is failed for all of them at the same time and for the same reason. Where no telemetry
agent judges, they continue from its last records, and keep their own in files of the same kind.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from libs.contracts.identities import Writer
from libs.health.node import Records
from libs.health.record import Moment
from libs.host import modules
from libs.host.files import STATE_ROOT
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

NAME: Final = "health"
SHARED: Final = f"{STATE_ROOT}/{Writer.TELEMETRY.value}/{NAME}"
"""The file of the telemetry agent on its machine."""
OFFERING: Final = tuple(
    f"{STATE_ROOT}/{writer.value}/{NAME}" for writer in (Writer.PLUGIN, Writer.DRA)
)
"""The files of those who offer the GPUs of a machine."""
BEAT_EVERY: Final = 5.0
"""Seconds after which the telemetry agent marks its file anew, though nothing changed."""
CURRENT_FOR: Final = 90.0
"""Seconds without a mark after which nobody judges the GPUs: an agent may sweep once a minute."""
_VERSION: Final = 1

_log = logger()


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the file."""

    health: int = 0
    """The version of the file."""
    boot_id: str = ""
    loaded_at: float = 0.0
    """When the driver was loaded."""
    gpus: Records = ()
    forced: Mapping[str, int] = {}
    """The XID of each GPU that counts by a switch of the device plugin, by UUID."""
    logged_until: int | None = None
    """The record of the kernel log up to which its XIDs are in `gpus`; None: none was read."""
    outdated: float = 0.0
    """The mark of the telemetry agent's file when that agent had judged nothing for too long."""


def logged_until(*kept: Kept) -> int | None:
    """Return from where on the kernel log holds XIDs that none of these has; None: from its load.

    Whoever starts later reads on there: the driver told what came meanwhile to nobody.
    """
    return max((each.logged_until for each in kept if each.logged_until is not None), default=None)


def moment(clock: Clock) -> Moment:
    """Return now by both clocks: that of people, which steps, and that of waits, which does not."""
    return Moment(now=clock.now(), monotonic=clock.monotonic())


def driver_loaded_at(tree: Tree) -> float:
    """Return when the driver was loaded; 0 if that is not known now, which changes nothing."""
    try:
        return modules.driver_loaded_at(tree)
    except Unreadable:
        return 0.0


class DriverLoad:
    """When the driver was loaded, as far as is known: what was before another load is over."""

    def __init__(self) -> None:
        self.at = 0.0

    def see(self, at: float) -> bool:
        """Take what the machine says now; return whether the driver was loaded anew since then."""
        is_anew = bool(at and self.at and at != self.at)
        self.at = at or self.at
        return is_anew


class HealthFile:
    """One file with records. Calls block."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path
        self._name = f"{tree.root.rstrip('/')}{path}"
        self._failed = False

    @classmethod
    def beside_journal(cls, folder: Path) -> "HealthFile":
        """Return the file of the agent whose state is in this folder."""
        return cls(Tree(folder), f"/{NAME}")

    def read(self, *, boot_id: str) -> Kept:
        """Return what is kept of this boot; nothing if it cannot be read."""
        try:
            data = self._tree.data(self._path) if Path(self._tree.root).exists() else None
            kept = None if data is None else msgspec.json.decode(data, type=Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _log.warning(
                "what was known of the GPUs' health cannot be read: XIDs before this start of the"
                " agent are forgotten",
                file=self._name,
                error=str(error),
            )
            kept = None
        if kept is None or kept.health != _VERSION or kept.boot_id != boot_id:
            return Kept()
        return kept

    def write(self, kept: Kept, *, boot_id: str) -> bool:
        """Replace the file; return False if that is impossible, which is logged once."""
        content = msgspec.structs.replace(kept, health=_VERSION, boot_id=boot_id)
        try:
            Path(self._tree.root).mkdir(parents=True, exist_ok=True)
            self._tree.write(self._path, msgspec.json.encode(content), mode=0o600)
        except OSError as error:
            if not self._failed:
                _log.warning(
                    "what is known of the GPUs' health cannot be written: a restart of the agent"
                    " forgets XIDs",
                    file=self._name,
                    error=str(error),
                )
            self._failed = True
            return False
        self._failed = False
        return True

    def mark(self, at: float) -> None:
        """Show that its agent still judges: `at` becomes the file's time."""
        with suppress(OSError):  # a file that cannot be written is logged then
            os.utime(self._name, (at, at))

    @property
    def marked_at(self) -> float | None:
        """The file's time; None if there is no file that can be read."""
        try:
            return self._tree.modified_at(self._path)
        except Unreadable:
            return None
