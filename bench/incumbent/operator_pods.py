"""The incumbent's pods on simulated machines: driver manager, driver, validator, as processes.

The driver manager pauses the validator by its node label, unloads the driver and resumes it, as the
vendor's does; it sends fewer requests. All of it takes the time given by the world.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.incumbent.world import DRIVER, ScaledWorld
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.resources import NODES
from libs.testing.cluster.kubelet.container import (
    ContainerInstance,
    ContainerProcess,
    ProcessEvents,
)
from libs.testing.cluster.views import PODS

NAMESPACE: Final = "gpu-operator"
DRIVER_APP: Final = "nvidia-driver-daemonset"
VALIDATOR_APP: Final = "nvidia-operator-validator"
DEPLOY_DRIVER: Final = "nvidia.com/gpu.deploy.driver"
DEPLOY_VALIDATOR: Final = "nvidia.com/gpu.deploy.operator-validator"
PAUSED: Final = "paused-for-driver-upgrade"
MANAGER: Final = "k8s-driver-manager"
VALIDATOR: Final = "nvidia-operator-validator"
LOADED: Final = "sys/module/nvidia/version"
"""Below the root of a machine: the version of the driver in the kernel."""

POLL_SECONDS: Final = 5.0
"""The pause between two looks of the driver manager for the validator's pod, before scaling."""


class OperatorMachine(msgspec.Struct, kw_only=True, eq=False):
    """A machine as its pods see it."""

    name: str
    root: Path
    kube: Kube
    world: ScaledWorld
    poll: float
    loaded: asyncio.Event

    @property
    def version_file(self) -> Path:
        return self.root / LOADED

    def load(self, version: str) -> None:
        self.version_file.parent.mkdir(parents=True, exist_ok=True)
        self.version_file.write_text(version)
        self.loaded.set()

    def unload(self) -> None:
        self.version_file.unlink(missing_ok=True)
        self.loaded.clear()


class OperatorProcess(ABC):
    """A process that runs as a task."""

    def __init__(self, machine: OperatorMachine) -> None:
        self.machine = machine
        self._events: ProcessEvents | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @abstractmethod
    async def run(self, instance: ContainerInstance) -> int:
        """Run until the process ends by itself; return the exit code."""

    def begin(self, instance: ContainerInstance, events: ProcessEvents, /) -> None:
        self._events = events
        self._spawn(self._run_to_exit(instance))

    def stop(self, instance: ContainerInstance) -> None:
        self._spawn(self._stop_gracefully(instance))

    def end(self, instance: ContainerInstance) -> None:  # noqa: ARG002  (of the interface)
        for task in self._tasks:
            task.cancel()

    def report_ready(self) -> None:
        if self._events is not None:
            self._events.ready(True)

    async def _run_to_exit(self, instance: ContainerInstance) -> None:
        self._exit(await self.run(instance))

    async def _stop_gracefully(self, instance: ContainerInstance) -> None:
        machine = self.machine
        await asyncio.sleep(machine.world.stop(machine.name, "", instance.container).seconds or 0.0)
        self._exit(0)

    def _exit(self, code: int) -> None:
        if self._events is not None:
            self._events.exit(code)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine))


class DriverManager(OperatorProcess):
    """Unloads an earlier driver, while the operands that use it are paused."""

    async def run(self, instance: ContainerInstance) -> int:
        machine = self.machine
        if not machine.version_file.exists():
            return 0
        await self._label(PAUSED)
        while await self._validator_exists():
            await asyncio.sleep(machine.poll)
        await asyncio.sleep(machine.world.unload(instance.node, 0).after or 0.0)
        machine.unload()
        await self._label("true")
        return 0

    async def _label(self, value: str) -> None:
        await self.machine.kube.request(
            "PATCH",
            NODES.path(name=self.machine.name),
            body={"metadata": {"labels": {DEPLOY_VALIDATOR: value}}},
            content_type=MERGE_PATCH,
        )

    async def _validator_exists(self) -> bool:
        pods = await self.machine.kube.list_page(
            PODS,
            namespace=NAMESPACE,
            labels=f"app={VALIDATOR_APP}",
            fields=f"spec.nodeName={self.machine.name}",
        )
        return bool(pods.items)


class Driver(OperatorProcess):
    """Loads the version that the tag of its image names."""

    async def run(self, instance: ContainerInstance) -> int:
        machine = self.machine
        (image,) = (each.image for each in instance.pod.spec.containers if each.name == DRIVER)
        end = machine.world.load(instance.node, image, instance.attempt)
        await asyncio.sleep(end.after or 0.0)
        if end.exit_code:
            return end.exit_code
        machine.load(image.rpartition(":")[2])
        self.report_ready()
        return await _forever()


class Validator(OperatorProcess):
    """Validates the driver once it is loaded."""

    async def run(self, instance: ContainerInstance) -> int:
        machine = self.machine
        await machine.loaded.wait()
        verdict = machine.world.validation(instance.node, "", instance.attempt)
        await asyncio.sleep(verdict.after or 0.0)
        self.report_ready()
        return await _forever()


async def _forever() -> int:
    await asyncio.Event().wait()
    return 0


_PROCESSES: Final[dict[str, Callable[[OperatorMachine], OperatorProcess]]] = {
    MANAGER: DriverManager,
    DRIVER: Driver,
    VALIDATOR: Validator,
}


def operator_process(machine: OperatorMachine, container: str) -> ContainerProcess | None:
    """Return the process of a container of the incumbent's pods; None for other containers."""
    process = _PROCESSES.get(container)
    return None if process is None else process(machine)
