"""Docker, for containers of testcontainers; without either these tests are skipped by name."""

import importlib
import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from libs.testing.dockerd import COMMAND, Docker, find_dockerd, running

IS_ABLE = os.geteuid() == 0 and Path("/sys/fs/cgroup/memory").is_dir()


@pytest.fixture
async def docker() -> AsyncIterator[Docker]:
    if importlib.util.find_spec("testcontainers") is None:
        pytest.skip("the package testcontainers is not installed")
    folder = find_dockerd(os.environ)
    if folder is None:
        pytest.skip(f"no Docker: run `{COMMAND}`")
    if not IS_ABLE:
        pytest.skip("Docker runs as root, on Linux with cgroup v1")
    async with running(folder) as docker:
        yield docker


@pytest.fixture
def testcontainers(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return its module with containers; it reads the environment when it is imported."""
    monkeypatch.setenv("DOCKER_HOST", docker.url)
    # Its reaper is an image of others; here the containers end with their daemon.
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    return importlib.import_module("testcontainers.core.container")
