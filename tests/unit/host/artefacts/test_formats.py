"""The formats of artefacts: what is in them, and what is refused with a reason."""

import gzip
import io
import lzma
import random
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from libs.host.artefacts import deb, members, rpm, store, tar
from libs.host.artefacts.members import ArtefactError, Member, zstd
from libs.host.artefacts.store import Index
from libs.host.tree import Tree
from libs.testing.module_files import module_file
from tests.unit.host.artefacts import packing
from tests.unit.host.artefacts.packing import LIBRARIES, PACKERS, deliver

KERNEL = "6.8.0-48-generic"
VERSION = "580.95.05"
DIGEST = "sha256:" + "a" * 64


def staged(root: Path, kind: str, content: bytes) -> Index:
    source = deliver(root, f"driver.{kind}", kind, content)
    return store.stage(Tree(root), DIGEST, [source], libraries=LIBRARIES)


def unpacked(root: Path, index: Index) -> dict[str, tuple[int, bytes | str]]:
    """Return mode and content of every file, and the target of every link."""
    tree = Tree(root)
    return {
        each.path: (
            each.mode,
            each.link or tree.data(store.content_path(DIGEST, each.content)) or b"",
        )
        for each in index.files
    }


@pytest.mark.parametrize("kind", PACKERS)
def test_packages_and_archives_bring_their_files(kind: str, tmp_path: Path) -> None:
    files = {**packing.driver(VERSION), **packing.modules(KERNEL, VERSION)}
    index = staged(tmp_path, kind, PACKERS[kind](files))
    found = unpacked(tmp_path, index)
    expected = {
        path: (0 if isinstance(content, str) else 0o755 if "/bin/" in path else 0o644, content)
        for path, content in files.items()
        if ".ko" not in path
    }
    assert found == expected
    assert index.size == sum(len(each) for _, each in found.values() if isinstance(each, bytes))
    own = index.modules_for(KERNEL)
    assert {name: each.depends for name, each in own.items()} == {
        "nvidia": (),
        "nvidia_uvm": ("nvidia",),
        "nvidia_modeset": ("nvidia",),
    }
    uvm = Tree(tmp_path).data(store.content_path(DIGEST, own["nvidia_uvm"].content))
    assert uvm == module_file("nvidia_uvm", VERSION, "nvidia")
    assert {each.version for each in own.values()} == {VERSION}
    assert {each.signed for each in own.values()} == {False}
    assert index.modules_for("6.8.0-49-generic") == {}
    assert index.sources == ()


def test_the_signature_of_a_module_is_seen(tmp_path: Path) -> None:
    signed = module_file("nvidia", VERSION) + bytes(40) + b"~Module signature appended~\n"
    folder = f"/lib/modules/{KERNEL}/updates"
    files = {
        f"{folder}/nvidia.ko.xz": lzma.compress(signed),
        f"{folder}/nvidia-uvm.ko": signed.replace(b"name=nvidia", b"name=nvidia_uvm") + b"x",
    }
    own = staged(tmp_path, "tar", packing.tar(files)).modules_for(KERNEL)
    assert {name: each.signed for name, each in own.items()} == {
        "nvidia": True,
        "nvidia_uvm": False,
    }


@pytest.mark.parametrize(
    "path",
    [
        "/usr/src/nvidia-580.95.05/dkms.conf",
        "/usr/src/nvidia-open-580.95.05/kernel/Kbuild",
        "/usr/src/nvidia-kernel.tar.xz",
        "/usr/src/nvidia-open-kernel.tar.xz",
        "/usr/src/akmods/nvidia-kmod-580.95.05-1.fc42.src.rpm",
        f"/lib/modules/{KERNEL}/kernel/nvidia-580/bits/nv-kernel.o",
    ],
)
def test_a_package_with_what_modules_are_made_of_is_noted(path: str, tmp_path: Path) -> None:
    assert staged(tmp_path, "deb", packing.deb({path: b"x"})).sources == ("driver.deb",)


