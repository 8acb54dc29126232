"""A process in a container of a pod, as the fake kubelet starts and ends it.

It lives as a task, and its process stands in the machine's /proc for as long as its container runs.
What it does is its subclass's; how long that takes, the world's.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from libs.testing.cluster.kinds import Pod
from libs.testing.cluster.kubelet.occupants import Instance, Voice
from libs.testing.machines.site import Site


class Resident(ABC):
    """One container's; another start of it is another resident."""

    comm = ""
    """The process's name."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.pid = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._voice: Voice | None = None

    @abstractmethod
    async def live(self, instance: Instance) -> int:
        """Until it ends by itself; gives the exit code."""

    def begin(self, instance: Instance, voice: Voice) -> None:
        """The container has started."""
        self.site.check_boot(instance.boot_id)
        self._voice = voice
        self.pid = self.site.kernel.start(
            self.comm, pod_uid=instance.pod.metadata.uid, container_id=instance.container_id
        )
        self._spawn(instance, "lives", self._to_its_end(instance))

    def stop(self, instance: Instance) -> None:
        """It is asked to end, and takes its time."""
        self._spawn(instance, "stops", self._to_stop(instance))

    def end(self, instance: Instance) -> None:  # noqa: ARG002  (a kubelet says which one)
        """Its container is gone."""
        for task in self._tasks:
            task.cancel()
        self.vanish()

    def vanish(self) -> None:
        """No process of it is left."""
        self.site.kernel.end(self.pid)

    def ready(self, ready: bool) -> None:
        """As its probes would find it."""
        if self._voice is not None:
            self._voice.ready(ready)

    async def wait(self, seconds: float | None) -> None:
        """So long, or until the container ends."""
        if seconds is None:
            await asyncio.Event().wait()
        else:
            await self.site.clock.sleep(seconds)

    def give_up(self) -> None:
        """What it does is cut off; it still has to stop."""
        self._tasks[0].cancel()

    async def _to_its_end(self, instance: Instance) -> None:
        self._exit(await self.live(instance))

    async def _to_stop(self, instance: Instance) -> None:
        model, pod = self.site.model, instance.pod
        takes = model.stop(instance.node, workload(pod), instance.container)
        await self.wait(takes.seconds)
        self._exit(0)

    def _exit(self, code: int) -> None:
        self.vanish()
        if self._voice is not None:
            self._voice.exit(code)

    def _spawn(self, instance: Instance, what: str, doing: Coroutine[Any, Any, None]) -> None:
        name = f"{instance.node}/{instance.pod.metadata.name}/{instance.container} {what}"
        self._tasks.append(asyncio.get_running_loop().create_task(doing, name=name))


def workload(pod: Pod) -> str:
    """What made it, as worlds know it."""
    owner = pod.metadata.owner
    return owner.name if owner else pod.metadata.name
