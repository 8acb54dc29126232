"""Folders that look like a machine's root."""

from pathlib import Path

from libs.host.tree import Tree


def tree(root: Path, files: dict[str, str] | None = None, **links: str) -> Tree:
    for path, text in (files or {}).items():
        put(root, path, text)
    for path, target in links.items():
        link(root, path, target)
    return Tree(root)


def put(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, errors="surrogateescape")


def link(root: Path, path: str, target: str) -> None:
    """Create a link with the target as the machine would write it."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)
