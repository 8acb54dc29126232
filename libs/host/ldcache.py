"""The loader's cache of libraries, `/etc/ld.so.cache`, of another root file system.

Its content is not trusted: a driver container writes it. Only the format of glibc 2.2 and later is
read, which older files have behind their own entries.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

PATH: Final = "/etc/ld.so.cache"
_MAGIC: Final = b"glibc-ld.so.cache1.1"
_OLD_MAGIC: Final = b"ld.so-1.7.0"
_HEADER: Final = struct.Struct("=20sII20x")
_ENTRY: Final = struct.Struct("=iIIIQ")
_ELF_64: Final = frozenset((0x0303, 0x0A03))
"""The flags of libraries of x86_64 and aarch64."""
MAX_TEXT: Final = 4096


class CachedLibrary(NamedTuple):
    """A library of 64 bits that the loader finds by name."""

    name: str
    path: str


class MalformedCache(ValueError):
    """A text is no cache of the loader."""


def parse(data: bytes) -> tuple[CachedLibrary, ...]:
    """Return the libraries in a cache; raise `MalformedCache`."""
    start = 0
    if data.startswith(_OLD_MAGIC):
        start = data.find(_MAGIC)
    if start < 0 or data[start : start + len(_MAGIC)] != _MAGIC:
        raise MalformedCache("it does not begin as a cache of glibc's loader does")
    cache = data[start:]
    if len(cache) < _HEADER.size:
        raise MalformedCache("it is shorter than its header")
    _, count, _ = _HEADER.unpack_from(cache)
    if len(cache) < _HEADER.size + count * _ENTRY.size:
        raise MalformedCache(f"it is too short for the {count} libraries that it announces")
    return tuple(_libraries(cache, count))


def _libraries(cache: bytes, count: int) -> Iterator[CachedLibrary]:
    for number in range(count):
        flags, name, path, _, _ = _ENTRY.unpack_from(cache, _HEADER.size + number * _ENTRY.size)
        if flags not in _ELF_64:
            continue
        library = CachedLibrary(_text(cache, name), _text(cache, path))
        if not library.path.startswith("/") or "/" in library.name or not library.name:
            raise MalformedCache(f"its library {library.name!r} has no absolute path")
        yield library


def _text(cache: bytes, start: int) -> str:
    end = cache.find(b"\0", start, start + MAX_TEXT)
    if end < 0:
        raise MalformedCache(f"it has no text at byte {start}")
    try:
        text = cache[start:end].decode()
    except UnicodeDecodeError:
        raise MalformedCache(f"its text at byte {start} is not UTF-8") from None
    if not text.isprintable():
        raise MalformedCache(f"its text at byte {start} has characters that cannot be printed")
    return text
