"""Write what a container runtime's configuration needs, so that it can be taken back (I12)."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from libs.host.files import UndoableFiles
from libs.host.runtimes import containerd, crio, k3s
from libs.host.runtimes.common import HANDLERS, NotConfigurable
from libs.host.tree import Tree


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
    drop_in = wanted.drop_in or f"{main.rpartition('/')[0]}/conf.d/99-sluice.toml"
    return _containerd(tree, main, drop_in, wanted)


def install(tree: Tree, files: Plan) -> bool:
    """Write the files; return whether one changed. A runtime reads them when it starts."""
    undoable = UndoableFiles(tree)
    changed = False
    for path, text in files.items():
        mode = tree.mode(path) or 0o644
        changed = undoable.write(path, text.encode(), mode=mode) or changed
    return changed


def _containerd(tree: Tree, main: str, drop_in: str, wanted: Wanted) -> Plan:
    text = _text(tree, main)
    layout = containerd.Layout(main=main, drop_in=drop_in, handlers=wanted.handlers)
    imported = dict(_imported(tree, text, layout))
    change = containerd.configure(text, imported, layout)
    # The drop-in first: until the main file imports it, it has no effect.
    return {drop_in: change.drop_in, main: change.main}


def _imported(tree: Tree, main: str | None, layout: containerd.Layout) -> Iterator[tuple[str, str]]:
    """Yield the files that the main file imports, in the order in which containerd reads them."""
    patterns = containerd.imports_of(main, layout.main) if main is not None else ()
    paths = [path for pattern in patterns for path in _matching(tree, pattern)]
    for path in dict.fromkeys(paths):
        if path != layout.drop_in and (text := _text(tree, path)) is not None:
            yield path, text


def _k3s(tree: Tree, main: str, wanted: Wanted) -> Plan:
    generated = _text(tree, main)
    if generated is None:
        raise NotConfigurable(f"{main} is missing, which k3s and RKE2 write when they start")
    folder = k3s.imported_folder(generated, main)
    if folder:
        drop_in = wanted.drop_in or f"{folder}/99-sluice.toml"
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
    texts = {path: _text(tree, path) for path in paths if path != drop_in}
    files = {path: text for path, text in texts.items() if text is not None}
    text = crio.configure(files, handlers=wanted.handlers)
    return {drop_in: text} if text else {}


def _matching(tree: Tree, pattern: str) -> list[str]:
    folder, _, names = pattern.rpartition("/")
    return [f"{folder}/{name}" for name in tree.names(folder) if fnmatchcase(name, names)]


def _text(tree: Tree, path: str) -> str | None:
    data = tree.data(path)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        raise NotConfigurable(
            f"{path} is not UTF-8, so the container runtime's configuration is left alone: correct"
            " the file"
        ) from None
