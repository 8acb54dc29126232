"""Debian packages that are downloaded and unpacked, never installed."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from libs.testing.go_build import NotBuilt


def unpack(packages: Sequence[str], into: Path, *, options: Sequence[str] = ()) -> None:
    """Download packages, of the release that this machine has, and unpack them into a folder.

    `options` are those of apt-get.
    """
    names = ", ".join(packages)
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotBuilt(
            f"these come as Debian packages, and this machine has no apt-get and dpkg: {names}"
        )
    with tempfile.TemporaryDirectory(prefix="sluice-packages-") as folder:
        fetched = _run("apt-get", *options, "download", *packages, folder=Path(folder))
        files = sorted(Path(folder).glob("*.deb"))
        if len(files) != len(packages):
            raise NotBuilt(
                f"apt-get could not download all of {names}: check the network, or run "
                f"`apt-get update`. It says:\n{fetched}"
            )
        for file in files:
            if said := _run("dpkg", "-x", str(file), str(into), folder=into):
                raise NotBuilt(f"dpkg could not unpack {file.name}. It says:\n{said}")


_SOURCES: Final = Path("/etc/apt")


def own_state(folder: Path, *, components: str, suite: str = "") -> tuple[str, ...]:
    """Return options of apt-get for a state of its own, with other components than this machine's.

    Addresses and keys are those of this machine's sources. With a suite, the first source is of
    that one instead.
    """
    for part in ("etc", "lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    files = (*_SOURCES.glob("sources.list.d/*.sources"), *_SOURCES.glob("sources.list.d/*.list"))
    for file in (*sorted(files), *_SOURCES.glob("sources.list")):
        text = with_components(file.read_text(), components, suite)
        (folder / "etc" / file.name.replace("sources.list", "main.list")).write_text(text)
    options = (
        "-oDir::Etc::sourcelist=/dev/null",
        f"-oDir::Etc::sourceparts={folder / 'etc'}",
        f"-oDir::State::Lists={folder / 'lists'}",
        f"-oDir::Cache={folder / 'cache'}",
        "-oAcquire::Languages=none",
    )
    if said := _run("apt-get", *options, "update", folder=folder):
        raise NotBuilt(f"apt-get could not list the packages of {components}. It says:\n{said}")
    return options


def with_components(text: str, components: str, suite: str) -> str:
    """Replace the components of sources in either format; with a suite, also the first suite."""
    text = re.sub(r"(?m)^Components:.*", f"Components: {components}", text)
    text = re.sub(r"(?m)^(deb (?:\[.*?\] )?\S+ \S+) .*", rf"\1 {components}", text)
    if suite:
        text = re.sub(r"(?m)^Suites:.*", f"Suites: {suite}", text, count=1)
        text = re.sub(r"(?m)^(deb (?:\[.*?\] )?\S+) \S+", rf"\1 {suite}", text, count=1)
    return text


def with_dependencies(*packages: str) -> tuple[str, ...]:
    """Return the names of these packages and of all that they depend on, whatever is installed."""
    if shutil.which("apt-get") is None:
        raise NotBuilt(
            f"these come as Debian packages, and this machine has no apt-get: {', '.join(packages)}"
        )
    done = subprocess.run(
        [
            *("apt-get", "install", "--simulate", "--no-install-recommends"),
            *("--option", "Dir::State::status=/dev/null", *packages),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    rows = (line.split() for line in done.stdout.splitlines())
    names = tuple(row[1] for row in rows if len(row) > 1 and row[0] == "Inst")
    if done.returncode or not names:
        raise NotBuilt(
            f"apt-get does not know what {', '.join(packages)} depend on: run `apt-get update`. "
            f"It says:\n{done.stderr.strip()}"
        )
    return names


def _run(*command: str, folder: Path) -> str:
    """Return what a command that failed says; empty if it succeeded."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout.strip() or f"exit code {done.returncode}" if done.returncode else ""
