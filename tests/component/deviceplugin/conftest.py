"""A kubelet in a folder with a short path."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.deviceplugin.kubelet import Kubelet
from tests.garbage import collect_grpc

__all__ = ["collect_grpc"]


@pytest.fixture
async def kubelet() -> AsyncIterator[Kubelet]:
    # The path of a unix socket is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        kubelet = Kubelet(Path(folder))
        await kubelet.start()
        yield kubelet
        await kubelet.stop()
