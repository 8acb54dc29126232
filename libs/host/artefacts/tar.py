"""Members of a tar archive, whose paths are those on the machine."""

import stat
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from libs.host.artefacts.members import (
    READ_ERRORS,
    ArtefactError,
    Count,
    Member,
    chunks_of,
    decompressed,
)

_LONGEST_ENTRY: Final = 1 << 20
"""The most bytes of an entry's headers, such as a long name: tarfile holds all of them in memory,
and an artefact from elsewhere must not fill it.
"""


class _Bounded:
    """An archive whose headers may have 1 MiB each: tarfile reads a header into memory whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _LONGEST_ENTRY

    def allow(self, content: int) -> None:
        """Allow the content of an entry, which is read in chunks, and the next header."""
        self._left = content + _LONGEST_ENTRY

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ArtefactError(f"what it says of a file has more than {_LONGEST_ENTRY >> 20} MiB")
        return data


def members(file: BinaryIO) -> Iterator[Member]:
    """Yield the files and links of an archive, compressed or not."""
    bounded, count, last = _Bounded(decompressed(file)), Count(), ""
    try:
        with tarfile.open(fileobj=cast("BinaryIO", bounded), mode="r|") as archive:
            known = cast("Any", archive).members
            while (entry := archive.next()) is not None:
                known.clear()  # tarfile would keep them all
                count.add()
                last = entry.name
                bounded.allow(entry.size if entry.isreg() else 0)
                if not entry.isdir():
                    yield _member(archive, entry)
    except READ_ERRORS as error:
        what = (
            f"it is damaged after {_path(last)}" if last else "it is no tar archive, or is damaged"
        )
        raise ArtefactError(f"{what}: {error}") from error


def _member(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> Member:
    path = _path(entry.name)
    if entry.issym():
        return Member(path=path, link=entry.linkname)
    if entry.islnk():
        # The other name of a file: a link says the same, and can be taken back.
        return Member(path=path, link=_path(entry.linkname))
    if not entry.isreg():
        raise ArtefactError(f"{path} in it is neither a file nor a link")
    if entry.issparse():
        raise ArtefactError(f"{path} in it is packed as a sparse file: pack it without that")
    content = cast("BinaryIO", archive.extractfile(entry))
    size: Any = entry.size
    return Member(
        path=path,
        mode=stat.S_IMODE(entry.mode),
        content=lambda: chunks_of(content, size, what=path),
    )


def _path(name: str) -> str:
    """Return the path on the machine that a name in an archive means."""
    return f"/{name.removeprefix('./').lstrip('/')}"
