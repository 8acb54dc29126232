"""A driver on the hosts themselves, killed at any moment: taken back byte for byte, or refused."""

import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from libs.host.artefacts import installation, store
from libs.host.artefacts.installation import Installation
from libs.host.artefacts.store import Index
from libs.host.artefacts.system import library_folder
from libs.host.files import PathTaken
from libs.host.tree import Tree
from libs.testing.module_files import module_file
from tests.builders.machine_files import put
from tests.component.driver.node.host_trees import (
    KERNEL,
    SYSTEMS,
    Killed,
    MortalTree,
    content_of,
    make_host,
)
from tests.unit.host.artefacts import packing
from tests.unit.host.artefacts.packing import deliver

OLD, NEW = "570.86.15", "580.95.05"
KINDS = {"debian": "deb", "ubuntu": "run", "rhel": "rpm"}


@pytest.fixture
def root() -> Iterator[Path]:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(prefix="sluice-host-", dir=memory) as folder:
        yield Path(folder)


def stage_small(root: Path, version: str) -> tuple[Installation, Index]:
    """Deliver and unpack an artefact of a file in a folder of its own, a file, and a link."""
    files = {
        f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin": version.encode(),
        f"/usr/lib64/libcuda.so.{version}": version.encode(),
        "/usr/lib64/libcuda.so.1": f"libcuda.so.{version}",
    }
    digest = f"sha256:{version.replace('.', ''):0>64}"
    source = deliver(root, f"{version}.tar", "tar", packing.tar(files))
    index = store.stage(Tree(root), digest, [source], libraries="/usr/lib64")
    return Installation(artefact=digest, install_digest=f"i-{version}", label=version), index


def stage(root: Path, system: str, version: str) -> tuple[Installation, Index]:
    """Deliver and unpack an artefact of the kind that is usual on the system, with modules."""
    tree = Tree(root)
    libraries = library_folder(tree, "x86_64")
    kind = KINDS[system]
    if kind == "run":
        packed = packing.run(version)
    else:
        packed = packing.PACKERS[kind](packing.driver(version, libraries=libraries))
    sources = [
        deliver(root, f"{version}.{kind}", kind, packed),
        deliver(root, f"{version}.tar", "tar", packing.tar(packing.modules(KERNEL, version))),
    ]
    digest = f"sha256:{version.replace('.', ''):0>64}"
    index = store.stage(tree, digest, sources, libraries=libraries)
    return Installation(artefact=digest, install_digest=f"i-{version}", label=version), index


def replace(tree: Tree, wanted: Installation, index: Index) -> None:
    """Install as the agent does after the modules are unloaded."""
    if installation.installed(tree) == wanted:
        return
    if installation.has_traces(tree):
        assert installation.take_back(tree) == ()
    installation.place(tree, wanted, index)


