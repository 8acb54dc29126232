"""Build the stand-ins for `libnvidia-ml.so.1` and `libcuda.so.1`, once, into a cache outside.

The folder is named by what it is built from, and appears complete: a build ends with a rename, and
of several at once the first stays.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from libs.testing.cache import cache_root
from libs.testing.errors import SimError
from libs.testing.nvml import cuda, layout

NAME = "libnvidia-ml.so.1"
CUDA_NAME = "libcuda.so.1"

SOURCES = Path(__file__).parent / "source"

FLAGS = ("-std=c11", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")

_COMPILERS = ("cc", "gcc", "clang")
_FIRST_LINES = 12


class NotBuilt(SimError):
    """The library could not be built; the message says why, and what to do."""


def library(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder with the libraries, building them first if needed."""
    folder = cache_folder(environ)
    if not (folder / NAME).is_file():
        _build(folder, find_compiler(environ))
    return folder


def find_compiler(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command of a C compiler: the system's, or that of the package ziglang."""
    for name in _COMPILERS:
        if found := shutil.which(name, path=environ.get("PATH", "")):
            return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    raise NotBuilt(
        f"the stand-in for NVML is written in C, and there is no {', '.join(_COMPILERS)} on the "
        "PATH: install a C compiler, or the Python package ziglang"
    )


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the library, named by its sources and platform."""
    digest = hashlib.sha256()
    sources = (source.read_text() for source in _sources("**/*.[ch]"))
    for text in (*headers().values(), *FLAGS, *sources):
        digest.update(text.encode() + b"\0")
    platform_name = f"{sys.platform}-{platform.machine()}"
    return cache_root(environ) / "nvml" / f"{digest.hexdigest()[:16]}-{platform_name}"


def headers() -> dict[str, str]:
    """Return the generated headers by name."""
    return {"layout.h": layout.header(), "kernel.h": cuda.header()}


def compile_libraries(compiler: tuple[str, ...], folder: Path, *flags: str) -> None:
    """Compile both into the folder; raises `NotBuilt` with what the compiler says."""
    for name, text in headers().items():
        (folder / name).write_text(text)
    _compile(compiler, folder / NAME, _sources("*.c"), *flags)
    # That for libcuda has the parts of the other too, and shows none of their functions.
    _compile(compiler, folder / CUDA_NAME, _sources("**/*.c"), "-DAPI=", *flags)


def _compile(compiler: tuple[str, ...], target: Path, sources: list[Path], *flags: str) -> None:
    command = [*compiler, *FLAGS, *flags, "-shared", f"-Wl,-soname,{target.name}"]
    command += [f"-I{target.parent}", f"-I{SOURCES}", "-o", str(target), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = "\n".join(f"  {line}" for line in done.stderr.splitlines()[:_FIRST_LINES])
        raise NotBuilt(
            f"{' '.join(compiler)} cannot build the stand-in for {target.name} (exit code "
            f"{done.returncode}): check that it builds other programs. Its first lines:\n{first}"
        )


def _sources(pattern: str) -> list[Path]:
    return sorted(SOURCES.glob(pattern))


def _build(folder: Path, compiler: tuple[str, ...]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise NotBuilt(
            f"{folder} cannot be created: {error}; set XDG_CACHE_HOME to a folder to write in"
        ) from error
    try:
        compile_libraries(compiler, partial)
        partial.rename(folder)
    except OSError:
        if not (folder / NAME).is_file():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
