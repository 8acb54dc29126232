"""Artefacts that are unpacked on this machine, verified, in Sluice's own folder.

    /var/lib/sluice/artefacts/<digest>/index     what is in it; written last, so that it is complete
                                       /0, /1 …  the content of its files
                                       /copy     a delivered file, while it is unpacked

A kernel module is kept uncompressed and is never placed among the system's: what loads modules at
boot would load it before anybody has proven it (docs/states.md#gate).
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, Final, cast

import msgspec

from libs.host.artefacts import deb, paths, rpm, run, tar
from libs.host.artefacts.members import (
    READ_ERRORS,
    ArtefactError,
    Chunks,
    Member,
    chunks_of,
    content_of,
    decompressed,
)
from libs.host.artefacts.module_info import Module, ModuleInfo
from libs.host.artefacts.space import require_space
from libs.host.files import STATE_ROOT
from libs.host.tree import Tree, Unreadable

STORE: Final = f"{STATE_ROOT}/artefacts"
_ALLOWED: Final = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt")
_MODULE: Final = re.compile(
    r"(?:/usr)?/lib/modules/([^/]+)/(?:.*/)?([^/]+)\.ko(?:\.(?:xz|gz|zst))?"
)
_SOURCE: Final = re.compile(
    r"/usr/src/[^/]*nvidia[^/]*/(?:.*/)?(?:dkms\.conf|Kbuild)"
    r"|/usr/src/[^/]*nvidia[^/]*\.tar(?:\.[a-z0-9]+)?"
    r"|/usr/src/akmods/[^/]*nvidia[^/]*\.src\.rpm"
    r"|(?:/usr)?/lib/modules/.*/nv[^/]*\.o"
)
"""What a package for DKMS has, Debian's for module-assistant, Red Hat's family's for akmods, and
one whose script links its modules on the machine."""
_COPY: Final = "copy"
"""The name of a delivered file's copy in the store, while it is unpacked."""
MAX_FILES: Final = 20_000
"""Files of an artefact: a driver has a thousand, and the index is held in memory."""


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an artefact, as it is delivered."""

    path: str
    """On the machine."""
    kind: str
    sha256: str


class Placed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What belongs at a path of the machine."""

    path: str
    mode: int = 0
    link: str = ""
    """The target of a link; empty for a file."""
    content: str = ""
    """The name of the file's content in the store."""
    sha256: str = ""
    size: int = 0


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """What is in an artefact."""

    version: int = 1
    files: tuple[Placed, ...] = ()
    modules: tuple[Module, ...] = ()
    sources: tuple[str, ...] = ()
    """The names of delivered files with sources or objects, of which modules are yet to be made."""

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def contents(self) -> frozenset[str]:
        """The names of all content in the store."""
        found = (each.content for each in (*self.files, *self.modules))
        return frozenset(filter(None, found))

    def modules_for(self, kernel: str) -> dict[str, Module]:
        """Return the modules for a kernel by name."""
        return {each.name: each for each in self.modules if each.kernel == kernel}


def folder_of(digest: str) -> str:
    return f"{STORE}/{digest.removeprefix('sha256:')}"


def content_path(digest: str, content: str) -> str:
    return f"{folder_of(digest)}/{content}"


def read_index(tree: Tree, digest: str) -> Index | None:
    """Return what is in an artefact; None while it is not complete here. Raise `Unreadable`."""
    path = f"{folder_of(digest)}/index"
    try:
        data = b"".join(tree.chunks(path))
        index = msgspec.json.decode(data, type=Index)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(path, f"it is damaged ({error}): remove its folder") from error
    return index if index.contents <= set(tree.names(folder_of(digest))) else None


def stage(tree: Tree, digest: str, sources: Sequence[SourceFile], *, libraries: str) -> Index:
    """Verify and unpack an artefact, unless it is here already; return what is in it.

    Raise `ArtefactError` or OSError; nothing stays then. An attempt that was interrupted is begun
    anew.
    """
    known = read_index(tree, digest)
    if known is not None:
        return known
    remove(tree, digest)
    try:
        index = _Stage(tree, digest, libraries).run(sources)
        tree.write(f"{folder_of(digest)}/index", msgspec.json.encode(index), mode=0o600)
    except Exception:
        with suppress(OSError):
            remove(tree, digest)
        raise
    return index


def remove(tree: Tree, digest: str) -> None:
    """Remove an artefact, the index first."""
    folder = folder_of(digest)
    tree.remove(f"{folder}/index")
    for name in tree.names(folder):
        tree.remove(f"{folder}/{name}")
    tree.remove_folder(folder)


def damage_of(path: str) -> str:
    """Return what to say of content that is not what was unpacked."""
    return (
        f"{path} is not what was unpacked there: somebody changed it, or the disk is damaged."
        f" Remove {path.rpartition('/')[0]}, and the artefact is unpacked again"
    )


