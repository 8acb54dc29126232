"""Members of an RPM package: of the cpio archive in it. Its scripts are left out."""

import stat
import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from libs.host.artefacts.members import (
    ArtefactError,
    Count,
    Member,
    chunks_of,
    decompressed,
    read_exactly,
    skip,
)
from libs.host.artefacts.paths import LONGEST_PATH

_LEAD: Final = b"\xed\xab\xee\xdb"
_LEAD_SIZE: Final = 96
_HEADER: Final = b"\x8e\xad\xe8\x01"
_MAX_HEADER: Final = 1 << 28
"""Bytes of a header that is skipped, as rpm itself accepts them."""
_CPIO: Final = (b"070701", b"070702")
_FIELDS: Final = 13
_END: Final = "TRAILER!!!"
MAX_NAMES: Final = 20_000
"""Of files that have several, and whose content has not come yet."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A header of a cpio archive."""

    inode: int
    mode: int
    links: int
    size: int
    name: str


def members(file: BinaryIO) -> Iterator[Member]:
    if not read_exactly(file, _LEAD_SIZE, "the lead").startswith(_LEAD):
        raise ArtefactError("it is no RPM package")
    signature = _skip_header(file)
    read_exactly(file, -signature % 8, "the signature")
    _skip_header(file)
    yield from _cpio(decompressed(file))


def _skip_header(file: BinaryIO) -> int:
    """Skip a header; return its size."""
    magic, _, entries, size = struct.unpack(">4s4sII", read_exactly(file, 16, "a header"))
    total = 16 * entries + size
    if magic != _HEADER or total > _MAX_HEADER:
        raise ArtefactError("it is a damaged RPM package")
    skip(file, total, "a header")
    return total


def _cpio(file: BinaryIO) -> Iterator[Member]:
    names: dict[int, list[str]] = {}
    """Of files with several names: those before the last one, which alone has the content."""
    waiting = 0
    count = Count()
    while (entry := _entry(file)).name != _END:
        count.add()
        path = f"/{entry.name.removeprefix('.').lstrip('/')}"
        if stat.S_ISDIR(entry.mode):
            continue
        if stat.S_ISLNK(entry.mode):
            if entry.size > LONGEST_PATH:
                raise ArtefactError(
                    f"the target of link {path} in it is longer than {LONGEST_PATH} bytes"
                )
            target = read_exactly(file, entry.size, "a link").decode(errors="surrogateescape")
            yield Member(path=path, link=target)
        elif not stat.S_ISREG(entry.mode):
            raise ArtefactError(f"{path} in it is neither a file nor a link")
        elif entry.links > 1 and not entry.size:
            names.setdefault(entry.inode, []).append(path)
            waiting += 1
            if waiting > MAX_NAMES:
                raise ArtefactError(f"more than {MAX_NAMES} names in it have no content")
            continue
        else:
            yield Member(
                path=path,
                mode=stat.S_IMODE(entry.mode),
                content=lambda size=entry.size, path=path: chunks_of(file, size, what=path),
            )
            for other in names.pop(entry.inode, ()) if entry.links > 1 else ():
                yield Member(path=other, link=path)
        read_exactly(file, -entry.size % 4, "a file")
    for paths in names.values():
        for path in paths:
            yield Member(path=path)


def _entry(file: BinaryIO) -> _Entry:
    header = read_exactly(file, 6 + 8 * _FIELDS, "the list of its files")
    if header[:6] not in _CPIO:
        raise ArtefactError("its list of files has a form that this version of Sluice cannot read")
    try:
        numbers = [int(header[at : at + 8], 16) for at in range(6, len(header), 8)]
    except ValueError:
        raise ArtefactError("it is a damaged RPM package") from None
    length = numbers[11]
    if length > LONGEST_PATH + 1:  # with its NUL byte
        raise ArtefactError(f"a path in it is longer than {LONGEST_PATH} bytes")
    name = read_exactly(file, length + -(length + len(header)) % 4, "a name")[:length]
    return _Entry(
        inode=numbers[0],
        mode=numbers[1],
        links=numbers[4],
        size=numbers[6],
        name=name.rstrip(b"\0").decode(errors="surrogateescape"),
    )
