"""`make image`: build the image of this checkout, with a builder where one works."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing.go_build import NotBuilt, go_target, run_command
from libs.testing.image.assemble import are_cached, assemble
from libs.testing.image.context import CHECKOUT, digest, digest_of_product, write_context
from libs.testing.image.sbom import write_sbom

COMMAND: Final = "make image"
IMAGE: Final = "localhost/sluice:dev"
_ARCHIVE: Final = CHECKOUT / ".cache/image/sluice.tar"
_BUILDERS: Final = ("docker", "podman", "buildah")


def build(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the archive with the image of the code as it is now, building it if needed.

    `BASE` in the environment is the base of the Dockerfile, for a builder; `ARCH` is an
    architecture, by default this machine's. For another one no builder is asked, because it would
    have to run programs of that one. Beside the archive is its SBOM.
    """
    native = go_target()[1]
    architecture = environ.get("ARCH") or native
    builder = _find_builder(report) if architecture == native else ""
    base = environ.get("BASE", "")
    archive = _ARCHIVE if architecture == native else _ARCHIVE.with_stem(f"sluice-{architecture}")
    wanted = digest(digest_of_product().encode(), f"{builder} {base} {architecture}".encode())
    stamp = archive.with_suffix(".digest")
    if not (archive.is_file() and stamp.is_file() and stamp.read_text() == wanted):
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=archive.parent) as folder:
            new = Path(folder) / "sluice.tar"
            if builder:
                _build_with(builder, base, new)
            else:
                assemble(new, IMAGE, environ, architecture=architecture, report=report)
            write_sbom(new, archive.with_suffix(".cdx.json"))
            new.rename(archive)
        stamp.write_text(wanted)
    return archive


def is_quick(environ: Mapping[str, str]) -> bool:
    """Return whether `make image` has been run, so that a build takes seconds."""
    return _ARCHIVE.is_file() or are_cached(environ)


def _find_builder(report: Callable[[str], None]) -> str:
    """Return the first builder that works; empty without one."""
    for name in filter(shutil.which, _BUILDERS):
        done = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return name
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        report(f"{name} does not work here ({said}); going on without it")
    return ""


def _build_with(builder: str, base: str, archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-context-") as folder:
        context = write_context(Path(folder) / "context")
        argument = ["--build-arg", f"BASE={base}"] if base else []
        _run(builder, "build", "--tag", IMAGE, *argument, str(context))
    if builder == "buildah":
        _run("buildah", "push", IMAGE, f"docker-archive:{archive}:{IMAGE}")
    else:
        _run(builder, "save", "--output", str(archive), IMAGE)


def _run(*command: str) -> None:
    """Run a builder, which writes its progress to the terminal."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise NotBuilt(
            f"`{' '.join(command)}` failed (exit code {done.returncode}): its own words above say "
            "why; where the base cannot be fetched, name another: `make image BASE=…`"
        )


def main() -> int:
    """Build, as `make image`."""
    return run_command(
        lambda report: build(os.environ, report=report), command=COMMAND, what=f"{IMAGE} is"
    )


if __name__ == "__main__":
    sys.exit(main())