def test_an_installer_brings_what_computing_needs(tmp_path: Path) -> None:
    index = staged(tmp_path, "run", packing.run(VERSION))
    found = {path: (mode, content) for path, (mode, content) in unpacked(tmp_path, index).items()}
    assert found == {
        "/usr/bin/nvidia-smi": (0o755, b"nvidia-smi"),
        "/usr/bin/nvidia-modprobe": (0o4755, b"nvidia-modprobe"),
        "/etc/OpenCL/vendors/nvidia.icd": (0o444, b"nvidia.icd"),
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin": (0o444, b"firmware/gsp_ga10x.bin"),
        f"{LIBRARIES}/libnvidia-cfg.so.{VERSION}": (0o755, b"libnvidia-cfg.so.580.95.05"),
        f"{LIBRARIES}/libnvidia-cfg.so.1": (0, f"libnvidia-cfg.so.{VERSION}"),
        f"{LIBRARIES}/libnvidia-ml.so.{VERSION}": (0o755, b"libnvidia-ml.so.580.95.05"),
        f"{LIBRARIES}/libnvidia-ml.so.1": (0, f"libnvidia-ml.so.{VERSION}"),
        f"{LIBRARIES}/libcuda.so.{VERSION}": (0o755, b"libcuda.so.580.95.05"),
        f"{LIBRARIES}/libcuda.so.1": (0, f"libcuda.so.{VERSION}"),
    }
    assert index.modules == ()
    assert index.sources == ("driver.run",)


@pytest.mark.parametrize("kind", ["deb", "rpm", "tar", "run"])
def test_what_zstd_compressed_is_read(kind: str, tmp_path: Path) -> None:
    files = packing.driver(VERSION)
    content = {
        "deb": packing.deb(files, zstd.compress),
        "rpm": packing.rpm(files, zstd.compress),
        "tar": zstd.compress(packing.tar(files, mode="w:")),
        "run": packing.run(VERSION, zstd.compress),
    }
    other = {"run": packing.run(VERSION)}.get(kind) or PACKERS[kind](files)
    read = unpacked(tmp_path / "zstd", staged(tmp_path / "zstd", kind, content[kind]))
    assert read
    assert read == unpacked(tmp_path / "xz", staged(tmp_path / "xz", kind, other))


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
@pytest.mark.parametrize("compression", ["xz", "zstd"])
def test_a_package_of_dpkg_is_read(compression: str, tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN/control").write_text(
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n"
    )
    (source / "usr/bin").mkdir(parents=True)
    (source / "usr/bin/nvidia-smi").write_bytes(b"smi")
    (source / "usr/bin/nvidia-smi").chmod(0o755)
    (source / "usr/bin/again").hardlink_to(source / "usr/bin/nvidia-smi")
    package = tmp_path / "x.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "-b", str(source), str(package)],
        check=True,
        capture_output=True,
    )
    index = staged(root, "deb", package.read_bytes())
    found = unpacked(root, index)
    assert {path: content for path, (_, content) in found.items() if content} in (
        {"/usr/bin/again": b"smi", "/usr/bin/nvidia-smi": "/usr/bin/again"},
        {"/usr/bin/nvidia-smi": b"smi", "/usr/bin/again": "/usr/bin/nvidia-smi"},
    )


