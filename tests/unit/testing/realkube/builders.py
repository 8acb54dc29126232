"""Folders with fake binaries of a control plane."""

from collections.abc import Iterable
from pathlib import Path

from libs.testing.realkube.binaries import NAMES

GO_MOD = "module m\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.37.1\n"


def program(file: Path, script: str = "exit 0") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def programs(folder: Path, names: Iterable[str] = NAMES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        program(folder / name)
    return folder


def go_modules(folder: Path) -> Path:
    (folder / "etcd").mkdir(parents=True)
    (folder / "go.mod").write_text(GO_MOD)
    for name in ("go.sum", "etcd/go.mod", "etcd/go.sum"):
        (folder / name).write_text("")
    return folder
