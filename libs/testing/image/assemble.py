"""The image without a builder: a base of Debian packages, dependencies, and the product.

Base and dependencies are kept in a cache outside the checkout.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing import oci
from libs.testing.debian import unpack
from libs.testing.go_build import NotBuilt, cache_folder, go_target
from libs.testing.image.context import (
    PRODUCT,
    config,
    digest,
    digest_of_pins,
    uv,
    write_product,
    write_requirements,
)
from libs.testing.oci import folder_layer

_PYTHON: Final = "3.11"
"""The Python of Debian 12."""
_PACKAGES: Final = (
    f"python{_PYTHON}-minimal",
    f"libpython{_PYTHON}-minimal",
    f"libpython{_PYTHON}-stdlib",
    *("base-files", "ca-certificates", "netbase"),
    *("libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libssl3"),
    *("libstdc++6", "libuuid1", "zlib1g"),
)
"""Unpacked only: what their scripts would do on installation, `_finish_base` does."""
_MERGED: Final = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into /usr, in a system and not in its packages."""
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
_PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_36", "arm64": "aarch64-manylinux_2_36"}


def assemble(
    target: Path, name: str, environ: Mapping[str, str], *, report: Callable[[str], None]
) -> None:
    """Write the image as an OCI archive."""
    _, architecture = go_target()
    layers = image_layers(environ, report=report)
    oci.write_image(target, name, layers, config(), architecture=architecture)


def image_layers(environ: Mapping[str, str], *, report: Callable[[str], None]) -> list[bytes]:
    """Return the layers of the image, as tars."""
    layers = _Layers(environ, report)
    return [layers.base(), layers.dependencies(), layers.product()]


def are_cached(environ: Mapping[str, str]) -> bool:
    """Return whether only the product has to be packed."""
    layers = _Layers(environ, lambda _: None)
    return all(file.is_file() for file in (layers.base_file, layers.dependencies_file))


class _Layers:
    def __init__(self, environ: Mapping[str, str], report: Callable[[str], None]) -> None:
        code = Path(__file__).read_bytes()
        folder = cache_folder(environ, "image", "base", [], digest(code))
        self._report = report
        self.base_file = folder / "base.tar"
        self.dependencies_file = folder / f"dependencies-{digest_of_pins()}.tar"

    def base(self) -> bytes:
        """Return Debian with Python."""
        return self._cached(self.base_file, f"Debian packages with Python {_PYTHON}", _base)

    def dependencies(self) -> bytes:
        """Return the locked dependencies."""
        return self._cached(self.dependencies_file, "dependencies", self._dependencies)

    def product(self) -> bytes:
        """Return our own code."""
        with tempfile.TemporaryDirectory(prefix="sluice-image-") as folder:
            product = Path(folder) / PRODUCT
            write_product(product)
            self._compile(product)
            return folder_layer(Path(folder))

    def _dependencies(self, root: Path) -> None:
        target = root / PRODUCT
        target.mkdir(parents=True)
        requirements = target / "requirements.txt"
        write_requirements(requirements)
        _, architecture = go_target()
        if architecture not in _PLATFORMS:
            raise NotBuilt(f"there are no wheels for {architecture}: build with docker or podman")
        uv(
            f"pip install --no-deps --require-hashes --python-version {_PYTHON} "
            f"--python-platform {_PLATFORMS[architecture]}",
            *("--target", str(target), "--requirements", str(requirements)),
        )
        # Programs would be started with this machine's Python.
        shutil.rmtree(target / "bin", ignore_errors=True)
        (target / ".lock").unlink(missing_ok=True)
        self._compile(target)

    def _compile(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="sluice-image-") as base:
            shutil.unpack_archive(self.base_file, base, filter="tar")
            _compile(folder, f"/{PRODUCT}", Path(base))

    def _cached(self, file: Path, what: str, fill: Callable[[Path], None]) -> bytes:
        """Return a layer from its file, writing it if needed."""
        if not file.is_file():
            self._report(f"{what} …")
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="sluice-image-", dir=file.parent) as folder:
                root = Path(folder) / "root"
                root.mkdir()
                fill(root)
                partial = Path(folder) / "layer.tar"
                partial.write_bytes(folder_layer(root))
                partial.rename(file)
        return file.read_bytes()


def _base(root: Path) -> None:
    unpack(_PACKAGES, root)
    for name in _MERGED:
        if (root / name).is_dir():
            shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / name)
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr/bin/python3").symlink_to(f"python{_PYTHON}")
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / _CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
    (root / _CERTIFICATES).write_bytes(b"".join(each.read_bytes() for each in certificates))
    (root / "usr/lib/ssl").mkdir(exist_ok=True)
    (root / "usr/lib/ssl/cert.pem").symlink_to(f"/{_CERTIFICATES}")
    for name, text in _FILES.items():
        (root / name).write_text(text)
    library = f"usr/lib/python{_PYTHON}"
    _compile(root / library, f"/{library}", root)


def compiler_environ(environ: Mapping[str, str], base: Path) -> dict[str, str]:
    """Return the environment in which the Python of a base writes bytecode beside its sources."""
    kept = {name: value for name, value in environ.items() if name != "PYTHONPYCACHEPREFIX"}
    return {**kept, "PYTHONHOME": str(base / "usr"), "PYTHONHASHSEED": "0"}


def _compile(folder: Path, at: str, base: Path) -> None:
    """Write bytecode with the Python of the base, which runs without entering its root."""
    libraries = next((base / "usr/lib").glob("*-linux-gnu"))
    loader = next(libraries.glob("ld-linux-*.so.*"))
    done = subprocess.run(
        [
            *(loader, "--library-path", libraries, base / f"usr/bin/python{_PYTHON}"),
            *("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
            *("-s", folder, "-p", at, folder),
        ],
        env=compiler_environ(os.environ, base),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotBuilt(f"the bytecode of {at} could not be written:\n{done.stdout}{done.stderr}")