def without_store(found: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """Leave out what was unpacked in Sluice's own folder, which no program of the host reads."""
    return {path: each for path, each in found.items() if not path.startswith("var/lib/sluice")}


@pytest.mark.parametrize("system", SYSTEMS)
def test_install_upgrade_remove(system: str, root: Path) -> None:
    make_host(root, system)
    deliver(root, "x", "tar", b"")
    tree, before = Tree(root), content_of(root)
    old, new = stage(root, system, OLD), stage(root, system, NEW)
    placed: list[dict[str, tuple[object, ...]]] = []
    for wanted, index in (old, new, old):
        assert list(installation.problems(tree, index, KERNEL)) == []
        replace(tree, wanted, index)
        assert installation.installed(tree) == wanted
        assert installation.is_whole(tree, index)
        placed.append(without_store(content_of(root)))
    assert placed[0] == placed[2] != placed[1]
    changed = {path for path, each in placed[0].items() if before.get(path) != each}
    folders = {"rhel": "usr/lib64"}.get(system, "usr/lib/x86_64-linux-gnu")
    assert {
        f"{folders}/libcuda.so.{OLD}",
        f"{folders}/libcuda.so.1",
        "usr/bin/nvidia-smi",
    } < changed
    assert not any(path.startswith(f"usr/lib/modules/{KERNEL}") for path in changed)
    assert "etc/ld.so.cache" not in changed
    assert installation.take_back(tree) == ()
    store.keep_only(tree, ())
    shutil.rmtree(root / "srv/drivers")
    (root / "srv/drivers").mkdir()
    (root / "srv/drivers/x").touch()
    assert content_of(root) == before


@pytest.mark.parametrize("system", SYSTEMS)
def test_killed_at_any_moment_it_is_resumed_or_taken_back(system: str, root: Path) -> None:
    host = root / "host"
    make_host(host, system)
    old, new = stage_small(host, OLD), stage_small(host, NEW)
    empty = without_store(content_of(host))
    replace(Tree(host), *old)
    with_old, whole = without_store(content_of(host)), root / "whole"
    shutil.copytree(host, whole, symlinks=True)
    replace(Tree(host), *new)
    with_new = without_store(content_of(host))
    assert len({frozenset(each) for each in (empty, with_old, with_new)}) == 3
    moments = 0
    while True:
        shutil.rmtree(host)
        shutil.copytree(whole, host, symlinks=True)
        tree = MortalTree(host, dies_at=moments)
        try:
            replace(tree, *new)
        except Killed:
            pass
        else:
            break
        again = root / "again"
        shutil.copytree(host, again, symlinks=True)
        replace(Tree(again), *new)
        assert without_store(content_of(again)) == with_new, moments
        shutil.rmtree(again)
        _kill_taking_back(host, moments % 7)
        installation.take_back(Tree(host))
        assert without_store(content_of(host)) == empty, moments
        assert Tree(host).names("/var/lib/sluice") == ("artefacts",)
        moments += 1
    assert moments > 40


def _kill_taking_back(host: Path, moment: int) -> None:
    try:
        installation.take_back(MortalTree(host, dies_at=moment))
    except Killed:
        return


def test_unpacking_that_is_killed_is_begun_anew(root: Path) -> None:
    make_host(root, "debian")
    source = deliver(root, "d.deb", "deb", packing.deb(packing.driver(NEW)))
    digest, moments = "sha256:" + "d" * 64, 0
    while True:
        tree = MortalTree(root, dies_at=moments)
        try:
            expected = store.stage(tree, digest, [source], libraries=packing.LIBRARIES)
        except Killed:
            assert store.read_index(Tree(root), digest) is None or moments > 10
            moments += 1
            if moments % 5 == 0:
                found = store.stage(Tree(root), digest, [source], libraries=packing.LIBRARIES)
                assert store.read_index(Tree(root), digest) == found
                store.remove(Tree(root), digest)
            continue
        break
    assert store.read_index(Tree(root), digest) == expected


def test_a_file_of_others_is_never_replaced(root: Path) -> None:
    make_host(root, "ubuntu")
    put(root, "/usr/bin/nvidia-smi", "of a package\n")
    wanted, index = stage(root, "ubuntu", NEW)
    before = without_store(content_of(root))
    (problem,) = installation.problems(Tree(root), index, KERNEL)
    assert (problem.code, "/usr/bin/nvidia-smi" in problem.message) == ("file-exists", True)
    with pytest.raises(PathTaken, match="nvidia-smi"):
        installation.place(Tree(root), wanted, index)
    assert installation.installed(Tree(root)) is None
    assert installation.take_back(Tree(root)) == ()
    assert without_store(content_of(root)) == before


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"/lib/x": b"1", "/usr/lib/x": b"2"}, "/usr/lib/x is in the artefact twice"),
        ({"/usr/lib/e": "/root/.ssh", "/lib/e/keys": b""}, "/lib/e/keys is below"),
    ],
)
def test_paths_that_links_of_the_machine_make_one_are_named(
    files: dict[str, bytes | str], reason: str, root: Path
) -> None:
    make_host(root, "ubuntu")
    whole = {**packing.modules(KERNEL, NEW), **packing.driver(NEW), **files}
    sources = [deliver(root, "x.tar", "tar", packing.tar(whole))]
    index = store.stage(Tree(root), "sha256:" + "e" * 64, sources, libraries="/usr/lib")
    (problem,) = installation.problems(Tree(root), index, KERNEL)
    assert problem.code == "artefact-paths"
    assert reason in problem.message


