"""A guest for NVIDIA's drivers, as tests use it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from libs.testing.guest import actions as guest_actions
from libs.testing.guest.gpu import A100, GpuModel
from libs.testing.guest.guest import GPUS, Guest
from libs.testing.vendor import actions
from libs.testing.vendor.layout import Driver


@dataclass(frozen=True, slots=True)
class VendorGuest:
    guest: Guest
    old: Driver
    """The one that an upgrade begins with."""
    new: Driver

    async def load(self, driver: Driver) -> None:
        await self.guest.call(actions.load_driver, driver.files())

    async def log(self) -> str:
        """Return what NVIDIA's modules have written to the kernel's log in this test."""
        return "\n".join(await self.guest.call(actions.kernel_log))

    @asynccontextmanager
    async def with_gpus(self, *models: GpuModel) -> AsyncGenerator[None]:
        """Have other GPUs, or none, before a driver is loaded."""
        await self._have(models)
        try:
            yield
        finally:
            if self.guest.problem() is None:
                await self.guest.call(guest_actions.reset)
                await self._have((A100, A100))

    async def _have(self, models: tuple[GpuModel, ...]) -> None:
        await self.guest.call(actions.unplug, GPUS)
        for gpu, model in zip(self.guest.gpus, models, strict=False):
            gpu.become(model)
        if models:
            await self.guest.call(actions.replug, GPUS)
