"""Temporary folders that the next process recognises as left when their owner was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOCK: Final = "owner.lock"


class OwnedFolder:
    """A temporary folder with a lock on a file in it, which ends with this process."""

    def __init__(self, prefix: str) -> None:
        # Until it is locked, another process may take the folder for one that was left.
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            self._lock = (self.path / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.fstat(self._lock.fileno()).st_nlink:
                break
            self._lock.close()

    def remove(self) -> None:
        """Remove the folder; nothing may use it any more."""
        shutil.rmtree(self.path)
        self._lock.close()


def abandoned_folders(prefix: str) -> Iterator[Path]:
    """Yield the folders whose owner has ended, and remove each afterwards."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError), (folder / _LOCK).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield folder
            shutil.rmtree(folder)
