"""What the file of a kernel module says of itself, found while its content passes."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_DEPENDS: Final = re.compile(rb"\0depends=([a-zA-Z0-9_,-]*)\0")
_NAME: Final = re.compile(
    rb"\0name=([a-zA-Z0-9_-]{1,55})\0+vermagic=|\0vermagic=[^\0]{1,200}\0+name=([a-zA-Z0-9_-]{1,55})\0"
)
"""The field of the name is beside that of the kernel: both are written by one program. Other texts
of a module may begin with `name=` too."""
_VERSION: Final = re.compile(rb"\0version=([0-9]{1,6}(?:\.[0-9]{1,6}){1,4})\0")
_SIGNATURE: Final = b"~Module signature appended~\n"
"""The last bytes of a signed module."""
_LONGEST_FIELD: Final = 4096


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel module, for one kernel."""

    kernel: str
    name: str
    """As the kernel lists it."""
    content: str
    depends: tuple[str, ...] = ()
    version: str = ""
    """Of the driver; empty: the file does not say."""
    signed: bool | None = None
    """None: an earlier version of Sluice, which did not look, unpacked it."""
    sha256: str = ""
    """Of its content; empty: likewise."""


class ModuleInfo:
    """Passes on a module's content, and keeps what it says."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.name = ""
        """As the kernel will list it; empty: the file does not say."""
        self.depends: tuple[str, ...] = ()
        self.version = ""
        self.signed = False

    def __iter__(self) -> Iterator[bytes]:
        before = b""
        for chunk in self._chunks:
            text = before + chunk
            if match := _NAME.search(text):
                self.name = (match[1] or match[2]).decode().replace("-", "_")
            if match := _DEPENDS.search(text):
                names = match[1].decode().replace("-", "_")
                self.depends = tuple(filter(None, names.split(",")))
            if match := _VERSION.search(text):
                self.version = match[1].decode()
            before = text[-_LONGEST_FIELD:]
            yield chunk
        self.signed = before.endswith(_SIGNATURE)
