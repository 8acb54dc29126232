"""Follow which containers have the machine's GPUs.

Without an answer of the kubelet the GPUs are measured all the same, and their samples name no pod.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from libs.contracts.facts import Gpu
from libs.host.machine import Offload
from libs.host.podresources.assignments import DeviceList, PodsByGpu, pods_by_gpu
from libs.host.podresources.client import KubeletUnavailable, PodResources
from libs.runtime.clock import Clock
from libs.runtime.logs import logger

PERIOD: Final = 5.0
"""Seconds between two questions."""
KEPT: Final = 30.0
"""Seconds for which the last answer counts: a kubelet restarts within them, and containers stay."""

_log = logger()


@asynccontextmanager
async def connected_kubelet(socket: str, offload: Offload) -> AsyncGenerator[PodResources]:
    """Close the connection at the end, which ends a call that waits for the kubelet."""
    resources = PodResources(socket)
    try:
        yield resources
    finally:
        await offload.run(resources.close)


class PodFollower:
    """Asks the kubelet at an interval, beside the sweeps: a kubelet that hangs delays no sample."""

    def __init__(
        self, list_devices: Callable[[], DeviceList], *, offload: Offload, clock: Clock
    ) -> None:
        self._list_devices = list_devices
        self._offload = offload
        self._clock = clock
        self._answer = DeviceList()
        self._answered_at = 0.0
        self._problem = ""
        self._refused = 0

    async def run(self) -> None:
        while True:
            await self.ask()
            await self._clock.sleep(PERIOD)

    async def ask(self) -> None:
        """Ask the kubelet once; log a problem when it begins, and its end."""
        try:
            answer = await self._offload.run(self._list_devices)
        except KubeletUnavailable as error:
            if not self._problem:
                _log.warning(
                    "which pods use the GPUs is unknown: metrics will have no pod labels",
                    problem=str(error),
                )
            self._problem = str(error)
            return
        if self._problem:
            _log.info("which pods use the GPUs is known again")
        self._problem = ""
        self._answer, self._answered_at = answer, self._clock.monotonic()
        if answer.refused and not self._refused:
            _log.warning(
                "the kubelet lists devices of containers that cannot exist: they get no labels",
                containers=answer.refused,
            )
        self._refused = answer.refused

    def pods(self, gpus: Sequence[Gpu]) -> PodsByGpu:
        """Return the containers of these GPUs; none if the kubelet has been silent for long."""
        if self._clock.monotonic() - self._answered_at > KEPT:
            return {}
        return pods_by_gpu(self._answer.uses, gpus)
