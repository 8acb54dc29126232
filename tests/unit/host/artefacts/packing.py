"""Small artefacts in the real formats: packages, archives, and a `.run` file."""

import gzip
import hashlib
import io
import lzma
import os
import stat
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from libs.host.artefacts.members import zstd
from libs.host.artefacts.store import SourceFile
from libs.testing.module_files import module_file

Files = Mapping[str, bytes | str]
"""By path: the content of a file, or the target of a link."""
Compress = Callable[[bytes], bytes]

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
FOLDER = "/srv/drivers"


def modules(kernel: str, version: str) -> dict[str, bytes | str]:
    folder = f"/lib/modules/{kernel}/updates"
    return {
        f"{folder}/nvidia.ko": module_file("nvidia", version),
        f"{folder}/nvidia-uvm.ko.xz": lzma.compress(module_file("nvidia_uvm", version, "nvidia")),
        f"{folder}/nvidia-modeset.ko.zst": zstd.compress(
            module_file("nvidia_modeset", version, "nvidia")
        ),
    }


def driver(version: str, *, libraries: str = LIBRARIES) -> dict[str, bytes | str]:
    """Return the files of a driver without its modules."""
    files: dict[str, bytes | str] = {"/usr/bin/nvidia-smi": b"\x7fELF smi " + version.encode()}
    for name in ("libcuda.so", "libnvidia-ml.so"):
        files[f"{libraries}/{name}.{version}"] = f"{name} {version}\n".encode() * 1000
        files[f"{libraries}/{name}.1"] = f"{name}.{version}"
    files[f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin"] = b"firmware\0" * 500
    files[f"/usr/share/doc/nvidia-{version}/copyright"] = b"of NVIDIA\n"
    return files


def tar(files: Files, *, mode: str = "w:xz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        folders: set[str] = set()
        for path, content in files.items():
            for folder in reversed(Path(path).parents[:-1]):
                if str(folder) not in folders:
                    folders.add(str(folder))
                    entry = tarfile.TarInfo(f".{folder}")
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(entry)
            entry = tarfile.TarInfo(f".{path}")
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(content), _mode(path)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _mode(path: str) -> int:
    return 0o755 if "/bin/" in path else 0o644


def deb(files: Files, compress: Compress = lzma.compress) -> bytes:
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": gzip.compress(tar({"/postinst": b"#!/bin/sh\nexit 1\n"}, mode="w:")),
        "data.tar": compress(tar(files, mode="w:")),
    }
    package = b"!<arch>\n"
    for name, data in parts.items():
        package += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        package += data + b"\n" * (len(data) % 2)
    return package


def rpm(files: Files, compress: Compress = lzma.compress) -> bytes:
    lead = b"\xed\xab\xee\xdb" + bytes(92)
    signature = _header({"signature": b"12345"})
    padding = bytes(-(len(signature)) % 8)
    return lead + signature + padding + _header({"name": b"nvidia"}) + compress(cpio(files))


def _header(tags: Mapping[str, bytes]) -> bytes:
    store = b"".join(tags.values())
    index = b"".join(struct.pack(">IIII", 1000, 6, 0, 1) for _ in tags)
    return (
        struct.pack(">4s4sII", b"\x8e\xad\xe8\x01", bytes(4), len(tags), len(store)) + index + store
    )


def cpio(files: Files) -> bytes:
    archive = b""
    entries: list[tuple[str, int, bytes]] = [("./usr", stat.S_IFDIR | 0o755, b"")]
    for path, content in files.items():
        if isinstance(content, str):
            entries.append((f".{path}", stat.S_IFLNK | 0o777, os.fsencode(content)))
        else:
            entries.append((f".{path}", stat.S_IFREG | _mode(path), content))
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        raw = os.fsencode(name) + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        head = b"070701" + b"".join(f"{each:08x}".encode() for each in fields) + raw
        archive += head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
    return archive


def run(version: str, compress: Compress = lzma.compress) -> bytes:
    """Return an installer with the kinds of files that one has, some of which are not installed."""
    manifest = [
        "NVIDIA Accelerated Graphics Driver for Linux-x86_64",
        version,
        " ",
        "nvidia nvidia-uvm nvidia-modeset nvidia-drm ",
        " ",
        " ",
        "./kernel/",
        "./kernel/precompiled/",
        "kernel/nvidia/nv.c 0644 KERNEL_MODULE_SRC INHERIT_PATH_DEPTH:1 MODULE:resman",
        "libGL.so.1.7.0 0755 GLX_CLIENT_LIB NATIVE GLVND MODULE:opengl",
        "nvidia-installer 0755 INSTALLER_BINARY MODULE:installer",
        "nvidia-smi 0755 UTILITY_BINARY MODULE:nvml",
        "nvidia-modprobe 04755 NVIDIA_MODPROBE /usr/bin/ MODULE:installer",
        "nvidia.icd 0444 CUDA_ICD MODULE:gpgpu",
        "firmware/gsp_ga10x.bin 0444 FIRMWARE MODULE:gsp",
        f"libnvidia-cfg.so.{version} 0755 UTILITY_LIB NATIVE MODULE:installer",
        f"libnvidia-cfg.so.1 0000 UTILITY_LIB_SYMLINK NATIVE libnvidia-cfg.so.{version} MODULE:x",
        f"libcuda.so.{version} 0755 CUDA_LIB NATIVE / MODULE:gpgpu",
        f"libcuda.so.1 0000 CUDA_SYMLINK NATIVE / libcuda.so.{version} MODULE:gpgpu",
        f"libnvidia-ml.so.{version} 0755 UTILITY_LIB NATIVE MODULE:nvml",
        f"libnvidia-ml.so.1 0000 UTILITY_LIB_SYMLINK NATIVE libnvidia-ml.so.{version} MODULE:x",
        f"libvdpau_nvidia.so.{version} 0755 VDPAU_LIB NATIVE vdpau/ MODULE:vdpau",
        f"./32/libcuda.so.{version} 0755 CUDA_LIB COMPAT32 / MODULE:gpgpu",
    ]
    lines = [line.split() for line in manifest[8:]]
    files: dict[str, bytes | str] = {
        f"/{line[0].removeprefix('./')}": line[0].encode() for line in lines if line[1] != "0000"
    }
    files["/.manifest"] = "\n".join(manifest).encode()
    script = b"#! /bin/sh\nCRCsum=1\nskip=6\nlabel=driver\nexit 1\n"
    return script + compress(tar(files, mode="w:"))


def deliver(root: Path, name: str, kind: str, content: bytes) -> SourceFile:
    """Put a file into the folder of artefacts on a machine."""
    path = root / FOLDER.lstrip("/") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return SourceFile(
        path=f"{FOLDER}/{name}", kind=kind, sha256=hashlib.sha256(content).hexdigest()
    )


PACKERS: Mapping[str, Callable[[Files], bytes]] = {"deb": deb, "rpm": rpm, "tar": tar}
