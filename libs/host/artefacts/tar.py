"""Members of a tar archive, whose paths are those on the machine."""

import stat
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from libs.host.artefacts.members import ArtefactError, Member, chunks_of, decompressed


def members(file: BinaryIO) -> Iterator[Member]:
    """Yield the files and links of an archive, compressed or not."""
    try:
        with tarfile.open(fileobj=decompressed(file), mode="r|") as archive:
            for entry in archive:
                if not entry.isdir():
                    yield _member(archive, entry)
    except tarfile.TarError as error:
        raise ArtefactError(f"it is no tar archive, or a damaged one: {error}") from error


def _member(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> Member:
    path = f"/{entry.name.removeprefix('./').lstrip('/')}"
    if entry.issym():
        return Member(path=path, link=entry.linkname)
    if entry.islnk():
        # The other name of a file: a link says the same, and can be taken back.
        return Member(path=path, link=f"/{entry.linkname.removeprefix('./').lstrip('/')}")
    if not entry.isreg():
        raise ArtefactError(f"{path} in it is neither a file nor a link")
    content = cast("BinaryIO", archive.extractfile(entry))
    size: Any = entry.size
    return Member(
        path=path, mode=stat.S_IMODE(entry.mode), content=lambda: chunks_of(content, size)
    )
