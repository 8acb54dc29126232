"""What all formats of files share: their members, and compressed content."""

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final, cast

import msgspec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_CHUNK: Final = 1 << 20
MAX_ENTRIES: Final = 100_000
"""Of an archive, with folders, which are not placed."""
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class ArtefactError(Exception):
    """A file cannot be used; the text says why, for people."""


def _no_content() -> Iterable[bytes]:
    return ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or a symbolic link, that an archive brings to the machine."""

    path: str
    """Absolute, on the machine."""
    mode: int = 0o644
    link: str = ""
    """The target of a link; empty for a file."""
    content: Callable[[], Iterable[bytes]] = _no_content
    """Has to be read before the next member is asked for."""


class Section(io.RawIOBase):
    """A part of a file, read in order."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


class Chunks(io.RawIOBase):
    """Content in pieces, as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def read_exactly(file: BinaryIO, size: int, what: str) -> bytes:
    data = b""
    while len(data) < size:
        more = file.read(size - len(data))
        if not more:
            raise ArtefactError(f"it ends within {what}")
        data += more
    return data


def skip(file: BinaryIO, size: int, what: str) -> None:
    """Read past the next bytes, however many."""
    while size > 0:
        passed = len(file.read(min(size, _CHUNK)))
        if not passed:
            raise ArtefactError(f"it ends within {what}")
        size -= passed


class Count:
    """How much an archive names: also what is left out costs time and a name."""

    def __init__(self) -> None:
        self._left = MAX_ENTRIES

    def add(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise ArtefactError(f"it has more than {MAX_ENTRIES} files, links and folders")


def chunks_of(file: BinaryIO, size: int | None = None, *, what: str = "a file") -> Iterable[bytes]:
    """Yield the content of a file, or its next bytes."""
    left = size
    while left is None or left > 0:
        chunk = file.read(_CHUNK if left is None else min(_CHUNK, left))
        if not chunk:
            if left is not None:
                raise ArtefactError(f"it ends within {what}")
            return
        left = None if left is None else left - len(chunk)
        yield chunk


def decompressed(file: BinaryIO) -> BinaryIO:
    """Return the content, from here on, of a file whose compression shows in its first bytes."""
    # Not the file itself, which would be closed with its reader.
    buffered = io.BufferedReader(Section(file, sys.maxsize), 1 << 16)
    start = buffered.peek(6)[:6]
    if start.startswith(b"\x1f\x8b"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=buffered))
    if start.startswith((b"\xfd7zXZ\0", b"\x5d\x00\x00")):
        return cast("BinaryIO", lzma.LZMAFile(buffered))
    if start.startswith(b"BZh"):
        return cast("BinaryIO", bz2.BZ2File(buffered))
    if start.startswith(_ZSTD):
        return cast("BinaryIO", zstd.ZstdFile(buffered))
    return buffered


READ_ERRORS: Final = (
    EOFError,
    lzma.LZMAError,
    gzip.BadGzipFile,
    tarfile.TarError,
    zlib.error,
    zstd.ZstdError,
)
"""What damaged content raises, beside an OSError."""


def content_of(member: Member) -> Iterator[bytes]:
    """Yield the content of a member; an error of reading it names the member."""
    try:
        yield from member.content()
    except READ_ERRORS as error:
        raise ArtefactError(f"it is damaged within {member.path}: {error}") from error
