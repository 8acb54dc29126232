"""The files of a simulated machine as its kernel and its containers write them: each whole or not.

Must know nothing of what the files mean. Whoever reads goes through `libs.host.tree`.
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class HostTree:
    """A machine's root, to be written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.on_write: Callable[[], None] = _nothing
        """Called when something below the root is other than it was."""

    def at(self, path: str) -> Path:
        """Where that file is for us; no link is followed."""
        return self.root / path.lstrip("/")

    def put(self, path: str, content: str | bytes = "") -> None:
        """A file; a reader sees the old content or the new one."""
        place = self.at(path)
        unfinished = place.with_name(f".{place.name}.unfinished")
        data = content.encode() if isinstance(content, str) else content
        try:
            unfinished.write_bytes(data)
        except FileNotFoundError:
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(data)
        unfinished.replace(place)
        self.on_write()

    def link(self, path: str, target: str) -> None:
        """A link that says what the machine's own would say."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)
        self.on_write()

    def make_folder(self, path: str) -> None:
        """An empty folder, unless there is one."""
        self.at(path).mkdir(parents=True, exist_ok=True)
        self.on_write()

    def set_mtime(self, path: str, at: float) -> None:
        """It was made then, in unix seconds, whatever the clock of this computer says."""
        os.utime(self.at(path), (at, at))
        self.on_write()

    def empty(self, path: str) -> None:
        """The folder stays, and nothing in it."""
        self.remove(path)
        self.make_folder(path)

    def remove(self, path: str) -> None:
        """It is not there any more, at once, with all that is in it."""
        place = self.at(path)
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.exists():
            going = place.with_name(f".{place.name}.going")
            shutil.rmtree(going, ignore_errors=True)
            place.rename(going)
            shutil.rmtree(going)
        self.on_write()

    def break_below(self, path: str) -> None:
        """Nothing below that folder can be read or written, as on a disk that has failed."""
        place = self.at(path)
        if place.is_dir():
            place.rename(_aside(place))
            place.write_bytes(b"")
        self.on_write()

    def repair_below(self, path: str) -> None:
        """What was lost is there again, as it was."""
        place = self.at(path)
        if place.is_file():
            place.unlink()
            os.rename(_aside(place), place)
        self.on_write()


def _nothing() -> None:
    """Nobody wants to know."""


def _aside(place: Path) -> Path:
    return place.with_name(f".{place.name}.lost")
