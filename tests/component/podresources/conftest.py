"""A kubelet, and a stand-in for NVIDIA's library."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.gpus.conftest import bench
from tests.component.podresources.kubelet import Kubelet
from tests.garbage import collect_grpc

__all__ = ["bench", "collect_grpc"]


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    # The path of a unix socket is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        kubelet = Kubelet(Path(folder) / "kubelet.sock")
        kubelet.start()
        yield kubelet
        kubelet.stop()