def keep_only(tree: Tree, digests: Iterable[str]) -> None:
    """Remove all other artefacts."""
    kept = {digest.removeprefix("sha256:") for digest in digests}
    for name in tree.names(STORE):
        if name not in kept:
            remove(tree, name)
    if not kept:
        for folder in (STORE, STATE_ROOT):
            with suppress(OSError):
                tree.remove_folder(folder)


class _Stage:
    def __init__(self, tree: Tree, digest: str, libraries: str) -> None:
        self._tree = tree
        self._digest = digest
        self._libraries = libraries
        self._files: dict[str, Placed] = {}
        self._modules: dict[tuple[str, str], Module] = {}
        self._sources: dict[str, None] = {}
        self._paths = paths.PathSet()
        self._count = 0

    def run(self, sources: Sequence[SourceFile]) -> Index:
        for source in sources:
            try:
                copy = self._copy(source)
                with self._tree.reader(copy) as file:
                    for member in self._members(source.kind, file):
                        self._add(member)
                        if source.kind == "run" or _SOURCE.fullmatch(member.path):
                            self._sources[source.path.rpartition("/")[2]] = None
                self._tree.remove(copy)
            except FileNotFoundError:
                raise ArtefactError(f"{source.path} is not on this machine") from None
            except READ_ERRORS as error:
                raise ArtefactError(f"{source.path} is damaged: {error}") from error
            except ArtefactError as error:
                raise ArtefactError(paths.sendable(f"{source.path}: {error}")) from error
        return Index(
            files=tuple(self._files.values()),
            modules=tuple(self._modules.values()),
            sources=tuple(self._sources),
        )

    def _copy(self, source: SourceFile) -> str:
        """Copy a file into the store, and return the copy's path if its digest is the named one.

        Whoever can write the delivered file could have foreign content unpacked by changing it
        between two readings, and have the digest right before and after. Each byte of it is
        therefore read once, and what was hashed is what is unpacked.
        """
        found = hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for chunk in self._tree.chunks(source.path):
                found.update(chunk)
                yield chunk

        self._write(_COPY, hashed())
        if found.hexdigest() != source.sha256:
            raise ArtefactError(
                f"its digest is sha256:{found.hexdigest()}, not sha256:{source.sha256}: it is"
                " another file, or was damaged on the way"
            )
        return content_path(self._digest, _COPY)

    def _members(self, kind: str, file: BinaryIO) -> Iterator[Member]:
        match kind:
            case "deb":
                return deb.members(file)
            case "rpm":
                return rpm.members(file)
            case "run":
                return run.members(file, libraries=self._libraries)
            case "tar":
                return tar.members(file)
            case _:
                raise ArtefactError(f"{kind} is no kind of artefact: deb, rpm, run and tar are")

    def _add(self, member: Member) -> None:
        path = member.path
        if why := paths.target_refusal(member.link):
            raise ArtefactError(f"the target of link {path} in it {why}: pack it again without it")
        if not path.startswith(tuple(f"{each}/" for each in _ALLOWED)):
            raise ArtefactError(
                f"{path} in it is outside of {', '.join(_ALLOWED)}, where a driver belongs"
            )
        if why := paths.refusal(path):
            raise ArtefactError(f"{path!r} in it {why}: pack it again without it")
        if self._count >= MAX_FILES:
            raise ArtefactError(f"the artefact has more than {MAX_FILES} files")
        self._count += 1
        module = _MODULE.fullmatch(path)
        if module is not None:
            if not member.link:
                self._add_module(member, module[1], module[2].replace("-", "_"))
            return
        if why := self._paths.add(path):
            raise ArtefactError(f"{path} {why}")
        if member.link:
            self._files[path] = Placed(path=path, link=member.link)
            return
        content = str(self._count)
        digest, size = hashlib.sha256(), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for chunk in content_of(member):
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        self._write(content, counted())
        self._files[path] = Placed(
            path=path, mode=member.mode, content=content, sha256=digest.hexdigest(), size=size
        )

    def _add_module(self, member: Member, kernel: str, name: str) -> None:
        content = str(self._count)
        packed = cast("BinaryIO", io.BufferedReader(Chunks(content_of(member))))
        info, digest = ModuleInfo(chunks_of(decompressed(packed))), hashlib.sha256()

        def counted() -> Iterator[bytes]:
            for chunk in info:
                digest.update(chunk)
                yield chunk

        self._write(content, counted())
        name = info.name or name  # DKMS on Debian names the files nvidia-current.ko
        if (kernel, name) in self._modules:
            raise ArtefactError(
                f"{member.path} is one more module {name} for kernel {kernel}: which is meant"
                " cannot be told, so bring one of them"
            )
        self._modules[kernel, name] = Module(
            kernel=kernel,
            name=name,
            content=content,
            depends=info.depends,
            version=info.version,
            signed=info.signed,
            sha256=digest.hexdigest(),
        )

    def _write(self, content: str, chunks: Iterable[bytes]) -> None:
        path = content_path(self._digest, content)
        self._tree.write_chunks(path, self._within_space(chunks), mode=0o600)

    def _within_space(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            require_space(self._tree, folder_of(self._digest), len(chunk))
            yield chunk
