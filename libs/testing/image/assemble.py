"""The image without a builder: a base of Debian packages, dependencies, and the product.

Base and dependencies are kept in a cache outside the checkout. For another architecture than this
machine's, the packages and wheels are that one's; nothing of them is run, and bytecode, which is
the same everywhere, is written by this machine's base.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing import oci
from libs.testing.go_build import NotBuilt, cache_folder, go_target
from libs.testing.image import base
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
_ELF, _MACHINE_AT = b"\x7fELF", 18
_MACHINES: Final = {"amd64": 62, "arm64": 183}
_PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_36", "arm64": "aarch64-manylinux_2_36"}


def assemble(
    target: Path,
    name: str,
    environ: Mapping[str, str],
    *,
    architecture: str = "",
    report: Callable[[str], None],
) -> None:
    """Write the image as an OCI archive, by default for this machine's architecture."""
    architecture = architecture or go_target()[1]
    layers = image_layers(environ, architecture=architecture, report=report)
    oci.write_image(target, name, layers, config(), architecture=architecture)


def image_layers(
    environ: Mapping[str, str], *, architecture: str = "", report: Callable[[str], None]
) -> list[bytes]:
    """Return the layers of the image, as tars."""
    layers = _Layers(environ, report, architecture or go_target()[1])
    return [layers.base(), layers.dependencies(), layers.product()]


def are_cached(environ: Mapping[str, str]) -> bool:
    """Return whether only the product has to be packed."""
    layers = _Layers(environ, lambda _: None, go_target()[1])
    return all(file.is_file() for file in (layers.base_file, layers.dependencies_file))


class _Layers:
    def __init__(
        self, environ: Mapping[str, str], report: Callable[[str], None], architecture: str
    ) -> None:
        if architecture not in _PLATFORMS:
            raise NotBuilt(
                f"there are no wheels for {architecture}: {' and '.join(_PLATFORMS)} can be"
                " assembled, others be built with docker or podman"
            )
        code = digest(*(Path(module).read_bytes() for module in (__file__, base.__file__)))
        folder = cache_folder(environ, "image", "base", [], code, architecture)
        self._report = report
        self._architecture = architecture
        self._native = (
            self if architecture == go_target()[1] else _Layers(environ, report, go_target()[1])
        )
        self.base_file = folder / "base.tar"
        self.dependencies_file = folder / f"dependencies-{digest_of_pins()}.tar"

    def base(self) -> bytes:
        """Return Debian with Python."""
        what = f"Debian packages with Python {_PYTHON} for {self._architecture}"
        return self._cached(self.base_file, what, self._base)

    def dependencies(self) -> bytes:
        """Return the locked dependencies."""
        what = f"dependencies for {self._architecture}"
        return self._cached(self.dependencies_file, what, self._dependencies)

    def product(self) -> bytes:
        """Return our own code."""
        with tempfile.TemporaryDirectory(prefix="sluice-image-") as folder:
            product = Path(folder) / PRODUCT
            write_product(product)
            self._compile(product)
            return folder_layer(Path(folder))

    def _base(self, root: Path) -> None:
        base.fill(root, python=_PYTHON, architecture=self._architecture)
        library = f"usr/lib/python{_PYTHON}"
        if self._native is self:
            _compile(root / library, f"/{library}", root)
        else:
            self._compile(root / library, f"/{library}")

    def _dependencies(self, root: Path) -> None:
        target = root / PRODUCT
        target.mkdir(parents=True)
        requirements = target / "requirements.txt"
        write_requirements(requirements)
        uv(
            f"pip install --no-deps --require-hashes --python-version {_PYTHON} "
            f"--python-platform {_PLATFORMS[self._architecture]}",
            *("--target", str(target), "--requirements", str(requirements)),
        )
        if foreign := foreign_libraries(target, self._architecture):
            raise NotBuilt(
                f"these were not built for {self._architecture}, because there is no wheel:"
                f" {', '.join(foreign)}"
            )
        # Programs would be started with this machine's Python.
        shutil.rmtree(target / "bin", ignore_errors=True)
        (target / ".lock").unlink(missing_ok=True)
        self._compile(target)

    def _compile(self, folder: Path, at: str = f"/{PRODUCT}") -> None:
        self._native.base()
        with tempfile.TemporaryDirectory(prefix="sluice-image-") as root:
            shutil.unpack_archive(self._native.base_file, root, filter="tar")
            _compile(folder, at, Path(root))

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


def foreign_libraries(folder: Path, architecture: str) -> list[str]:
    """Return the shared libraries below a folder that are of another architecture."""
    found: list[str] = []
    for file in sorted(folder.rglob("*.so*")):
        with file.open("rb") as library:
            head = library.read(_MACHINE_AT + 2)
        machine = int.from_bytes(head[_MACHINE_AT:], "little")
        if head.startswith(_ELF) and machine != _MACHINES[architecture]:
            found.append(str(file.relative_to(folder)))
    return found


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
