"""The image that is shipped: small, the same each time, without rights, and its SBOM."""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.testing.image.assemble import assemble, foreign_libraries, image_layers
from libs.testing.image.build import IMAGE, is_quick
from libs.testing.image.context import CHECKOUT, DOCKERFILE, config, write_requirements
from libs.testing.image.sbom import sbom
from libs.testing.oci import write_image
from tests.component.chart.rendered import CHART

LARGEST = 150 * 1024 * 1024
PINNED = re.compile(r"^([a-z0-9-]+)==([^ ;]+)(?: ; (.*?))? \\$", re.MULTILINE)
NEEDED_BY_CURL = re.compile(r"usr/(bin/curl$|lib/[^/]+-linux-gnu/)")

pytestmark = pytest.mark.together("image")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not is_quick(os.environ):
        pytest.skip("no image: run `make image`")
    target = tmp_path_factory.mktemp("image") / "image.tar"
    assemble(target, IMAGE, os.environ, report=lambda _: None)
    return target


@pytest.fixture(scope="module")
def document(archive: Path) -> dict[str, Any]:
    """The image's SBOM."""
    return sbom(archive)


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {each.name: file.read() for each in tar if (file := tar.extractfile(each))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """What is in an archive."""

    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: list[bytes]
    """As tars."""

    def entries(self) -> Iterator[tarfile.TarInfo]:
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                yield from tar


def read(archive: Path) -> Image:
    found = blobs(archive)

    def blob(descriptor: dict[str, Any]) -> bytes:
        return found[f"blobs/{descriptor['digest'].replace(':', '/')}"]

    (only,) = json.loads(found["index.json"])["manifests"]
    manifest = json.loads(blob(only))
    return Image(
        manifest=manifest,
        config=json.loads(blob(manifest["config"])),
        layers=[gzip.decompress(blob(each)) for each in manifest["layers"]],
    )


@pytest.fixture(scope="module")
def image(archive: Path) -> Image:
    """The image, unpacked once for all tests."""
    return read(archive)


@pytest.mark.dear("the image that the file shares is made and unpacked here")
def test_it_is_small(image: Image) -> None:
    assert sum(layer["size"] for layer in image.manifest["layers"]) <= LARGEST


@pytest.mark.dear("compiles our code and packs it, to compare the bytes")
def test_two_builds_are_the_same(archive: Path, image: Image, tmp_path: Path) -> None:
    """Our code is packed and compiled anew; the other layers are too large to be packed twice."""
    layers = image_layers(os.environ, report=lambda _: None)
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    assert digests == image.config["rootfs"]["diff_ids"]
    again = tmp_path / "again.tar"
    architecture = image.config["architecture"]
    write_image(again, IMAGE, layers[-1:], config(), architecture=architecture)
    small = read(again)
    assert small.manifest["layers"] == image.manifest["layers"][-1:]
    rest = {"rootfs": {**image.config["rootfs"], "diff_ids": digests[-1:]}}
    assert small.config == {**image.config, **rest}
    for file in (archive, again):
        with tarfile.open(file) as tar:
            assert {(each.mtime, each.uid, each.gid) for each in tar} == {(0, 0, 0)}


def test_it_runs_as_nobody(image: Image) -> None:
    assert image.config["config"]["User"] == "65532:65532"
    privileged = [each.name for each in image.entries() if each.isfile() and each.mode & 0o6000]
    assert privileged == []


def test_it_has_neither_shell_nor_installer(image: Image) -> None:
    names = {each.name for each in image.entries()}
    assert "opt/sluice/services/driver/__main__.py" in names
    assert not names & {"usr/bin/sh", "usr/bin/bash", "usr/bin/pip", "usr/bin/apt-get"}
    assert not [name for name in names if "/pip/" in name]


def test_its_curl_reads_a_page_with_libraries_of_the_image_alone(
    image: Image, tmp_path: Path
) -> None:
    with tarfile.open(fileobj=io.BytesIO(image.layers[0])) as layer:
        needed = [each for each in layer if NEEDED_BY_CURL.match(each.name)]
        layer.extractall(tmp_path, needed, filter="tar")
    libraries = next((tmp_path / "usr/lib").glob("*-linux-gnu"))
    loader = next(libraries.glob("ld-linux-*.so.*"))
    curl = (loader, "--library-path", libraries, tmp_path / "usr/bin/curl")
    loaded = run(*curl[:-1], "--list", curl[-1])
    found = re.findall(r" => (\S+)", loaded)
    assert len(found) > 20
    assert [each for each in found if not Path(each).is_relative_to(tmp_path)] == []
    assert "not found" not in loaded
    page = tmp_path / "page"
    page.write_text("DCGM_FI_DEV_GPU_TEMP 40\n")
    assert run(*curl, f"file://{page}") == page.read_text()


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_labels_say_what_it_is(image: Image) -> None:
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    labels = image.config["config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == chart["name"]
    assert labels["org.opencontainers.image.version"] == version == chart["appVersion"]
    assert labels["org.opencontainers.image.description"] == chart["description"]


def test_the_dockerfile_ships_no_builder() -> None:
    parts = re.split(r"^FROM (.*)$", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
    stages = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(stages) == ["${BASE} AS base", "base AS build", "base"]
    assert "RUN" not in stages["base"]
    assert "pip" not in stages["${BASE} AS base"]


def test_the_sbom_has_every_locked_distribution_and_no_other(
    document: dict[str, Any], tmp_path: Path
) -> None:
    write_requirements(tmp_path / "requirements.txt")
    locked = {
        name: (version, condition)
        for name, version, condition in PINNED.findall((tmp_path / "requirements.txt").read_text())
    }
    found = {
        each["name"]: each["version"]
        for each in document["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    assert found.pop("sluice")
    assert {name: locked[name][0] for name in found} == found
    # What is locked and not there is for another system or Python.
    assert all(condition for name, (_, condition) in locked.items() if name not in found)
    assert len(found) > 20


def test_the_sbom_has_the_packages_of_the_base(document: dict[str, Any]) -> None:
    packages = {
        each["name"]: each["purl"]
        for each in document["components"]
        if each["purl"].startswith("pkg:deb/")
    }
    expected = {"libc6", "libssl3", "python3.11-minimal", "ca-certificates", "curl", "libcurl4"}
    assert expected <= packages.keys()
    assert all("distro=debian-12" in purl for purl in packages.values())


def test_the_sbom_is_of_cyclonedx_and_depends_on_the_image_alone(
    archive: Path, document: dict[str, Any]
) -> None:
    assert document == sbom(archive)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    references = [each["bom-ref"] for each in document["components"]]
    assert len(references) == len(set(references))
    (whole,) = document["dependencies"]
    assert whole == {"ref": document["metadata"]["component"]["bom-ref"], "dependsOn": references}
    assert "timestamp" not in document["metadata"]


def test_a_library_of_another_architecture_is_found(tmp_path: Path) -> None:
    """A dependency without a wheel is built here, for this machine."""
    for name, machine in (("x86.so", 62), ("arm.so.1", 183)):
        (tmp_path / name).write_bytes(b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little"))
    (tmp_path / "linker.so").write_text("GROUP ( libc.so.6 )")
    assert foreign_libraries(tmp_path, "arm64") == ["x86.so"]
    assert foreign_libraries(tmp_path, "amd64") == ["arm.so.1"]
