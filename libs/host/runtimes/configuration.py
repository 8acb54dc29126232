"""Write what a container runtime's configuration needs, so that it can be taken back (I12)."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from libs.host.files import UndoableFiles
from libs.host.runtimes import containerd, crio, k3s
from libs.host.runtimes.common import HANDLERS, NotConfigurable
from libs.host.tree import Tree, is_unfinished


class RuntimeKind(StrEnum):
    CONTAINERD = "containerd"
    CRIO = "cri-o"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which runtime is to be configured, and where."""

    kind: RuntimeKind = RuntimeKind.CONTAINERD
    main: str = ""
    """The main file; empty: the runtime's default."""
    drop_in: str = ""
    """Our own file; empty: the usual one."""
    handlers: tuple[str, ...] = HANDLERS
    merges: bool = False
    """Whether containerd merges the sections of imported files."""


Plan = Mapping[str, str]
"""The wanted content of each file, in the order in which they are written."""


def plan(tree: Tree, wanted: Wanted) -> Plan:
    """Return the files that give containers CDI and our handlers; raise `NotConfigurable`.

    A plan is the same before and after it has been carried out.
    """
    if wanted.kind is RuntimeKind.CRIO:
        return _crio(tree, wanted)
    main = wanted.main.removesuffix(".tmpl") or containerd.MAIN
    if k3s.is_generated(main):
        return _k3s(tree, main, wanted)
    drop_in = wanted.drop_in or f"{main.rpartition('/')[0]}/conf.d/{containerd.NAME}"
    return _containerd(tree, main, drop_in, wanted)


def install(tree: Tree, files: Plan) -> bool:
    """Write the files, and remove others of ours; return whether one changed.

    A runtime reads them when it starts.
    """
    undoable = UndoableFiles(tree)
    changed = False
    for path, text in files.items():
        mode = tree.mode(path) or 0o644
        changed = undoable.write(path, text.encode(), mode=mode) or changed
    for path in undoable.created():
        # What k3s wrote by a template is in use until it starts again.
        if path not in files and not path.endswith(".tmpl"):
            changed = undoable.remove(path) or changed
    return changed


def _containerd(tree: Tree, main: str, drop_in: str, wanted: Wanted) -> Plan:
    text = _text(tree, main)
    layout = containerd.Layout(
        main=main, drop_in=drop_in, handlers=wanted.handlers, merges=wanted.merges
    )
    earlier, later = _imported(tree, text, layout)
    hiding = [path for path, other in later if containerd.has_section(other, path)]
    if hiding and not wanted.merges:
        raise NotConfigurable(
            f"containerd before 2.1 takes the section of containers from the last file alone, and"
            f" reads {hiding[-1]} after {drop_in}: name a file in RUNTIME_DROP_IN_CONFIG of"
            " spec.toolkit.env that it reads last"
        )
    change = containerd.configure(text, dict((*earlier, *later)), layout)
    # The drop-in first: until the main file imports it, it has no effect.
    return {drop_in: change.drop_in, main: change.main}


_Texts = list[tuple[str, str]]
"""Paths and texts of files, in the order in which containerd reads them."""


def _imported(tree: Tree, main: str | None, layout: containerd.Layout) -> tuple[_Texts, _Texts]:
    """Return the files that are imported before our own, and those after it.

    What we wrote by an earlier setting is in neither.
    """
    seen = {layout.main, layout.drop_in, *UndoableFiles(tree).created()}
    found: _Texts = []
    place: int | None = None
    pending = [] if main is None else [(layout.main, main)]
    while pending:
        path, text = pending.pop(0)
        for pattern in containerd.imports_of(text, path):
            new = [each for each in _matching(tree, pattern) if each not in seen]
            seen.update(new)
            texts = _existing(tree, new, path=path, pattern=pattern)
            if place is None and containerd.is_imported(layout.drop_in, pattern):
                place = len(found) + sum(each < layout.drop_in for each, _ in texts)
            found += texts
            pending += texts
        # It is going to be the last import of the main file.
        place = len(found) if place is None else place
    return found[:place], found[place:]


def _existing(tree: Tree, paths: Iterable[str], *, path: str, pattern: str) -> _Texts:
    """Return the files that a pattern of a file names; raise `NotConfigurable`."""
    texts = [(each, _text(tree, each)) for each in paths]
    missing = [each for each, text in texts if text is None]
    if missing and "*" not in pattern:
        raise NotConfigurable(
            f"{path} imports {missing[0]}, which does not exist, so containerd reads no file after"
            " it: correct the imports"
        )
    return [(each, text) for each, text in texts if text is not None]


def _k3s(tree: Tree, main: str, wanted: Wanted) -> Plan:
    generated = _text(tree, main)
    if generated is None:
        raise NotConfigurable(f"{main} is missing, which k3s and RKE2 write when they start")
    folder = k3s.imported_folder(generated, main)
    if folder:
        drop_in = wanted.drop_in or f"{folder}/{containerd.NAME}"
        files = _containerd(tree, main, drop_in, wanted)
        if files[main] != generated:
            raise NotConfigurable(f"{main} does not import {drop_in}: name a file in {folder}")
        return {drop_in: files[drop_in]}
    path = k3s.template_path(generated, main)
    before = _text(tree, path)
    template = k3s.configure(generated, main, before, handlers=wanted.handlers)
    return {} if before is None and template == k3s.BASE else {path: template}


def _crio(tree: Tree, wanted: Wanted) -> Plan:
    main, drop_in = wanted.main or crio.MAIN, wanted.drop_in or crio.DROP_IN
    paths = [main, *_matching(tree, f"{crio.FOLDER}/*")]
    own = {drop_in, *UndoableFiles(tree).created()}
    texts = {path: _text(tree, path) for path in paths if path not in own}
    files = {path: text for path, text in texts.items() if text is not None}
    text = crio.configure(files, handlers=wanted.handlers)
    return {drop_in: text} if text else {}


def _matching(tree: Tree, pattern: str) -> list[str]:
    """Return the files that a pattern names, without what a killed process left of ours."""
    found = [""]
    for part in pattern.split("/")[1:]:
        if "*" in part:
            found = [
                f"{folder}/{name}"
                for folder in found
                for name in tree.names(folder or "/")
                if fnmatchcase(name, part) and not is_unfinished(name)
            ]
        else:
            found = [f"{folder}/{part}" for folder in found]
    return found


def _text(tree: Tree, path: str) -> str | None:
    data = tree.data(path)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        raise NotConfigurable(
            f"{path} is not UTF-8, so the container runtime's configuration is left alone: correct"
            " the file"
        ) from None
