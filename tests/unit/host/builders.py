"""Trees of files for tests: folders that look like a machine's root."""

from pathlib import Path

from libs.host.tree import Tree


def tree(root: Path, files: dict[str, str] | None = None, **links: str) -> Tree:
    """A machine's root with these files."""
    for path, text in (files or {}).items():
        put(root, path, text)
    for path, target in links.items():
        link(root, path, target)
    return Tree(root)


def put(root: Path, path: str, text: str) -> None:
    """One file."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def link(root: Path, path: str, target: str) -> None:
    """One link, which says what a machine's own link would say."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