@pytest.mark.parametrize("kind", ["a file", "a broken link"])
def test_what_stands_where_a_folder_has_to_be_is_named_before_the_node_is_drained(
    root: Path, kind: str
) -> None:
    make_host(root, "rhel")
    wanted, index = stage_small(root, NEW)
    parent = root / "usr/lib/firmware/nvidia"
    parent.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a file":
        parent.write_bytes(b"of others")
    else:
        parent.symlink_to("nowhere")
    before = content_of(root)
    (problem,) = installation.problems_of_files(Tree(root), index)
    assert (problem.code, "/lib/firmware/nvidia on" in problem.message) == ("file-exists", True)
    with pytest.raises(OSError, match="nvidia"):
        installation.place(Tree(root), wanted, index)
    installation.take_back(Tree(root))
    assert content_of(root) == before


def test_an_own_file_may_stand_where_a_folder_has_to_be(root: Path) -> None:
    make_host(root, "rhel")
    digests = ("sha256:" + "1" * 64, "sha256:" + "2" * 64)
    for digest, path in zip(digests, ("/usr/lib/x", "/usr/lib/x/y"), strict=True):
        source = deliver(root, "a.tar", "tar", packing.tar({path: b"a"}))
        index = store.stage(Tree(root), digest, [source], libraries="/usr/lib64")
        assert list(installation.problems_of_files(Tree(root), index)) == []
        replace(Tree(root), Installation(artefact=digest, install_digest="i", label=digest), index)
    assert (root / "usr/lib/x/y").read_bytes() == b"a"


def test_what_others_changed_since_stays(root: Path) -> None:
    make_host(root, "rhel")
    wanted, index = stage(root, "rhel", NEW)
    tree = Tree(root)
    installation.place(tree, wanted, index)
    (root / "usr/bin/nvidia-smi").write_bytes(b"patched\n")
    assert not installation.is_whole(tree, index)
    assert installation.take_back(tree) == ("/usr/bin/nvidia-smi",)
    assert (root / "usr/bin/nvidia-smi").read_bytes() == b"patched\n"
    assert not (root / f"usr/lib64/libcuda.so.{NEW}").exists()


def test_a_file_of_ours_that_others_changed_is_named_before_the_node_is_drained(
    root: Path,
) -> None:
    make_host(root, "rhel")
    wanted, index = stage(root, "rhel", OLD)
    tree = Tree(root)
    installation.place(tree, wanted, index)
    _, newer = stage(root, "rhel", NEW)
    assert list(installation.problems(tree, newer, KERNEL)) == []
    (root / "usr/bin/nvidia-smi").write_bytes(b"patched\n")
    (root / "usr/lib64/libcuda.so.1").unlink()
    (root / "usr/lib64/libcuda.so.1").symlink_to("libcuda.so.other")
    (problem,) = installation.problems(tree, newer, KERNEL)
    assert problem.code == "file-exists"
    assert "/usr/bin/nvidia-smi" in problem.message
    assert "/usr/lib64/libcuda.so.1 " in problem.message


class ReadOnlyTree(Tree):
    def is_read_only(self, path: str) -> bool:
        return path == "/usr"


def test_an_immutable_system_is_refused_beforehand(root: Path) -> None:
    make_host(root, "rhel")
    _, index = stage(root, "rhel", NEW)
    (problem,) = installation.problems(ReadOnlyTree(root), index, KERNEL)
    assert problem.code == "immutable-system"
    assert "/usr of this machine (Red Hat" in problem.message
    assert "mounted read-only" in problem.message
    put(root, "/run/ostree-booted", "")
    (problem,) = installation.problems(Tree(root), index, KERNEL)
    assert "booted by ostree" in problem.message
    (root / "run/ostree-booted").unlink()
    put(root, "/usr/lib/os-release", 'ID=flatcar\nPRETTY_NAME="Flatcar 4081"\n')
    (problem,) = installation.problems(Tree(root), index, KERNEL)
    assert "Flatcar 4081 is not among the systems" in problem.message
    assert "in a container" in problem.remedy


