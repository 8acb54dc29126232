"""Members of a Debian package: of the tar archive in it. Its scripts are left out."""

import io
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

from libs.host.artefacts import tar
from libs.host.artefacts.members import ArtefactError, Member, Section, read_exactly, skip

_MAGIC: Final = b"!<arch>\n"
_HEADER: Final = 60


def members(file: BinaryIO) -> Iterator[Member]:
    if read_exactly(file, len(_MAGIC), "the first line") != _MAGIC:
        raise ArtefactError("it is no Debian package")
    while True:
        header = read_exactly(file, _HEADER, "the list of its parts")
        name, size = header[:16].strip().rstrip(b"/"), header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit():
            raise ArtefactError("it is a damaged Debian package")
        if name.startswith(b"data.tar"):
            part = io.BufferedReader(Section(file, int(size)))
            yield from tar.members(cast("BinaryIO", part))
            return
        skip(file, int(size) + int(size) % 2, "one of its parts")
