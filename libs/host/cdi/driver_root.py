"""The files of a driver that a container needs, found in the driver's root file system.

That is the machine's own root, or the root of a driver container, whose content is not trusted:
links are followed within it, and what is found is a path on the machine that has no links.
"""

import re
import stat
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from libs.host import driver_folders, ldcache, persistence
from libs.host.cdi.roots import root_of
from libs.host.tree import Tree

CUDA: Final = "libcuda"
_WITHOUT_VERSION: Final = frozenset(("libcuda.so", "libnvidia-opticalflow.so"))
"""Names that programs open although they are meant for linking."""
_WITH_VERSION: Final = frozenset(("libcuda", "libnvidia-nvvm"))
"""Libraries that have shorter names, and that some open by the longest one: the driver's own OpenCL
opens its compiler so, and programs look for libcuda's to learn the driver's version."""
_BELOW: Final = {"libvdpau_nvidia": "vdpau"}
"""The folder, below that of libraries, in which programs look for a library."""
_BINARIES: Final = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-persistenced",
    "nvidia-smi",
    "nvidia-xconfig",
)
_FIRMWARE_FOLDERS: Final = ("/lib/firmware", "/usr/lib/firmware")
_FIRMWARE: Final = re.compile(r"gsp[A-Za-z0-9_]*\.bin")
_SOCKETS: Final = (
    persistence.SOCKET,
    "/run/nvidia-fabricmanager/socket",
    "/tmp/nvidia-mps",  # noqa: S108 (the vendor's path)
)
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)+")
_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]+")


class NoDriverFiles(Exception):
    """A root does not have the driver's files; the text is the reason, for people."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """On the machine."""
    names: tuple[str, ...]
    """The names by which programs open it."""
    below: tuple[str, ...] = ()
    """The folders below that of libraries, such as `vdpau`."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """On the machine."""
    inside: str
    """In a container."""


class DriverFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver brings for containers."""

    root: str
    """The driver's root on the machine; empty for the machine's own."""
    libraries: tuple[Library, ...]
    binaries: tuple[File, ...] = ()
    firmware: tuple[File, ...] = ()
    sockets: tuple[File, ...] = ()


def find(tree: Tree, root: str, version: str) -> DriverFiles:
    """Return the files of the driver of this version; raise `NoDriverFiles`."""
    if not _VERSION.fullmatch(version):
        raise NoDriverFiles(f"the driver's version {version!r} is no version")
    return _Finder(tree, root, version).find()


