"""A container runtime with a socket of a short path, in a root of its own."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.nri.runtime import Runtime


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    # The path of a unix socket is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        root = Path(folder)
        (root / "run/nri").mkdir(parents=True)
        (root / "var").mkdir()
        (root / "var/run").symlink_to("/run")
        runtime = Runtime(root / "run/nri/nri.sock")
        await runtime.start()
        yield runtime
        await runtime.stop()
