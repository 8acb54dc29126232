"""The GPUs of a machine that this release cannot ask: it says so instead of seeing none."""

from collections.abc import Mapping
from typing import NoReturn

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.port import Library, Unavailable


class UnreadGpus:
    """A `Gpus` behind which there is nobody; every question raises `Unavailable`."""

    def open(self) -> Library:
        """Never."""
        _refuse()

    def close(self) -> None:
        """Nothing is ever held."""

    def describe(self) -> tuple[Gpu, ...]:
        """Never."""
        _refuse()

    def sample(self) -> tuple[GpuSample, ...]:
        """Never."""
        _refuse()

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        """Never."""
        _refuse()


def _refuse() -> NoReturn:
    raise Unavailable(
        "the GPUs of a real machine cannot be asked: this release has no reader of the driver's"
        " library, so that nothing is measured or proven there; simulated machines have GPUs that"
        " answer"
    )