class _Finder:
    def __init__(self, tree: Tree, root: str, version: str) -> None:
        found = root_of(tree, root)
        if found is None:
            raise NoDriverFiles(f"the driver's root {root} does not exist on this machine")
        self._name = root
        self._root = found
        self._tree = found.tree
        self._suffix = f".so.{version}"
        self._version = version

    def find(self) -> DriverFiles:
        cached = self._cached()
        libraries: dict[str, Library] = {}
        for folder in self._library_folders(cached):
            for library in self._libraries(folder, cached):
                libraries.setdefault(library.path.rpartition("/")[2], library)
        return DriverFiles(
            root=self._root.path,
            libraries=tuple(sorted(libraries.values(), key=lambda each: (each.path, each.names))),
            binaries=tuple(self._binaries()),
            firmware=tuple(self._firmware()),
            sockets=tuple(self._sockets()),
        )

    def _cached(self) -> tuple[ldcache.CachedLibrary, ...]:
        """Return the loader's cache; a root without one has only the default folders."""
        data = self._tree.data(ldcache.PATH)
        if data is None:
            return ()
        try:
            return ldcache.parse(data)
        except ldcache.MalformedCache as error:
            raise NoDriverFiles(
                f"{ldcache.PATH} below the driver's root {self._name} is broken: {error};"
                " run ldconfig there, or restart the driver's pod"
            ) from None

    def _library_folders(self, cached: tuple[ldcache.CachedLibrary, ...]) -> tuple[str, ...]:
        """Return the folders that can have libraries of this version, each once.

        Packages of Debian put them into two, so one does not have them all. That of libcuda is the
        first: of two files with one name, the one beside it belongs to it.
        """
        found = [self._cuda_folder(cached)]
        by_cache = (each.path.rpartition("/")[0] for each in cached)
        for folder in dict.fromkeys((*by_cache, *driver_folders.LIBRARIES)):
            real = self._real(folder)
            found += [real] if real else []
        return tuple(dict.fromkeys(each for folder in found for each in (folder, *_below(folder))))

    def _cuda_folder(self, cached: tuple[ldcache.CachedLibrary, ...]) -> str:
        wanted = f"{CUDA}{self._suffix}"
        by_cache = (each.path for each in cached if each.name.startswith(f"{CUDA}.so"))
        by_default = (f"{folder}/{wanted}" for folder in driver_folders.LIBRARIES)
        for path in (*by_cache, *by_default):
            real = self._file(path)
            if real is not None and real.endswith(f"/{wanted}"):
                return real.rpartition("/")[0]
        raise NoDriverFiles(
            f"{wanted} was not found below the driver's root {self._name}: the driver's libraries"
            " are missing there, or belong to another version than the loaded driver"
        )

    def _libraries(
        self, folder: str, cached: tuple[ldcache.CachedLibrary, ...]
    ) -> Iterator[Library]:
        names = [name for name in self._tree.names(folder) if _NAME.fullmatch(name)]
        for name in names:
            if not (name.endswith(self._suffix) or name.startswith("libnvidia-nvvm70.so.")):
                continue
            path = f"{folder}/{name}"
            if self._file(path) != path:
                continue  # a link: what it leads to has this name too
            links = [(each, f"{folder}/{each}") for each in names]
            known = [*links, *((each.name, each.path) for each in cached)]
            below = _BELOW.get(name.partition(".so")[0])
            yield Library(
                path=self._root.on_machine(path),
                names=self._opened_names(name, path, known),
                below=(below,) if below else (),
            )

    def _opened_names(
        self, name: str, path: str, known: Sequence[tuple[str, str]]
    ) -> tuple[str, ...]:
        """Return the names by which programs open a library: its own, if it has no shorter one."""
        stem = name.partition(".so")[0]
        unversioned = f"{stem}.so"
        shorter = {
            each
            for each, leading in known
            if each.startswith(f"{unversioned}.") and each != name and _NAME.fullmatch(each)
            if self._file(leading) == path
        }
        whole = set[str]() if shorter and stem not in _WITH_VERSION else {name}
        return tuple(sorted(shorter | whole | ({unversioned} & _WITHOUT_VERSION)))

    def _binaries(self) -> Iterator[File]:
        for name in _BINARIES:
            found = (self._file(f"{folder}/{name}") for folder in driver_folders.PROGRAMS)
            if path := next(filter(None, found), None):
                yield File(path=self._root.on_machine(path), inside=f"/usr/bin/{name}")

    def _firmware(self) -> Iterator[File]:
        for above in _FIRMWARE_FOLDERS:
            folder = f"{above}/nvidia/{self._version}"
            names = [name for name in self._tree.names(folder) if _FIRMWARE.fullmatch(name)]
            for name in names:
                if path := self._file(f"{folder}/{name}"):
                    inside = f"/lib/firmware/nvidia/{self._version}/{name}"
                    yield File(path=self._root.on_machine(path), inside=inside)
            if names:
                return

    def _sockets(self) -> Iterator[File]:
        for path in _SOCKETS:
            status = self._tree.status(path)
            is_folder = path.endswith("-mps")
            if status is None or not (stat.S_ISSOCK, stat.S_ISDIR)[is_folder](status.st_mode):
                continue
            if (real := self._real(path)) is not None:
                yield File(path=self._root.on_machine(real), inside=path)

    def _file(self, path: str) -> str | None:
        """Return where a regular file with content is, without links, below the driver's root."""
        status = self._tree.status(path)
        if status is None or not stat.S_ISREG(status.st_mode) or not status.st_size:
            return None
        return self._real(path)

    def _real(self, path: str) -> str | None:
        return self._root.real(path)


def _below(folder: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in _BELOW.values())
