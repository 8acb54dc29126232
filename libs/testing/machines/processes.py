"""Processes in pod containers of a simulated machine, as the fake kubelet starts and ends them.

Each runs as a task and appears in the machine's /proc while its container runs. Durations come from
the world's model.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from libs.forecast.world import ProcessEnd
from libs.testing.cluster.kubelet.container import ContainerInstance, ProcessEvents
from libs.testing.cluster.kubelet.hardware import GPU
from libs.testing.cluster.views import Pod
from libs.testing.machines.kernel import CONTROL, MEMORY, device
from libs.testing.machines.state import MachineState


class SimulatedProcess(ABC):
    """The process of one container instance."""

    comm = ""

    def __init__(self, state: MachineState) -> None:
        self.state = state
        self.pid = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._events: ProcessEvents | None = None

    @abstractmethod
    async def run(self, instance: ContainerInstance) -> int:
        """Run until the process ends by itself; return the exit code."""

    def begin(self, instance: ContainerInstance, events: ProcessEvents, /) -> None:
        self.state.check_boot(instance.boot_id)
        self._events = events
        self.pid = self.state.kernel.start(
            self.comm, pod_uid=instance.pod.metadata.uid, container_id=instance.container_id
        )
        self._spawn(instance, "lives", self._run_to_exit(instance))

    def stop(self, instance: ContainerInstance) -> None:
        """Terminate within the time given by the world's model."""
        self._spawn(instance, "stops", self._stop_gracefully(instance))

    def end(self, instance: ContainerInstance) -> None:  # noqa: ARG002  (the kubelet names the instance)
        for task in self._tasks:
            task.cancel()
        self.cleanup()

    def cleanup(self) -> None:
        """Remove the process from the kernel."""
        self.state.kernel.end(self.pid)

    def report_ready(self, ready: bool) -> None:
        """Report the result of the readiness probe."""
        if self._events is not None:
            self._events.ready(ready)

    def report_line(self, line: str) -> None:
        """Write a line to the container's log."""
        if self._events is not None:
            self._events.wrote(line)

    async def wait(self, seconds: float | None) -> None:
        """Sleep; None waits until the container ends."""
        if seconds is None:
            await asyncio.Event().wait()
        else:
            await self.state.clock.sleep(seconds)

    def finish(self) -> None:
        """End successfully, as a program does whose work is done."""
        self.abort()
        self._exit(0)

    def abort(self) -> None:
        """Cancel the running work; stopping still takes its time."""
        self._tasks[0].cancel()

    async def _run_to_exit(self, instance: ContainerInstance) -> None:
        self._exit(await self.run(instance))

    async def _stop_gracefully(self, instance: ContainerInstance) -> None:
        model, pod = self.state.model, instance.pod
        duration = model.stop(instance.node, workload_of(pod), instance.container)
        await self.wait(duration.seconds)
        self._exit(0)

    def _exit(self, code: int) -> None:
        self.cleanup()
        if self._events is not None:
            self._events.exit(code)

    def _spawn(
        self, instance: ContainerInstance, what: str, coroutine: Coroutine[Any, Any, None]
    ) -> None:
        name = f"{instance.node}/{instance.pod.metadata.name}/{instance.container} {what}"
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine, name=name))


def workload_of(pod: Pod) -> str:
    """Return the name of the pod's owner, by which worlds identify a workload."""
    owner = pod.metadata.owner
    return owner.name if owner else pod.metadata.name


class GpuProcess(SimulatedProcess):
    """Computes on GPUs that are free; fails at once if there are too few."""

    comm = "python3"

    def __init__(self, state: MachineState, count: int, *, init: bool) -> None:
        super().__init__(state)
        self._count = count
        self._init = init

    async def run(self, instance: ContainerInstance) -> int:
        state = self.state
        busy = state.kernel.busy_gpus()
        free = [number for number in range(len(state.gpus)) if number not in busy]
        devices = [device(number) for number in free[: self._count]]
        if len(devices) < self._count or not state.kernel.open(
            self.pid, (CONTROL, MEMORY, *devices)
        ):
            return 1
        key = (instance.node, workload_of(instance.pod), instance.container, instance.attempt)
        ending = self._ending(instance.pod, key)
        ready = state.model.ready(*key).seconds
        if not self._init and ready is not None and (ending.after is None or ready < ending.after):
            await self.wait(ready)
            self.report_ready(True)
            await self.wait(None if ending.after is None else ending.after - ready)
        else:
            await self.wait(ending.after)
        return ending.exit_code

    def _ending(self, pod: Pod, key: tuple[str, str, str, int]) -> ProcessEnd:
        model = self.state.model
        if self._init:
            return model.init(*key)
        return model.run(*key) if pod.spec.restart_policy == "Always" else model.job(*key)


def gpu_process(state: MachineState, pod: Pod, container: str) -> GpuProcess | None:
    """Return the process of a container with GPUs."""
    for init, group in ((True, pod.spec.init_containers), (False, pod.spec.containers)):
        for each in group:
            if each.name == container:
                count = int(each.resources.limits.get(GPU, "0"))
                return GpuProcess(state, count, init=init) if count else None
    return None
