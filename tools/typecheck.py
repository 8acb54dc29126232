"""Check types as `pyright --warnings` does, but only where its answer can have changed.

What pyright says of a file follows from its text, from those of our files that it imports, directly
or not, from the settings, and from the packages. As long as all of them are what they were when
the file was found clean, it is not checked again. `--all` checks every file.
"""

import argparse
import ast
import hashlib
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import run
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[1]
FOUND: Final = ".cache/types/found.json"
COMMON: Final = ("pyproject.toml", "requirements.lock")
"""Files that can change the answer for every file: settings, packages and pyright's version."""

Check = Callable[[Sequence[str]], int]
"""Checks the types of some files, or of all if none is named; returns the exit status."""


class Found(msgspec.Struct):
    """What earlier runs found."""

    clean: set[str] = msgspec.field(default_factory=set[str])
    """The keys of the files that were clean."""
    names: dict[str, list[str]] = msgspec.field(default_factory=dict[str, list[str]])
    """By digest of a text: what it imports. To parse all files takes seconds."""


def imported_names(text: bytes) -> list[str]:
    """Return each dotted name that may be a module which a text imports, at any place in it.

    Relative names begin with as many dots as in the source. A text that cannot be parsed imports
    nothing; pyright says why.
    """
    names: set[str] = set()
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (f"{node.module}." if node.module else "")
            names.update(start + alias.name for alias in node.names)
    return sorted(names)


def candidates(name: str, package: Sequence[str], roots: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return the modules that an import in a file of this package may read: with each its parents.

    Pyright looks beside the file first, and then below each root.
    """
    parts = name.lstrip(".").split(".")
    level = len(name) - len(name.lstrip("."))
    bases = [package[: len(package) - level + 1]] if level else [package, *roots]
    for base in bases:
        for count in range(1 if base else 0, len(base) + len(parts) + 1):
            yield ".".join([*base, *parts][:count])


def keys(root: Path, found: Found) -> dict[str, str]:
    """Return by file that pyright checks a digest of all that its answer follows from."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pyright"]
    texts = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in settings["include"]
        for path in sorted((root / folder).rglob("*.py*"))
        if path.suffix in (".py", ".pyi")
    }
    digests = {path: _digest(path, text) for path, text in texts.items()}
    found.names = {
        digests[path]: found.names.get(digests[path]) or imported_names(text)
        for path, text in texts.items()
    }
    modules: dict[str, set[str]] = {}
    for path in texts:
        modules.setdefault(_module(path), set()).add(path)
    roots = [(), *((each["root"],) for each in settings.get("executionEnvironments", ()))]
    imports = {
        path: {
            file
            for name in found.names[digest]
            for module in candidates(name, path.split("/")[:-1], roots)
            for file in modules.get(module, ())
        }
        for path, digest in digests.items()
    }
    common = _digest(sys.version, *((root / each).read_bytes() for each in COMMON))
    return {
        path: _digest(common, *(digests[each] for each in [path, *sorted(_below(path, imports))]))
        for path in texts
        if not any(Path(path).match(pattern) for pattern in settings["exclude"])
    }


def _module(path: str) -> str:
    parts = path.rpartition(".")[0].split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _below(path: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return what a file imports, directly or not."""
    below: set[str] = set()
    ahead = [path]
    while ahead:
        new = imports[ahead.pop()] - below
        below |= new
        ahead += new
    return below


def _digest(*parts: str | bytes) -> str:
    """Return a digest that differs if any part does, or if they are divided otherwise."""
    each = [part.encode() if isinstance(part, str) else part for part in parts]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in each)).hexdigest()


def check_changed(root: Path, check: Check, *, everything: bool = False) -> int:
    """Check what was not found clean as it is now; return the exit status."""
    store = root / FOUND
    found = msgspec.json.decode(store.read_bytes(), type=Found) if store.exists() else Found()
    now = keys(root, found)
    due = [path for path, key in now.items() if everything or key not in found.clean]
    status = check(due if len(due) < len(now) else ()) if due else 0
    if status == 0:
        found.clean = set(now.values())
        store.parent.mkdir(parents=True, exist_ok=True)
        store.write_bytes(msgspec.json.encode(found))
    return status


def pyright(files: Sequence[str]) -> int:
    """Check types by pyright, which prints what it finds."""
    command = [str(Path(sys.executable).parent / "pyright"), "--warnings", *files]
    return run(command, cwd=ROOT, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Check types; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools.typecheck", description="Check types.")
    parser.add_argument("--all", action="store_true", help="check every file, changed or not")
    return check_changed(ROOT, pyright, everything=parser.parse_args(arguments).all)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
