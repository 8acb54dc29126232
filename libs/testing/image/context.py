"""What an image is built from: the Dockerfile, the pinned dependencies, and the product."""

import ast
import hashlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from libs.testing.go_build import NotBuilt
from libs.testing.oci import ImageConfig

CHECKOUT: Final = Path(__file__).parents[3]
DOCKERFILE: Final = CHECKOUT / "deploy/image/Dockerfile"
PRODUCT: Final = "opt/sluice"
"""Where dependencies and product are in the image."""

_PINS: Final = (CHECKOUT / "pyproject.toml", CHECKOUT / "requirements.lock")
_WITHOUT: Final = "libs/testing/"


def write_context(folder: Path) -> Path:
    """Write what the Dockerfile builds from; return the folder."""
    folder.mkdir()
    shutil.copy(DOCKERFILE, folder)
    write_requirements(folder / "requirements.txt")
    write_product(folder / "sluice")
    return folder


def write_requirements(file: Path) -> None:
    """Write the dependencies of all services with their locked versions and hashes."""
    uv(
        "pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate "
        "--no-emit-index-url --no-emit-find-links --all-extras pyproject.toml",
        *("--constraint", "requirements.lock", "--output-file", str(file)),
    )


def write_product(folder: Path) -> None:
    """Write our code as it is installed, without what only tests need."""
    with tempfile.TemporaryDirectory(prefix="sluice-wheel-") as wheels:
        uv("build --wheel --offline", "--out-dir", wheels)
        (wheel,) = Path(wheels).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            names = [name for name in packed.namelist() if not name.startswith(_WITHOUT)]
            packed.extractall(folder, names)


def uv(command: str, *paths: str) -> None:
    """Run uv in the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "uv", *command.split(), "--quiet", *paths],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotBuilt(
            f"`uv {command}` failed (exit code {done.returncode}): check the network and the disk, "
            f"and fix what it says:\n{done.stderr.strip()}"
        )


def config() -> ImageConfig:
    """Return what the Dockerfile says of how a container is started."""
    words = {
        name: value
        for name, _, value in (line.partition(" ") for line in DOCKERFILE.read_text().splitlines())
    }
    return ImageConfig(
        entrypoint=ast.literal_eval(words["ENTRYPOINT"]),
        env=(*ImageConfig().env, *words["ENV"].split()),
        user=words["USER"],
        working_dir=words["WORKDIR"],
        labels=dict(pair.split("=", 1) for pair in shlex.split(words["LABEL"])),
    )


def digest_of_pins() -> str:
    """Return a digest of what decides about the dependencies."""
    return digest(*(pin.read_bytes() for pin in _PINS))


def digest_of_product() -> str:
    """Return a digest of all that an image is built from, and of how."""
    return digest(
        digest_of_pins().encode(),
        DOCKERFILE.read_bytes(),
        *(part for file in _sources() for part in (str(file).encode(), file.read_bytes())),
    )


def digest(*parts: bytes) -> str:
    """Return a short digest."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:12]


def _sources() -> Iterator[Path]:
    folders = [CHECKOUT / "libs", CHECKOUT / "services"]
    for file in sorted(path for folder in folders for path in folder.rglob("*")):
        name = str(file.relative_to(CHECKOUT))
        is_built = "__pycache__" in file.parts or not file.is_file()
        is_test = name.startswith(_WITHOUT) and not file.is_relative_to(Path(__file__).parent)
        if not (is_built or is_test):
            yield file.relative_to(CHECKOUT)
