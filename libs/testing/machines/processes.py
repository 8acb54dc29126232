"""A process in a container of a pod, as the fake kubelet starts and ends it.

It lives as a task, and its process stands in the machine's /proc for as long as its container runs.
What it does is its subclass's; how long that takes, the world's.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from libs.forecast.world import ProcessEnd
from libs.testing.cluster.kubelet.container_process import ContainerInstance, ProcessEvents
from libs.testing.cluster.kubelet.hardware import GPU
from libs.testing.cluster.views import Pod
from libs.testing.machines.kernel import CONTROL, MEMORY, device
from libs.testing.machines.state import MachineState


class SimulatedProcess(ABC):
    """One container's; another start of it is another resident."""

    comm = ""
    """The process's name."""

    def __init__(self, state: MachineState) -> None:
        self.state = state
        self.pid = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._voice: ProcessEvents | None = None

    @abstractmethod
    async def run(self, instance: ContainerInstance) -> int:
        """Until it ends by itself; gives the exit code."""

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        """The container has started."""
        self.state.check_boot(instance.boot_id)
        self._voice = voice
        self.pid = self.state.kernel.start(
            self.comm, pod_uid=instance.pod.metadata.uid, container_id=instance.container_id
        )
        self._spawn(instance, "lives", self._to_its_end(instance))

    def stop(self, instance: ContainerInstance) -> None:
        """It is asked to end, and takes its time."""
        self._spawn(instance, "stops", self._to_stop(instance))

    def end(self, instance: ContainerInstance) -> None:  # noqa: ARG002  (a kubelet says which one)
        """Its container is gone."""
        for task in self._tasks:
            task.cancel()
        self.cleanup()

    def cleanup(self) -> None:
        """No process of it is left."""
        self.state.kernel.end(self.pid)

    def report_ready(self, ready: bool) -> None:
        """As its probes would find it."""
        if self._voice is not None:
            self._voice.ready(ready)

    async def wait(self, seconds: float | None) -> None:
        """So long, or until the container ends."""
        if seconds is None:
            await asyncio.Event().wait()
        else:
            await self.state.clock.sleep(seconds)

    def abort(self) -> None:
        """What it does is cut off; it still has to stop."""
        self._tasks[0].cancel()

    async def _to_its_end(self, instance: ContainerInstance) -> None:
        self._exit(await self.run(instance))

    async def _to_stop(self, instance: ContainerInstance) -> None:
        model, pod = self.state.model, instance.pod
        takes = model.stop(instance.node, workload_of(pod), instance.container)
        await self.wait(takes.seconds)
        self._exit(0)

    def _exit(self, code: int) -> None:
        self.cleanup()
        if self._voice is not None:
            self._voice.exit(code)

    def _spawn(
        self, instance: ContainerInstance, what: str, doing: Coroutine[Any, Any, None]
    ) -> None:
        name = f"{instance.node}/{instance.pod.metadata.name}/{instance.container} {what}"
        self._tasks.append(asyncio.get_running_loop().create_task(doing, name=name))


def workload_of(pod: Pod) -> str:
    """What made it, as worlds know it."""
    owner = pod.metadata.owner
    return owner.name if owner else pod.metadata.name


class GpuProcess(SimulatedProcess):
    """Computes on GPUs that nobody else computes on, and fails at once where it gets none."""

    comm = "python3"

    def __init__(self, state: MachineState, count: int, *, init: bool) -> None:
        super().__init__(state)
        self._count = count
        self._init = init

    async def run(self, instance: ContainerInstance) -> int:
        """As long as the world lets it."""
        site = self.state
        taken = site.kernel.busy_gpus()
        free = [number for number in range(len(site.gpus)) if number not in taken]
        mine = [device(number) for number in free[: self._count]]
        if len(mine) < self._count or not site.kernel.open(self.pid, (CONTROL, MEMORY, *mine)):
            return 1
        who = (instance.node, workload_of(instance.pod), instance.container, instance.attempt)
        ending = self._ending(instance.pod, who)
        ready = site.model.ready(*who).seconds
        if not self._init and ready is not None and (ending.after is None or ready < ending.after):
            await self.wait(ready)
            self.report_ready(True)
            await self.wait(None if ending.after is None else ending.after - ready)
        else:
            await self.wait(ending.after)
        return ending.exit_code

    def _ending(self, pod: Pod, who: tuple[str, str, str, int]) -> ProcessEnd:
        model = self.state.model
        if self._init:
            return model.init(*who)
        return model.run(*who) if pod.spec.restart_policy == "Always" else model.job(*who)


def gpu_process(state: MachineState, pod: Pod, container: str) -> GpuProcess | None:
    """Who lives in this container, if it was given GPUs."""
    for init, group in ((True, pod.spec.init_containers), (False, pod.spec.containers)):
        for each in group:
            if each.name == container:
                count = int(each.resources.limits.get(GPU, "0"))
                return GpuProcess(state, count, init=init) if count else None
    return None
