"""The files of a driver on the machine itself: placed, and taken back. All functions block.

Only new files, links and folders are made, each logged before it is made; nothing of others is ever
replaced. To take the driver back is therefore to remove what the log names, byte for byte
(docs/decisions/0008-host-method.md). The record is written when everything is placed: without it
there is an attempt that was interrupted, which is taken back before the next one.
"""

import errno
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from libs.contracts.words import first_few
from libs.host.artefacts import kernel_modules, loader_folders, paths, store
from libs.host.artefacts import system as systems
from libs.host.artefacts.kernel_modules import Problem
from libs.host.artefacts.store import Index
from libs.host.files import (
    STATE_ROOT,
    FileChange,
    OtherContent,
    UndoableFiles,
    fingerprint,
    is_taken,
)
from libs.host.tree import Tree, Unreadable

FOLDER: Final = f"{STATE_ROOT}/installation"
_LOG: Final = f"{FOLDER}/undo"
_RECORD: Final = f"{FOLDER}/record"
_SPARE: Final = 256 << 20
"""Bytes that stay free on the file system of `/usr`."""
_SHOWN: Final = 5
"""Files of others that a problem names; the message is part of a command's result."""


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What is installed completely."""

    artefact: str
    install_digest: str
    label: str


def files_of(tree: Tree) -> UndoableFiles:
    return UndoableFiles(tree, _LOG)


def installed(tree: Tree) -> Installation | None:
    """Return the installed driver; None if there is none, or an unfinished one."""
    data = tree.data(_RECORD)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Installation)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(_RECORD, f"it is damaged ({error})") from error


def has_traces(tree: Tree) -> bool:
    """Return whether a driver, or a part of one, is installed."""
    return tree.exists(_RECORD) or files_of(tree).has_changes


def problems(tree: Tree, index: Index, kernel: str, *, placed: bool = False) -> Iterator[Problem]:
    """Yield what forbids to install an artefact; what is ours already is taken back before.

    `placed`: its files stay as they are, and its modules are only to be loaded.
    """
    if refusal := systems.refusal(tree):
        yield Problem(
            code="immutable-system",
            message=f"no driver can be installed here: {refusal}",
            remedy=systems.REMEDY,
        )
        return
    yield from kernel_modules.module_problems(tree, index, kernel)
    if not placed:
        files = files_of(tree)
        own = files.logged()
        yield from loader_folders.problems(tree, index, lambda path: _stays(tree, path, files, own))
        yield from problems_of_files(tree, index)


def problems_of_files(tree: Tree, index: Index) -> Iterator[Problem]:
    """Yield what forbids to place the files."""
    if contradiction := _contradiction(tree, index):
        yield Problem(
            code="artefact-paths",
            message=f"on this machine, whose folders may be links, {contradiction}",
            remedy="pack the artefact again such that each file has one path",
        )
    if blocked := _no_folder(tree, index):
        yield Problem(
            code="file-exists",
            message=f"{blocked} on this machine is no folder, and files of the driver belong below"
            " it",
            remedy="remove it, or uninstall the package that it belongs to",
        )
    taken = _taken(tree, index)
    if taken:
        yield Problem(
            code="file-exists",
            message=f"{first_few(taken, _SHOWN)} exist on this machine, and Sluice replaces no file"
            " of others",
            remedy="uninstall the packages that they belong to",
        )
    free = tree.free_bytes("/usr")
    if free is not None and free + _own_size(tree) < index.size + _SPARE:
        yield Problem(
            code="disk",
            message=f"{free >> 20} MiB are free in /usr; the driver needs"
            f" {(index.size + _SPARE - _own_size(tree)) >> 20}",
            remedy="free disk space on this machine",
        )


def _own_size(tree: Tree) -> int:
    """Return the bytes that are free when what was placed is taken back."""
    found = (tree.status(path) for path, each in files_of(tree).logged().items() if not each.link)
    return sum(status.st_size for status in found if status is not None)


def _contradiction(tree: Tree, index: Index) -> str:
    """Return which paths are one, or one below another, where links of the machine lead."""
    real_path = loader_folders.real_paths(tree)
    known = paths.PathSet()
    for each in index.files:
        if why := known.add(real_path(each.path)):
            return f"{each.path} {why}"
    return ""


def _no_folder(tree: Tree, index: Index) -> str:
    """Return what stays on the machine where a folder has to be; empty if there is nothing."""
    folders = {folder for each in index.files for folder in paths.above(each.path)}
    files = files_of(tree)
    own = files.logged()
    return next(
        (
            path
            for path in sorted(folders)
            if not tree.is_folder(path) and _stays(tree, path, files, own)
        ),
        "",
    )


def _taken(tree: Tree, index: Index) -> list[str]:
    """Return the paths of files of others, and of ours that others changed and that stay."""
    files = files_of(tree)
    own = files.logged()
    return [each.path for each in index.files if _stays(tree, each.path, files, own)]


def _stays(tree: Tree, path: str, files: UndoableFiles, own: Mapping[str, FileChange]) -> bool:
    """Whether something is at a path that is not taken back before files are placed."""
    return is_taken(tree, path) and not (path in own and files.is_as_written(own[path]))


def place(tree: Tree, wanted: Installation, index: Index) -> None:
    """Place everything, and record it. What was placed earlier has been taken back.

    Raise `PathTaken`, `CorruptUndoLog` or OSError.
    """
    files = files_of(tree)
    for each in index.files:
        if each.link:
            files.create_link(each.path, each.link)
        else:
            content = store.content_path(wanted.artefact, each.content)
            chunks: Callable[[], Iterator[bytes]] = lambda path=content: tree.chunks(path)  # noqa: E731
            try:
                files.create(each.path, chunks, mode=each.mode, digest=each.sha256)
            except OtherContent:
                raise OSError(errno.EIO, store.damage_of(content)) from None
    tree.write(_RECORD, msgspec.json.encode(wanted), mode=0o600)


def take_back(tree: Tree) -> tuple[str, ...]:
    """Remove what was placed; return what others have changed since, which stays."""
    tree.remove(_RECORD)
    left = files_of(tree).undo()
    tree.remove_unfinished(_RECORD)
    tree.remove_folder(FOLDER)
    return left


def is_whole(tree: Tree, index: Index) -> bool:
    """Return whether every file is as it was placed."""
    for each in index.files:
        if each.link:
            if tree.link(each.path) != each.link:
                return False
        elif fingerprint(tree, each.path) != each.sha256:
            return False
    return True
