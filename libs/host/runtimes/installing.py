"""Write what containerd's configuration needs, so that it can be taken back (I12)."""

from fnmatch import fnmatchcase

from libs.host.files import UndoableFiles
from libs.host.runtimes.containerd import DROP_IN, MAIN, NotConfigurable, configure, imports_of
from libs.host.tree import Tree


def install(tree: Tree) -> bool:
    """Write the files; return whether one changed. Raise `NotConfigurable`, and change nothing.

    containerd reads its files when it starts: what changed has no effect until then.
    """
    main = _text(tree, MAIN)
    imported = {
        path: text
        for path in _imported_paths(tree, imports_of(main) if main is not None else ())
        if path != DROP_IN and (text := _text(tree, path)) is not None
    }
    change = configure(main, imported)
    files = UndoableFiles(tree)
    # The drop-in first: until the main file imports it, it has no effect.
    changed = files.write(DROP_IN, change.drop_in.encode(), mode=tree.mode(DROP_IN) or 0o644)
    if main == change.main:
        return changed
    return files.write(MAIN, change.main.encode(), mode=tree.mode(MAIN) or 0o644) or changed


def _imported_paths(tree: Tree, patterns: tuple[str, ...]) -> list[str]:
    """Return the files that match, in the order in which containerd reads them."""
    found: list[str] = []
    for pattern in patterns:
        folder, _, names = pattern.rpartition("/")
        matching = [name for name in tree.names(folder) if fnmatchcase(name, names)]
        found += [f"{folder}/{name}" for name in matching]
    return list(dict.fromkeys(found))


def _text(tree: Tree, path: str) -> str | None:
    data = tree.data(path)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        raise NotConfigurable(
            f"{path} is not UTF-8, so containerd's configuration is left alone: correct the file"
        ) from None
