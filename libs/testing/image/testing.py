"""The images of system tests: ours with one more layer, as agents and as a vendor's drivers.

The layer has what only tests need of our code, a shell, and the stand-in for NVIDIA's library. All
images are one archive with the same layers; only how they are started differs.
"""

import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from libs.testing import nvml, oci
from libs.testing.go_build import NotBuilt, go_target
from libs.testing.image.assemble import image_layers
from libs.testing.image.context import CHECKOUT, PRODUCT, config, digest, digest_of_product
from libs.testing.oci import ImageConfig, folder_layer
from libs.testing.realnodes import gpus
from libs.testing.realnodes.build import busybox_image

IMAGE: Final = "localhost/sluice:testing"
"""For services and agents: the kernel's modules, and NVIDIA's library, are the stand-ins."""
DRIVER_REPOSITORY: Final = "localhost/stand-in"
DRIVER_IMAGE: Final = "driver"

_ARCHIVE: Final = CHECKOUT / ".cache/image/testing.tar"
_SOURCES: Final = ("*.py", "image/*.py", "nvml/*.py", "realnodes/*.py")
_COMMANDS: Final = ("cat", "false", "ls", "mkdir", "mv", "rm", "sh", "sleep", "test", "true")
_PROGRAMS: Final = {
    "nvidia-driver": 'exec python3 -m libs.testing.image.driver_program "$@"',
    "nvidia-smi": """\
version=/proc/1/root/opt/machine/module/nvidia/version
if [ ! -f "$version" ]; then
  echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
  exit 9
fi
echo "Driver Version: $(cat "$version")\"""",
}
_GZIP: Final = b"\x1f\x8b"
_AGENT: Final = ("python3", "-m", "libs.testing.image.agent_program")


def build_testing(
    environ: Mapping[str, str],
    *,
    versions: tuple[str, ...],
    report: Callable[[str], None],
) -> Path:
    """Return the archive with the images, of drivers of these versions, building it if needed."""
    texts = [digest_of_product(), *versions, _variant()]
    busybox = busybox_image(environ)
    files = [*_sources(), Path(__file__), *_libraries(), busybox]
    wanted = digest(*(text.encode() for text in texts), *(file.read_bytes() for file in files))
    stamp = _ARCHIVE.with_suffix(".digest")
    if not (_ARCHIVE.is_file() and stamp.is_file() and stamp.read_text() == wanted):
        _ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
        layers = [*image_layers(environ, report=report), _layer(_program(busybox))]
        _, architecture = go_target()
        with tempfile.TemporaryDirectory(prefix="new-", dir=_ARCHIVE.parent) as folder:
            new = Path(folder) / "testing.tar"
            oci.write_images(new, _configs(versions), layers, architecture=architecture)
            new.rename(_ARCHIVE)
        stamp.write_text(wanted)
    return _ARCHIVE


def driver_image(version: str) -> str:
    """Return the image of a driver, as nodes know it."""
    return f"{DRIVER_REPOSITORY}/{DRIVER_IMAGE}:{version}-{_variant()}"


def _configs(versions: tuple[str, ...]) -> dict[str, ImageConfig]:
    ours = config()
    drivers = {
        driver_image(version): replace(
            ours, user="0:0", entrypoint=(), env=(*ours.env, f"DRIVER_VERSION={version}")
        )
        for version in versions
    }
    agent = replace(ours, entrypoint=_AGENT, env=(*ours.env, gpus.ENVIRONMENT))
    return {IMAGE: agent, **drivers}


def _variant() -> str:
    """Return the end of a driver's tag: the operating system of this machine, and so of nodes."""
    lines = Path("/etc/os-release").read_text().splitlines()
    values = {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}
    return f"{values['ID']}{values.get('VERSION_ID', '')}"


def _layer(busybox: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sluice-image-") as folder:
        root = Path(folder)
        for source in _sources():
            _copy(source, root / PRODUCT / source.relative_to(CHECKOUT))
        for library in _libraries():
            _copy(library, root / "opt/driver" / library.name)
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/busybox").write_bytes(busybox)
        (root / "usr/bin/busybox").chmod(0o755)
        for name in _COMMANDS:
            (root / "usr/bin" / name).symlink_to("busybox")
        for name, script in _PROGRAMS.items():
            (root / "usr/bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (root / "usr/bin" / name).chmod(0o755)
        return folder_layer(root)


def _program(archive: Path) -> bytes:
    """Return busybox from its image, which has one layer."""
    with tarfile.open(archive) as image:
        blobs = (image.extractfile(member) for member in image if "blobs/" in member.name)
        for data in (blob.read() for blob in blobs if blob):
            if data.startswith(_GZIP):
                with tarfile.open(fileobj=io.BytesIO(data)) as layer:
                    if file := layer.extractfile("bin/busybox"):
                        return file.read()
    raise NotBuilt(f"{archive} has no busybox: remove its folder, and run `make node`")


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise NotBuilt(f"{source} is missing")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def _libraries() -> list[Path]:
    """Return the stand-ins for NVIDIA's libraries."""
    return sorted(nvml.library().glob("lib*.so.1"))


def _sources() -> Iterator[Path]:
    folder = CHECKOUT / "libs/testing"
    return (path for pattern in _SOURCES for path in sorted(folder.glob(pattern)))
