"""The door for what really runs inside a container, where somebody simulates that too.

Without an occupant the world's model says when a container is ready and how it ends; with one, the
occupant does, and the model is asked only how long it takes to start. An init container that
waits for somebody's word is an occupant that exits when it is told.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from libs.testing.cluster.views import Pod


class ContainerInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one container: another start is another instance."""

    node: str
    boot_id: str
    pod: Pod
    container: str
    container_id: str
    attempt: int


class ProcessEvents(Protocol):
    """How a process tells its kubelet of itself; what a process says after its end is not heard."""

    def ready(self, ready: bool) -> None:
        """As its readiness probe would find it; also takes readiness back."""
        ...

    def exit(self, code: int) -> None:
        """It has ended by itself."""
        ...


class ContainerProcess(Protocol):
    """A process in a container. The calls return at once; what takes time is a task of its own."""

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        """The container has started."""
        ...

    def stop(self, instance: ContainerInstance) -> None:
        """It is asked to end, and is killed when the pod's grace is over."""
        ...

    def end(self, instance: ContainerInstance) -> None:
        """It is gone: it exited, was killed, or lost its machine."""
        ...


ProcessFactory = Callable[[Pod, str], ContainerProcess | None]
"""Who lives in the container of that name of a pod; None: nobody, the model decides."""


def no_process(_pod: Pod, _container: str) -> None:
    """Every container is the model's."""