@pytest.mark.parametrize(
    ("kind", "content", "reason"),
    [
        ("deb", b"not a package", "it is no Debian package"),
        ("deb", packing.deb(packing.driver(VERSION))[:-2000], "driver.deb"),
        ("rpm", b"x" * 200, "it is no RPM package"),
        ("rpm", packing.rpm(packing.driver(VERSION))[:400], "driver.rpm"),
        ("run", b"#!/bin/sh\nexit 0\n", "it is no .run file"),
        ("run", b"#!/bin/sh\nskip=3\n" + packing.tar({"/a": b"a"}), "no manifest"),
        ("tar", b"nothing", "it is no tar archive"),
        ("tar", zstd.compress(packing.tar({"/usr/a": b"a"}, mode="w:"))[:-9], "is damaged"),
        ("tar", b"\x28\xb5\x2f\xfd" + b"x" * 100, "is damaged"),
        ("tar", packing.tar({"/etc/../root/.ssh/key": b"a"}), "shortest form"),
        ("tar", packing.tar({"/var/spool/cron/root": b"a"}), "where a driver belongs"),
        ("tar", packing.tar({"/usr/lib//modules/6/a.ko": b"a"}), "shortest form"),
        ("tar", packing.tar({"/lib/./modules/6/a.ko": b"a"}), "shortest form"),
        ("tar", packing.tar({"/usr/lib/x/.": b"a"}), "shortest form"),
        ("rpm", packing.rpm({"/usr/lib/a\0b": b"a"}), "NUL byte"),
        ("tar", packing.tar({"/usr/lib/" + "a" * 256: b"a"}), "more than 255 bytes"),
        ("tar", packing.tar({"/usr/lib/a": "a" * 4096}), "longer than 4095 bytes"),
        ("tar", packing.tar({"/usr/e": "/root/.ssh", "/usr/e/keys": b""}), "below /usr/e"),
        ("tar", packing.tar({"/usr/e/keys": b"", "/usr/e": "/root/.ssh"}), "/usr/e is a folder"),
        ("tar", packing.tar({"/usr/lib/\udcff": b"a"}), "is not UTF-8"),
        ("rpm", packing.rpm({"/usr/lib/\udcff": b"a"}), "is not UTF-8"),
        ("tar", packing.tar({"/usr/lib/a": "\udcff"}), "is not UTF-8"),
        ("tar", gzip.compress(packing.tar({"/usr/lib/" + "a" * (2 << 20): b""}, mode="w")), "MiB"),
        ("tar", gzip.compress(packing.tar({"/usr/a": "a" * (2 << 20)}, mode="w")), "than 1 MiB"),
        ("rpm", packing.rpm({"/usr/a": "a" * 4096}), "link /usr/a in it is longer than 4095"),
        ("rpm", packing.rpm({"/usr/" + "a" * 4096: b"a"}), "path in it is longer than 4095"),
        ("zip", b"PK", "zip is no kind of artefact"),
    ],
    ids=lambda value: value if isinstance(value, str) else "content",
)
def test_what_cannot_be_used_is_refused_in_words(
    kind: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtefactError, match=reason) as raised:
        staged(tmp_path, kind, content)
    assert not Tree(tmp_path).names(store.STORE)
    assert str(raised.value).encode()
    assert store.read_index(Tree(tmp_path), DIGEST) is None