def test_another_kernel_and_a_full_disk_are_named(root: Path) -> None:
    make_host(root, "debian")
    _, index = stage(root, "debian", NEW)
    (problem,) = installation.problems(Tree(root), index, "6.8.0-99-generic")
    assert problem.code == "no-modules"
    assert f"kernel 6.8.0-99-generic, but for {KERNEL}" in problem.message

    class FullTree(Tree):
        def free_bytes(self, path: str) -> int | None:
            return 1 << 20

    (problem,) = installation.problems(FullTree(root), index, KERNEL)
    assert (problem.code, "1 MiB are free in /usr" in problem.message) == ("disk", True)
    assert list(installation.problems(FullTree(root), index, KERNEL, placed=True)) == []


def stage_files(root: Path, *files: Mapping[str, bytes | str]) -> Index:
    """Unpack one archive for each, as an artefact of its own."""
    sources = [
        deliver(root, f"{number}.tar", "tar", packing.tar(each))
        for number, each in enumerate(files)
    ]
    digest = sha256("".join(each.sha256 for each in sources).encode()).hexdigest()
    return store.stage(Tree(root), f"sha256:{digest}", sources, libraries="/usr/lib64")


def test_an_artefact_of_sources_alone_says_that_nothing_is_built(root: Path) -> None:
    make_host(root, "rhel")
    index = stage_files(root, {f"/usr/src/nvidia-{NEW}/dkms.conf": b'PACKAGE_NAME="nvidia"\n'})
    problem = next(installation.problems(Tree(root), index, KERNEL))
    assert problem.code == "no-modules"
    assert f"no modules for kernel {KERNEL}, but for no kernel; 0.tar has only" in problem.message
    assert "DKMS" in problem.remedy


def test_modules_and_libraries_of_two_drivers_are_refused_beforehand(root: Path) -> None:
    make_host(root, "rhel")
    libraries = packing.driver(OLD, libraries="/usr/lib64")
    index = stage_files(root, packing.modules(KERNEL, NEW), libraries)
    (problem,) = installation.problems(Tree(root), index, KERNEL)
    assert problem.code == "versions"
    assert f"{OLD}, {NEW}" in problem.message
    same = packing.driver(NEW, libraries="/usr/lib64")
    index = stage_files(root, packing.modules(KERNEL, NEW), same)
    assert list(installation.problems(Tree(root), index, KERNEL)) == []


def test_a_module_that_the_kernel_lacks_is_named_beforehand(root: Path) -> None:
    make_host(root, "rhel")
    path = f"/lib/modules/{KERNEL}/updates/nvidia.ko"
    libraries = packing.driver(NEW, libraries="/usr/lib64")
    index = stage_files(root, {path: module_file("nvidia", NEW, "ecdh_generic")}, libraries)
    (problem,) = installation.problems(Tree(root), index, KERNEL)
    assert problem.code == "no-modules"
    assert "module nvidia needs module ecdh_generic" in problem.message
    assert problem.message.endswith(f"for kernel {KERNEL}")
    index = stage_files(root, {path: module_file("nvidia", NEW, "video")}, libraries)
    assert list(installation.problems(Tree(root), index, KERNEL)) == []


def test_the_space_of_the_old_driver_counts_as_free(root: Path) -> None:
    make_host(root, "debian")
    old, index = stage(root, "debian", OLD)
    _, newer = stage(root, "debian", NEW)

    class NearlyFullTree(Tree):
        def free_bytes(self, path: str) -> int | None:
            return (256 << 20) + 100

    tree = NearlyFullTree(root)
    assert [each.code for each in installation.problems(tree, newer, KERNEL)] == ["disk"]
    installation.place(Tree(root), old, index)
    assert list(installation.problems(tree, newer, KERNEL)) == []
