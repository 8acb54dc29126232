"""The stand-in for NVIDIA's library."""

from tests.component.gpus.conftest import bench

__all__ = ["bench"]
