"""Members of NVIDIA's self-extracting installer, a `.run` file; its programs are not run.

Its first lines are a shell script that says at which line a compressed tar archive begins. The
archive's `.manifest` says what each file is. Only what computing needs is installed: no library of
OpenGL, EGL or X. Its kernel modules are sources, which are not built.
"""

import re
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

import msgspec

from libs.host.artefacts import tar
from libs.host.artefacts.members import ArtefactError, Member

_SKIP: Final = re.compile(rb"^skip=([0-9]{1,6})$", re.MULTILINE)
_SCRIPT: Final = 1 << 16
"""Bytes at the beginning among which the number of the line is."""
_LONGEST_LINE: Final = 1 << 26
"""Bytes of a line of the script that is skipped: an archive without line ends fills no memory."""
_MANIFEST: Final = "/.manifest"
_MAX_MANIFEST: Final = 1 << 22
"""Bytes of the list of files, which is held in memory."""
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)+")

_LIBRARIES: Final = frozenset(
    ("CUDA_LIB", "OPENCL_LIB", "UTILITY_LIB", "NVCUVID_LIB", "ENCODEAPI_LIB", "NVIFR_LIB")
)
_LINKS: Final = frozenset(
    (
        "CUDA_SYMLINK",
        "OPENCL_LIB_SYMLINK",
        "UTILITY_LIB_SYMLINK",
        "NVCUVID_LIB_SYMLINK",
        "ENCODEAPI_LIB_SYMLINK",
        "NVIFR_LIB_SYMLINK",
    )
)
_WITH_FOLDER: Final = frozenset(("CUDA_LIB", "OPENCL_LIB", "CUDA_SYMLINK", "OPENCL_LIB_SYMLINK"))
"""Kinds whose lines name a folder below that of the libraries."""
_FOLDERS: Final[Mapping[str, str]] = {
    "UTILITY_BINARY": "/usr/bin",
    "NVIDIA_MODPROBE": "/usr/bin",
    "CUDA_ICD": "/etc/OpenCL/vendors",
}


class _Place(msgspec.Struct, frozen=True):
    """Where a file of the archive belongs."""

    path: str
    mode: int


def members(file: BinaryIO, *, libraries: str) -> Iterator[Member]:
    """Yield what belongs on the machine; `libraries` is its folder of libraries."""
    start = _start(file)
    places, links = _parse(_manifest(file, start), libraries)
    file.seek(start)
    for member in tar.members(file):
        place = places.pop(member.path.removeprefix("/"), None)
        if place is not None and not member.link:
            yield Member(path=place.path, mode=place.mode, content=member.content)
    if places:
        raise ArtefactError(f"it lacks files that its manifest names, such as {min(places)}")
    for path, target in links.items():
        yield Member(path=path, link=target)


def _start(file: BinaryIO) -> int:
    """Return where the archive begins."""
    script = file.read(_SCRIPT)
    found = _SKIP.search(script) if script.startswith(b"#!") else None
    if found is None:
        raise ArtefactError("it is no .run file of NVIDIA's installer")
    file.seek(0)
    for _ in range(int(found[1]) - 1):
        if not file.readline(_LONGEST_LINE):
            raise ArtefactError("it ends before its archive")
    return file.tell()


def _manifest(file: BinaryIO, start: int) -> str:
    file.seek(start)
    for member in tar.members(file):
        if member.path == _MANIFEST:
            data = b""
            for chunk in member.content():
                data += chunk
                if len(data) > _MAX_MANIFEST:
                    raise ArtefactError("its manifest is too long")
            return data.decode(errors="replace")
    raise ArtefactError("it has no manifest: it is no driver, or an unknown kind of installer")


def _parse(text: str, libraries: str) -> tuple[dict[str, _Place], dict[str, str]]:
    """Return the places of files by their names in the archive, and the targets of links."""
    version = text.partition("\n")[2].partition("\n")[0].strip()
    if not _VERSION.fullmatch(version):
        raise ArtefactError("its manifest names no version")
    places: dict[str, _Place] = {}
    links: dict[str, str] = {}
    for line in text.splitlines():
        words = [word for word in line.split() if not word.startswith("MODULE:")]
        if len(words) < 3 or not re.fullmatch("[0-7]{4,5}", words[1]):
            continue
        name, mode, kind, *rest = words
        name = name.removeprefix("./")
        short = name.rpartition("/")[2]
        if kind in _FOLDERS:
            places[name] = _Place(f"{_FOLDERS[kind]}/{short}", int(mode, 8))
        elif kind == "FIRMWARE":
            places[name] = _Place(f"/lib/firmware/nvidia/{version}/{short}", int(mode, 8))
        elif kind in _LIBRARIES | _LINKS and rest[:1] == ["NATIVE"]:
            below = rest.pop(1).strip("/") if kind in _WITH_FOLDER and len(rest) > 1 else ""
            path = f"{libraries}/{below}/{short}" if below else f"{libraries}/{short}"
            if kind in _LIBRARIES:
                places[name] = _Place(path, int(mode, 8))
            elif len(rest) > 1:
                links[path] = rest[1]
    if not places:
        raise ArtefactError("its manifest names no file that computing needs")
    return places, links
