"""The ConfigMap that names the artefacts of host drivers by digest.

    data:
      folder: /srv/drivers
      driver-580.95.05-ubuntu24.04-amd64: |
        sha256:… deb libnvidia-compute-580.deb
        sha256:… tar modules-6.8.0-48-generic.tar.xz
      cuda-12.9-ubuntu24.04-amd64: |
        sha256:… deb cuda-cudart-12-9.deb

An artefact is a list of files. Its digest is computed of theirs, so it names exactly that content;
commands to agents carry it, and no path. A driver with CUDA's libraries is one artefact of both
lists.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from libs.policy.variants import Variant
from libs.policy.wanted import WantedDriver

CONFIG_MAP: Final = "sluice-driver-artefacts"
"""The name of the ConfigMap, in the namespace of the operands."""
FOLDER_KEY: Final = "folder"
DEFAULT_FOLDER: Final = "/var/lib/sluice-artefacts"
"""The folder of each node where the files are."""
KINDS: Final = ("deb", "rpm", "run", "tar")

_DRIVER: Final = "driver-"
_CUDA: Final = "cuda-"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9+~_.:-]{1,200}")
_MAX_FILES: Final = 100
"""Files of an artefact, which is a few packages; each file is brought to each node."""


class ArtefactFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an artefact."""

    sha256: str
    """Hexadecimal."""
    kind: str
    name: str
    """In the folder of the artefacts."""


class Artefact(msgspec.Struct, frozen=True):
    files: tuple[ArtefactFile, ...]

    @property
    def digest(self) -> str:
        """Identify the content: the same files under other names are the same artefact."""
        content = [[each.kind, each.sha256] for each in self.files]
        text = msgspec.json.encode(["sluice.dev/artefact/1", content])
        return f"sha256:{hashlib.sha256(text).hexdigest()}"

    def __add__(self, other: "Artefact") -> "Artefact":
        return Artefact((*self.files, *other.files))


class Artefacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ConfigMap says."""

    folder: str = DEFAULT_FOLDER
    named: Mapping[str, Artefact] = {}
    """By key."""
    problems: Mapping[str, str] = {}
    """By key, what is wrong with its text."""
    exists: bool = True
    """Whether there is such a ConfigMap."""

    def find(self, digest: str) -> Artefact | None:
        """Return the artefact with this digest, with or without CUDA libraries."""
        return next((each for each in self._all() if each.digest == digest), None)

    def _all(self) -> Iterator[Artefact]:
        for key, driver in self.named.items():
            if key.startswith(_DRIVER):
                yield driver
                yield from (
                    driver + cuda
                    for other, cuda in self.named.items()
                    if other.startswith(_CUDA) and key.endswith(_system_of(other))
                )


NO_ARTEFACTS: Final = Artefacts(exists=False)


def parse_artefacts(data: Mapping[str, str]) -> Artefacts:
    """Read the ConfigMap; a key that cannot be read spoils no other."""
    named: dict[str, Artefact] = {}
    problems: dict[str, str] = {}
    folder = data.get(FOLDER_KEY, "").strip() or DEFAULT_FOLDER
    if not folder.startswith("/") or ".." in folder.split("/"):
        problems[FOLDER_KEY] = f"{folder} is no absolute path"
    for key, text in data.items():
        if not key.startswith((_DRIVER, _CUDA)):
            continue
        found = _artefact(text)
        if isinstance(found, str):
            problems[key] = found
        else:
            named[key] = found
    return Artefacts(folder=folder.rstrip("/") or "/", named=named, problems=problems)


def wanted_artefact(artefacts: Artefacts, driver: WantedDriver, variant: Variant) -> Artefact | str:
    """Return the artefact for a driver on nodes of a variant, or why there is none."""
    if not driver.version:
        return "the policy names no version: set spec.driver.version"
    found = _named(artefacts, f"{_DRIVER}{driver.version}", variant)
    if isinstance(found, str) or not driver.cuda:
        return found
    cuda = _named(artefacts, f"{_CUDA}{driver.cuda}", variant)
    return cuda if isinstance(cuda, str) else found + cuda


def artefacts_by_system(artefacts: Artefacts, driver: WantedDriver) -> dict[str, str]:
    """Return the digests of the artefacts of a driver on all systems, by key.

    A version that begins like this one and goes on after a hyphen is among them, too.
    """
    prefixes = [f"{_DRIVER}{driver.version}-"] if driver.version else []
    prefixes += [f"{_CUDA}{driver.cuda}-"] if driver.cuda else []
    return {
        key: artefact.digest
        for key, artefact in artefacts.named.items()
        if key.startswith(tuple(prefixes))
    }


def _named(artefacts: Artefacts, what: str, variant: Variant) -> Artefact | str:
    key = f"{what}-{variant.os_tag}-{variant.architecture}"
    for each in (FOLDER_KEY, key):
        if problem := artefacts.problems.get(each):
            return f"key {each} of ConfigMap {CONFIG_MAP} cannot be used: {problem}"
    if found := artefacts.named.get(key):
        return found
    if not artefacts.exists:
        return (
            f"there is no ConfigMap {CONFIG_MAP} in the namespace of the operands, which names the"
            f" files of drivers: create it, with the key {key}"
        )
    return f"ConfigMap {CONFIG_MAP} names no artefact {key}: add that key"


def _artefact(text: str) -> Artefact | str:
    files: list[ArtefactFile] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or not _DIGEST.fullmatch(words[0]):
            return f"line {number} is not of the form: sha256:DIGEST KIND FILE"
        digest, kind, name = words
        if kind not in KINDS:
            return f"line {number}: {kind} is no kind: {', '.join(KINDS)} are"
        if not _NAME.fullmatch(name) or name.startswith("."):
            return f"line {number}: {name} is no name of a file in the folder"
        files.append(ArtefactFile(sha256=digest.removeprefix("sha256:"), kind=kind, name=name))
    if not files:
        return "it names no file"
    if len(files) > _MAX_FILES:
        return f"it names more than {_MAX_FILES} files"
    return Artefact(tuple(files))


def _system_of(key: str) -> str:
    """Return the end of a key that names the system and architecture, with its hyphen."""
    return "-" + "-".join(key.rsplit("-", 2)[1:])
