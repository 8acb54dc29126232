"""What an image consists of, as a CycloneDX document, read from the image itself.

Python's distributions and Debian's packages are found as other programs find them, so that the
document also holds for an image that a builder made.
"""

import email.parser
import gzip
import io
import json
import tarfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

_METADATA: Final = ".dist-info/METADATA"
_DPKG, _DPKG_FOLDER = "var/lib/dpkg/status", "var/lib/dpkg/status.d/"
_LICENSES: Final = ("License-Expression", "License")
_HIDES: Final = ".wh."
_HIDES_ALL: Final = ".wh..wh..opq"
"""Marks by which a layer removes a file, or all of a folder, of those below it."""
_PYTHON: Final = "PYTHON_VERSION="
"""The variable by which an image of Python that is no package of Debian names its version."""
_LONGEST: Final = 100
"""A longer license is the text of one, not its name."""

Component = dict[str, Any]


def write_sbom(archive: Path, target: Path) -> None:
    """Write the document of an image's archive."""
    target.write_text(json.dumps(sbom(archive), indent=1) + "\n")


def sbom(archive: Path) -> dict[str, Any]:
    """Return the document; it depends on the image alone."""
    with tarfile.open(archive) as tar:
        config, layers = _open(tar)
        labels: Mapping[str, str] = config["config"].get("Labels") or {}
        distribution = ""
        found: dict[str, Component] = {}
        for name, content in _files(layers):
            if name.endswith("os-release"):
                distribution = _distribution(content)
            elif name.endswith(_METADATA):
                _add(found, _python_component(content))
            else:
                for record in content.split("\n\n"):
                    _add(found, _debian_component(record, distribution))
    _add(found, _interpreter(config["config"].get("Env") or ()))
    components = [found[key] for key in sorted(found)]
    product = {
        "type": "container",
        "bom-ref": "sluice",
        "name": labels["org.opencontainers.image.title"],
        "version": labels["org.opencontainers.image.version"],
    }
    content = json.dumps([product, config["rootfs"]["diff_ids"]])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {"component": product},
        "components": components,
        "dependencies": [{"ref": "sluice", "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _open(archive: tarfile.TarFile) -> tuple[dict[str, Any], Iterator[tarfile.TarFile]]:
    """Return the configuration and the layers of an OCI archive, or of one of `docker save`."""

    def read(name: str) -> bytes:
        file = archive.extractfile(name)
        if file is None:
            raise ValueError(f"{archive.name} has no file {name}")
        return file.read()

    def blob(descriptor: Mapping[str, str]) -> str:
        return f"blobs/{descriptor['digest'].replace(':', '/')}"

    if "manifest.json" in archive.getnames():
        (entry,) = json.loads(read("manifest.json"))
        config, layers = entry["Config"], entry["Layers"]
    else:
        first, *_ = json.loads(read("index.json"))["manifests"]
        manifest = json.loads(read(blob(first)))
        config, layers = blob(manifest["config"]), [blob(each) for each in manifest["layers"]]

    def opened() -> Iterator[tarfile.TarFile]:
        for name in layers:
            data = read(name)
            data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
            with tarfile.open(fileobj=io.BytesIO(data)) as layer:
                yield layer

    return json.loads(read(config)), opened()


def _files(layers: Iterable[tarfile.TarFile]) -> list[tuple[str, str]]:
    """Return name and text of the files that say what is in the image, os-release first."""
    texts: dict[str, str] = {}
    for layer in layers:
        entries = {entry.name.removeprefix("./"): entry for entry in layer}
        # What a layer hides is of those below it, wherever the mark is in its archive.
        for mark in filter(_is_mark, entries):
            texts = {name: text for name, text in texts.items() if not _is_hidden(name, mark)}
        for name, entry in entries.items():
            if _is_interesting(name) and entry.isfile() and (file := layer.extractfile(entry)):
                texts[name] = file.read().decode(errors="replace")
    return sorted(texts.items(), key=lambda each: (not each[0].endswith("os-release"), each))


def _is_interesting(name: str) -> bool:
    ends = (_METADATA, "usr/lib/os-release")
    return name.endswith(ends) or name == _DPKG or name.startswith(_DPKG_FOLDER)


def _is_mark(name: str) -> bool:
    return Path(name).name.startswith(_HIDES)


def _is_hidden(name: str, mark: str) -> bool:
    """Return whether a file of an earlier layer is removed by a mark of this one."""
    path = Path(mark)
    is_whole = path.name == _HIDES_ALL
    hidden = path.parent if is_whole else path.with_name(path.name.removeprefix(_HIDES))
    return Path(name).is_relative_to(hidden)


def _distribution(text: str) -> str:
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return f"{values.get('ID', '')}-{values.get('VERSION_ID', '')}".replace('"', "")


def _add(found: dict[str, Component], component: Component | None) -> None:
    if component:
        found[component["bom-ref"]] = component


def _python_component(text: str) -> Component:
    fields = email.parser.HeaderParser().parsestr(text)
    name = fields["Name"].lower().replace("_", "-").replace(".", "-")
    purl = f"pkg:pypi/{name}@{quote(fields['Version'])}"
    component = _component("library", name, fields["Version"], purl)
    licenses = [fields[each] for each in _LICENSES if fields[each]]
    if licenses and len(licenses[0]) <= _LONGEST:
        component["licenses"] = [{"license": {"name": licenses[0]}}]
    return component


def _debian_component(record: str, distribution: str) -> Component | None:
    fields = email.parser.HeaderParser().parsestr(record.lstrip())
    name, version = fields["Package"], fields["Version"]
    if not (name and version and "installed" in fields.get("Status", "").split()):
        return None
    qualifiers = f"arch={fields['Architecture']}"
    if distribution.strip("-"):
        qualifiers += f"&distro={distribution}"
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?{qualifiers}"
    return _component("library", name, version, purl)


def _interpreter(variables: list[str] | tuple[str, ...]) -> Component | None:
    for each in variables:
        if each.startswith(_PYTHON):
            version = each.removeprefix(_PYTHON)
            return _component("platform", "cpython", version, f"pkg:generic/cpython@{version}")
    return None


def _component(kind: str, name: str, version: str, purl: str) -> Component:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
