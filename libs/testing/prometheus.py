"""`make prometheus`: Prometheus and promtool, once, into a cache outside the checkout."""

import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from libs.testing import debian, go_build
from libs.testing.child_process import HOST, ChildProcess, ReservedPort
from libs.testing.go_build import run_command

COMMAND: Final = "make prometheus"
PROMETHEUS: Final = "prometheus"
PROMTOOL: Final = "promtool"

_RECIPE: Final = "1"
"""Raise it when the same package gives another folder."""
_READY: Final = "Server is ready to receive web requests"


def cache_folder(environ: Mapping[str, str]) -> Path:
    return go_build.cache_folder(environ, PROMETHEUS, "debian", [], _RECIPE)


def build(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the folder with both programs, of Debian's package, filling it if needed."""
    folder = cache_folder(environ)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        filled, unpacked = Path(temporary) / "filled", Path(temporary) / "unpacked"
        for each in (filled, unpacked):
            each.mkdir()
        report("Debian's package …")
        debian.unpack([PROMETHEUS], unpacked)
        for name in (PROMETHEUS, PROMTOOL):
            (unpacked / "usr/bin" / name).rename(filled / name)
        try:
            filled.rename(folder)
        except OSError:  # another build was faster
            if not folder.is_dir():
                raise
    return folder


def find_prometheus(environ: Mapping[str, str]) -> Path | None:
    """Return the folder that `make prometheus` filled, or None where it has not run."""
    folder = cache_folder(environ)
    return folder if (folder / PROMETHEUS).is_file() else None


@asynccontextmanager
async def running(folder: Path, config: Path, data: Path) -> AsyncGenerator[str]:
    """Run Prometheus with a configuration and data; yield its address."""
    port = ReservedPort()
    address = f"{HOST}:{port.number}"
    server = await ChildProcess.start(
        PROMETHEUS,
        str(folder / PROMETHEUS),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    )
    try:
        await server.wait_for_log(_READY)
        yield f"http://{address}"
    finally:
        await server.destroy()
        port.release()


def main() -> int:
    """Build, as `make prometheus`."""
    return run_command(
        lambda report: build(os.environ, report=report), command=COMMAND, what="Prometheus is"
    )


if __name__ == "__main__":
    sys.exit(main())
