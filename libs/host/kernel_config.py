"""Options that the running kernel was built with, from the files in which NFD looks for them."""

import zlib
from collections.abc import Collection
from typing import Final

from libs.host.tree import MAX_BYTES, Tree, Unreadable

_COMPRESSED: Final = "/proc/config.gz"
_GZIP: Final = 16 + zlib.MAX_WBITS
_MAX_VALUE: Final = 63
"""Characters of a value, as in labels."""


def options(tree: Tree, release: str, names: Collection[str]) -> dict[str, str]:
    """Return these options as the first readable file has them.

    Raises `Unreadable` if a file is there and none can be read.
    """
    unreadable: Unreadable | None = None
    for path in _paths(release):
        try:
            text = _text(tree, path)
        except Unreadable as error:
            unreadable = unreadable or error
            continue
        if text is not None:
            return _parse(text, names)
    if unreadable is not None:
        raise unreadable
    return {}


def _paths(release: str) -> tuple[str, ...]:
    return (
        _COMPRESSED,
        f"/usr/src/linux-{release}/.config",
        "/usr/src/linux/.config",
        f"/usr/lib/modules/{release}/config",
        f"/usr/lib/ostree-boot/config-{release}",
        f"/usr/lib/kernel/config-{release}",
        f"/usr/src/linux-headers-{release}/.config",
        f"/lib/modules/{release}/build/.config",
        f"/boot/config-{release}",
    )


def _text(tree: Tree, path: str) -> str | None:
    data = tree.data(path)
    if data is None or path != _COMPRESSED:
        return None if data is None else data.decode(errors="replace")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        unpacked = unpacker.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise Unreadable(path, str(error)) from error
    if not unpacker.eof:
        raise Unreadable(path, f"it is incomplete, or unpacks to more than {MAX_BYTES >> 20} MiB")
    return unpacked.decode(errors="replace")


def _parse(text: str, names: Collection[str]) -> dict[str, str]:
    lines = (line.partition("=") for line in text.splitlines())
    values = {name: value.strip('"') for name, equals, value in lines if equals}
    found = {name: values.get(f"CONFIG_{name}", "") for name in names}
    return {name: value for name, value in found.items() if 0 < len(value) <= _MAX_VALUE}
