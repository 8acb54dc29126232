"""Write images as OCI archives, without a builder, a registry or a daemon."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


class ImageConfig(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """How a container of the image is started."""

    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    env: Sequence[str] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
    user: str = ""
    working_dir: str = ""
    labels: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """One layer: what is at which path of the image."""

    files: Mapping[str, Path | bytes] = field(default_factory=dict[str, Path | bytes])
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    """Targets of symbolic links."""

    def tar(self) -> bytes:
        """Return the layer; files may be read by anybody, and only those of `files` be run."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for folder in sorted(self._folders()):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
                tar.addfile(entry)
            for path, content in sorted(self.files.items()):
                data = content if isinstance(content, bytes) else content.read_bytes()
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(data), 0o644 if isinstance(content, bytes) else 0o755
                tar.addfile(entry, io.BytesIO(data))
            for path, target in sorted(self.links.items()):
                entry = tarfile.TarInfo(path)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return buffer.getvalue()

    def _folders(self) -> set[str]:
        paths = [*self.files, *self.links]
        return {str(folder) for path in paths for folder in Path(path).parents} - {"."} | {"tmp"}


def folder_layer(folder: Path, *, at: str = "") -> bytes:
    """Return a layer of all in this folder, at a path of the image; it does not depend on the
    owners and times of the files.
    """

    def normalize(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        is_shared, is_run = entry.mode & 0o1000, entry.mode & 0o100
        entry.mode = 0o1777 if is_shared else 0o755 if is_run else 0o644
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            name = f"{at}/{path.relative_to(folder)}".lstrip("/")
            tar.add(path, name, recursive=False, filter=normalize)
    return buffer.getvalue()


def write_image(
    target: Path, name: str, layers: Sequence[bytes], config: ImageConfig, *, architecture: str
) -> None:
    """Write an archive with one image; `name` has a tag, and `layers` are tars."""
    write_images(target, {name: config}, layers, architecture=architecture)


def write_images(
    target: Path,
    configs: Mapping[str, ImageConfig],
    layers: Sequence[bytes],
    *,
    architecture: str,
) -> None:
    """Write an archive with images of the same layers that are started differently, by name.

    Containerd reads its index, and every Docker its `manifest.json`.
    """
    with tarfile.open(target, "w") as archive:
        blobs = _Blobs(archive)
        diffs = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        packed = [blobs.add(_LAYER, gzip.compress(layer, 1, mtime=0)) for layer in layers]
        entries: list[dict[str, Any]] = []
        of_docker: list[dict[str, Any]] = []
        for name, config in configs.items():
            image = {
                "architecture": architecture,
                "os": "linux",
                "config": msgspec.to_builtins(config),
                "rootfs": {"type": "layers", "diff_ids": diffs},
            }
            manifest: dict[str, Any] = {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": blobs.add(_CONFIG, json.dumps(image).encode()),
                "layers": packed,
            }
            entry = blobs.add(_MANIFEST, json.dumps(manifest).encode())
            entry["annotations"] = {
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": name.rpartition(":")[2],
            }
            entries.append(entry)
            of_docker.append(
                {
                    "Config": _path(manifest["config"]["digest"]),
                    "RepoTags": [name],
                    "Layers": [_path(layer["digest"]) for layer in packed],
                }
            )
        index = {"schemaVersion": 2, "manifests": entries}
        _add(archive, "index.json", json.dumps(index).encode())
        _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(archive, "manifest.json", json.dumps(of_docker).encode())


class _Blobs:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._added: set[str] = set()

    def add(self, media_type: str, data: bytes) -> dict[str, Any]:
        """Add a blob once; return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._added:
            self._added.add(digest)
            _add(self._archive, _path(f"sha256:{digest}"), data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _path(digest: str) -> str:
    """Return the path of a blob in the archive."""
    return f"blobs/{digest.replace(':', '/')}"


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
