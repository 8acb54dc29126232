"""What may be asked of GPUs."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """The driver, as its library names it."""

    driver_version: str
    cuda: str = ""
    """The newest CUDA that it supports, `13.1`."""


class Unavailable(Exception):
    """There is no driver to be asked, or it does not answer. The text says why, for a person."""


class Gpus(Protocol):
    """All GPUs of a machine. Calls may block; each has an end."""

    def open(self) -> Library:
        """Take hold of the library; raises `Unavailable`. What is open already stays so."""
        ...

    def close(self) -> None:
        """Let go of every device; without a hold it does nothing."""
        ...

    def describe(self) -> tuple[Gpu, ...]:
        """What each is, by index; one that hangs is said to. Raises `Unavailable` unless open."""
        ...

    def sample(self) -> tuple[GpuSample, ...]:
        """What each does now, by index; what cannot be read is None. Raises `Unavailable`."""
        ...

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        """XIDs that came since the last call, by UUID. Raises `Unavailable` unless open."""
        ...