def test_the_names_of_files_without_content_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpm, "MAX_NAMES", 3)
    head = b"070701" + b"".join(
        f"{each:08x}".encode() for each in (1, 0o100644, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0)
    )
    archive = (head + b"./usr/a/b\0") * 4
    empty = packing.rpm({})
    package = empty[: empty.index(b"\xfd7zXZ")] + lzma.compress(archive)
    with pytest.raises(ArtefactError, match="more than 3 names in it have no content"):
        staged(tmp_path, "rpm", package)


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:xz"])
def test_a_truncated_archive_names_the_file_at_which_it_ends(mode: str, tmp_path: Path) -> None:
    files = {f"/usr/lib/{name}": random.Random(name).randbytes(200_000) for name in "ab"}
    whole = packing.tar(files, mode=mode)
    with pytest.raises(ArtefactError, match=r"driver\.tar: it .* /usr/lib/b") as raised:
        staged(tmp_path, "tar", whole[: len(whole) * 3 // 4])
    assert "end" in str(raised.value)


def test_damaged_content_names_its_file(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(packing.tar({"/usr/lib/a": bytes(1000)}, mode="w:")))
    content[40:60] = bytes(20)
    with pytest.raises(ArtefactError, match=r"driver\.tar"):
        staged(tmp_path, "tar", bytes(content))


@pytest.mark.parametrize("kind", ["tar", "rpm", "run"])
def test_folders_are_counted_too(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MAX_ENTRIES", 3)
    folders = {f"/usr/lib/{name}/x": b"" for name in "abcd"}
    content = packing.run(VERSION) if kind == "run" else PACKERS[kind](folders)
    with pytest.raises(ArtefactError, match="it has more than 3 files, links and folders"):
        staged(tmp_path, kind, content)


def test_a_sparse_file_is_refused() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        entry = tarfile.TarInfo("usr/a")
        entry.type = tarfile.GNUTYPE_SPARSE
        archive.addfile(entry)
    with pytest.raises(ArtefactError, match="/usr/a in it is packed as a sparse file"):
        list(tar.members(io.BytesIO(buffer.getvalue())))


def test_another_content_than_the_named_one_is_refused(tmp_path: Path) -> None:
    source = deliver(tmp_path, "driver.tar", "tar", packing.tar(packing.driver(VERSION)))
    (tmp_path / source.path.lstrip("/")).write_bytes(packing.tar({"/usr/bin/other": b""}))
    with pytest.raises(ArtefactError, match="its digest is sha256:"):
        store.stage(Tree(tmp_path), DIGEST, [source], libraries=LIBRARIES)
    (tmp_path / source.path.lstrip("/")).unlink()
    with pytest.raises(ArtefactError, match="is not on this machine"):
        store.stage(Tree(tmp_path), DIGEST, [source], libraries=LIBRARIES)


@pytest.mark.parametrize("kind", ["tar", "deb", "rpm"])
def test_what_is_unpacked_is_what_was_verified_though_the_file_changes_and_changes_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, foreign = (PACKERS[kind](packing.driver(each)) for each in (VERSION, "999.1"))
    source = deliver(tmp_path, f"driver.{kind}", kind, named)
    delivered = tmp_path / source.path.lstrip("/")
    format_of = {"tar": tar, "deb": deb, "rpm": rpm}[kind]
    unchanged = format_of.members

    def changed(file: BinaryIO) -> Iterator[Member]:
        delivered.write_bytes(foreign)
        yield from unchanged(file)
        delivered.write_bytes(named)

    monkeypatch.setattr(format_of, "members", changed)
    index = store.stage(Tree(tmp_path), DIGEST, [source], libraries=LIBRARIES)
    assert {path: each for path, (_, each) in unpacked(tmp_path, index).items()} == packing.driver(
        VERSION
    )


def test_the_copy_of_a_file_does_not_stay_once_it_is_unpacked(tmp_path: Path) -> None:
    index = staged(tmp_path, "deb", packing.deb(packing.driver(VERSION)))
    kept = Tree(tmp_path).names(store.folder_of(DIGEST))
    assert sorted(kept) == sorted({*index.contents, "index"})


class FillingTree(Tree):
    """A small file system, of which every megabyte written is gone."""

    free = 103 << 20

    def size_of_file_system(self, path: str) -> int | None:
        return 1000 << 20

    def free_bytes(self, path: str) -> int | None:
        self.free -= 1 << 20
        return self.free


def test_unpacking_stops_before_the_disk_is_full_and_leaves_nothing(tmp_path: Path) -> None:
    files = {f"/usr/lib/{name}": bytes(3 << 20) for name in "ab"}
    source = deliver(tmp_path, "driver.tar", "tar", packing.tar(files, mode="w:gz"))
    tree = FillingTree(tmp_path)
    with pytest.raises(ArtefactError, match=r"100 MiB are free in .*, of which 100 stay free"):
        store.stage(tree, DIGEST, [source], libraries=LIBRARIES)
    assert tree.names(store.STORE) == ()


def test_a_path_in_two_files_is_refused(tmp_path: Path) -> None:
    content = packing.tar({"/usr/bin/nvidia-smi": b"1"})
    first = deliver(tmp_path, "1.tar", "tar", content)
    second = deliver(tmp_path, "2.tar", "tar", content)
    with pytest.raises(ArtefactError, match="twice"):
        store.stage(Tree(tmp_path), DIGEST, [first, second], libraries=LIBRARIES)


def test_an_artefact_without_all_its_content_is_unpacked_again(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    files = {**packing.driver(VERSION), **packing.modules(KERNEL, VERSION)}
    index = staged(tmp_path, "tar", packing.tar(files))
    own = index.modules_for(KERNEL)
    for content in (index.files[0].content, own["nvidia"].content):
        tree.remove(store.content_path(DIGEST, content))
        assert store.read_index(tree, DIGEST) is None
        assert staged(tmp_path, "tar", packing.tar(files)) == index
        assert tree.exists(store.content_path(DIGEST, content))


def test_only_the_kept_artefacts_stay(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    source = deliver(tmp_path, "1.tar", "tar", packing.tar({"/usr/bin/nvidia-smi": b"1"}))
    digests = [f"sha256:{each * 64}" for each in "abc"]
    for digest in digests:
        store.stage(tree, digest, [source], libraries=LIBRARIES)
    store.keep_only(tree, digests[1:2])
    assert tree.names(store.STORE) == ("b" * 64,)
    store.keep_only(tree, ())
    assert not tree.exists(store.STORE)
    assert stat.S_ISDIR((tmp_path / "srv").stat().st_mode)
