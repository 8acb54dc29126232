"""What `make vendor` reads and says; it is run for real by whoever has its ground."""

import os
from pathlib import Path

import msgspec
import pytest

from libs.testing import debian
from libs.testing.go_build import NotBuilt
from libs.testing.guest import build as guest_build
from libs.testing.guest.build import KernelPackages
from libs.testing.vendor import build
from libs.testing.vendor.compiling import complaints
from libs.testing.vendor.layout import Driver
from libs.testing.vendor.releases import Release, Repair, releases

DEB822 = """\
Types: deb
URIs: mirror
Suites: bookworm bookworm-updates
Components: main
Signed-By: key

Types: deb
URIs: mirror
Suites: bookworm-security
Components: main contrib
"""
ONE_LINE = """\
deb [signed-by=key] mirror bookworm main
deb mirror bookworm-security main contrib
"""


def test_sources_of_packages_get_other_components_in_either_format() -> None:
    own = debian.with_components(DEB822, "contrib non-free", "")
    assert own.count("Components: contrib non-free\n") == 2
    assert "Suites: bookworm bookworm-updates" in own
    assert debian.with_components(ONE_LINE, "non-free", "") == (
        "deb [signed-by=key] mirror bookworm non-free\ndeb mirror bookworm-security non-free\n"
    )


def test_a_newer_suite_takes_the_place_of_the_first_one() -> None:
    own = debian.with_components(DEB822, "non-free", "trixie")
    assert [line for line in own.splitlines() if line.startswith("Suites")] == [
        "Suites: trixie",
        "Suites: bookworm-security",
    ]
    assert debian.with_components(ONE_LINE, "non-free", "trixie") == (
        "deb [signed-by=key] mirror trixie non-free\ndeb mirror bookworm-security non-free\n"
    )


def test_a_release_whose_table_changes_is_built_anew() -> None:
    release = releases()[0]
    repair = Repair(file="nvidia/nv.c", old="a", new="b", why="it does not compile")
    other = msgspec.structs.replace(release, repair=(repair,))
    assert release.name.startswith(f"{release.version}-")
    assert other.name != release.name


def test_an_upgrade_has_two_versions_of_different_branches() -> None:
    old, new = releases()[:2]
    assert old.version.partition(".")[0] < new.version.partition(".")[0]


def test_what_does_not_compile_is_named_by_the_compilers_errors() -> None:
    said = ["CC [M] nv.o", "nv-pci.c:223:9: error: too few arguments", *["CC [M] uvm.o"] * 40]
    assert complaints("\n".join(said)) == "  nv-pci.c:223:9: error: too few arguments"
    assert complaints("one\nmake: *** No rule") == "  one\n  make: *** No rule"


def test_without_a_driver_the_tests_say_which_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert "`make guest`" in build.find_vendor(environ).explanation
    guest_build.cache_folder(environ).mkdir(parents=True)
    old, new = releases()[:2]
    folder = build.cache_folder(environ)
    (folder / old.name).mkdir(parents=True)
    found = build.find_vendor(environ)
    assert found.folder is None
    assert found.explanation == (
        f"no driver of NVIDIA's: it needs modules and libraries of {new.version} (`make vendor`)"
    )
    for release in releases():
        (folder / release.name).mkdir(exist_ok=True)
    assert build.find_vendor(environ).folder == folder


class Workshop:
    """Stands in for apt and the compiler: the kernel's name, and which release does not compile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernel = "6.1.0-1-amd64"
        self.broken = ""
        self.done: list[str] = []
        monkeypatch.setattr(KernelPackages, "unpack", self.unpack)
        monkeypatch.setattr(build, "fetch", self.fetch)
        monkeypatch.setattr(build, "add_driver", self.add_driver)

    def unpack(self, folder: Path, _: object) -> KernelPackages:
        for path in (f"usr/src/linux-headers-{self.kernel}", "bin", "boot"):
            (folder / path).mkdir(parents=True)
        for path in ("bin/busybox", "boot/vmlinuz-1"):
            (folder / path).write_text(self.kernel)
        return KernelPackages(folder)

    def fetch(self, release: Release, work: Path, _: object) -> Path:
        self.done.append(f"fetch {release.version}")
        return work

    def add_driver(self, release: Release, driver: Driver, *_: object) -> None:
        self.done.append(f"compile {release.version}")
        if release.version == self.broken:
            raise NotBuilt("it does not compile")
        driver.modules.mkdir(parents=True)
        (driver.modules / "nvidia.ko").write_text(self.kernel)


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(monkeypatch)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    guest_build.cache_folder(environ).mkdir(parents=True)
    return environ


def test_all_releases_are_fetched_before_one_is_compiled_and_none_twice(
    workshop: Workshop, environ: dict[str, str]
) -> None:
    said: list[str] = []
    folder = build.build(environ, report=said.append)
    versions = [release.version for release in releases()]
    assert workshop.done == [f"{step} {each}" for step in ("fetch", "compile") for each in versions]
    assert [driver.modules.is_dir() for driver in build.drivers(folder)] == [True] * len(versions)
    assert said[-1].startswith("0 MiB, built in ")
    assert build.build(environ, report=said.append) == folder
    assert len(workshop.done) == 2 * len(versions)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_release_that_does_not_compile_costs_the_others_nothing(
    workshop: Workshop, environ: dict[str, str]
) -> None:
    old, new = releases()[:2]
    workshop.broken = new.version
    with pytest.raises(NotBuilt):
        build.build(environ, report=print)
    workshop.broken, workshop.done = "", []
    build.build(environ, report=print)
    assert workshop.done == [f"fetch {new.version}", f"compile {new.version}"]
    assert old.name in {path.name for path in build.cache_folder(environ).iterdir()}


def test_drivers_go_that_were_compiled_for_another_kernel(
    workshop: Workshop, environ: dict[str, str]
) -> None:
    old, new = releases()[:2]
    workshop.broken = new.version
    with pytest.raises(NotBuilt):
        build.build(environ, report=print)
    workshop.broken, workshop.kernel = "", "6.1.0-2-amd64"
    folder = build.build(environ, report=print)
    found = {driver.version: driver.modules / "nvidia.ko" for driver in build.drivers(folder)}
    assert found[old.version].read_text() == found[new.version].read_text() == workshop.kernel
    assert (folder / "vmlinuz").read_text() == workshop.kernel
