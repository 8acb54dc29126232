"""The interface of processes that run inside simulated containers.

For a container with a process, the process decides when it is ready and how it ends; the world's
model only says how long the start takes. For a container without one, the model decides all.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from libs.testing.cluster.views import Pod


class ContainerInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one container."""

    node: str
    boot_id: str
    pod: Pod
    container: str
    container_id: str
    attempt: int


class ProcessEvents(Protocol):
    """What a process reports to its kubelet; ignored after the container has ended."""

    def ready(self, ready: bool) -> None:
        """Set the result of the readiness probe."""
        ...

    def exit(self, code: int) -> None:
        """Report that the process has ended by itself."""
        ...


class ContainerProcess(Protocol):
    """A process in a container. The methods return at once; work runs in tasks."""

    def begin(self, instance: ContainerInstance, events: ProcessEvents, /) -> None:
        """The container has started."""
        ...

    def stop(self, instance: ContainerInstance) -> None:
        """Terminate; the process is killed at the end of the grace period."""
        ...

    def end(self, instance: ContainerInstance) -> None:
        """The container is gone: exited, killed, or lost with its machine."""
        ...


ProcessFactory = Callable[[Pod, str], ContainerProcess | None]
"""Creates the process for a pod's container of that name; None leaves it to the model."""


def no_process(_pod: Pod, _container: str) -> None:
    pass
