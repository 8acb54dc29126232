"""Whether a loader finds an artefact's libraries, once its files are placed."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from libs.host.artefacts import installation, store
from libs.host.artefacts.kernel_modules import NO_MODULES, Problem
from libs.host.artefacts.system import library_folder
from libs.host.tree import Tree
from tests.builders.machine_files import link, put
from tests.unit.host.artefacts import packing
from tests.unit.host.artefacts.packing import LIBRARIES, deliver
from tests.unit.host.artefacts.test_formats import DIGEST, VERSION

CURRENT = f"{LIBRARIES}/nvidia/current"
DEBIAN = "ID=debian\nVERSION_ID=12\n"
RED_HAT = "ID=rhel\nVERSION_ID=9.4\n"


def problems(
    root: Path, files: Mapping[str, bytes | str], *, release: str = DEBIAN
) -> tuple[Problem, ...]:
    put(root, "/etc/os-release", release)
    source = deliver(root, "driver.deb", "deb", packing.deb(files))
    tree = Tree(root)
    index = store.stage(tree, DIGEST, [source], libraries=LIBRARIES)
    found = installation.problems(tree, index, "6.1.0-56-amd64")
    return tuple(each for each in found if each.code != NO_MODULES)


def debian_packages() -> dict[str, bytes | str]:
    """Return the files as Debian's packages have them: the links are made by their scripts."""
    libraries = packing.driver(VERSION, libraries=CURRENT)
    return {**libraries, "/usr/lib/nvidia/current/nvidia-smi": b"smi"}


def test_libraries_where_no_loader_looks_are_named_beforehand(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, debian_packages())
    assert problem.code == "libraries"
    assert problem.message == (
        "no program of this machine would find libnvidia-ml.so.1 and libcuda.so.1: the artefact has"
        f" them in {CURRENT}, where no loader looks"
    )
    assert (
        f"links to them in {library_folder(Tree(tmp_path), os.uname().machine)}" in problem.remedy
    )


def test_an_artefact_without_libraries_is_named_beforehand(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, {"/usr/bin/nvidia-smi": b"smi"})
    assert problem.code == "libraries"
    assert problem.message.endswith("libcuda.so.1: the artefact does not have them")


@pytest.mark.parametrize("above", [LIBRARIES, "/lib/x86_64-linux-gnu"])
def test_links_that_lead_to_the_libraries_make_them_found(tmp_path: Path, above: str) -> None:
    put(tmp_path, "/usr/lib/locale/C.utf8", "")
    link(tmp_path, "/lib", "usr/lib")
    links = {
        f"{above}/libcuda.so.1": "/etc/alternatives/libcuda.so.1",
        "/etc/alternatives/libcuda.so.1": f"{CURRENT}/libcuda.so.1",
        f"{above}/libnvidia-ml.so.1": "nvidia/current/libnvidia-ml.so.1",
    }
    assert problems(tmp_path, {**debian_packages(), **links}) == ()


@pytest.mark.parametrize("target", ["libcuda.so.1", "/nowhere", "../../../../../nowhere"])
def test_a_link_that_leads_nowhere_makes_nothing_found(tmp_path: Path, target: str) -> None:
    files = {**packing.driver(VERSION), f"{LIBRARIES}/libcuda.so.1": target}
    (problem,) = problems(tmp_path, files)
    assert problem.message == (
        f"no program of this machine would find libcuda.so.1: the artefact has links in {LIBRARIES}"
        " that lead to no file"
    )


def test_the_folder_is_that_of_the_machines_system(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, packing.driver(VERSION), release=RED_HAT)
    assert f"has them in {LIBRARIES}, where no loader looks" in problem.message
    assert "links to them in /usr/lib64" in problem.remedy


def test_libraries_that_are_on_the_machine_already_count(tmp_path: Path) -> None:
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        put(tmp_path, f"{LIBRARIES}/{name}", "ELF")
    assert problems(tmp_path, {"/usr/bin/nvidia-smi": b"smi"}) == ()


def test_libraries_that_are_taken_back_before_do_not_count(tmp_path: Path) -> None:
    put(tmp_path, "/etc/os-release", DEBIAN)
    tree, digest = Tree(tmp_path), "sha256:" + "b" * 64
    source = deliver(tmp_path, "old.deb", "deb", packing.deb(packing.driver("570.86.15")))
    index = store.stage(tree, digest, [source], libraries=LIBRARIES)
    wanted = installation.Installation(artefact=digest, install_digest="i", label="d")
    installation.place(tree, wanted, index)
    (problem,) = problems(tmp_path, debian_packages())
    assert problem.code == "libraries"
