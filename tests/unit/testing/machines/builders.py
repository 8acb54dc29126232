"""A machine for one test, pods on it, and a kubelet that records events."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libs.contracts.node import DRIVER_LABEL
from libs.policy.render.rendered import INSTALL_ANNOTATION
from libs.testing.cluster.kubelet.container import ContainerInstance, ContainerProcess
from libs.testing.cluster.views import Pod
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import MachineModel, SteadyWorld
from tests.builders.objects import container, pod, seen


def machine(
    sim: Sim, root: Path, *, model: MachineModel | None = None, **more: Any
) -> SimulatedMachine:
    return SimulatedMachine(
        root,
        name="n1",
        model=model or SteadyWorld(),
        env=sim.env("n1"),
        **more,
    )


def driver_pod(
    name: str, *, label: str = "d-1", digest: str = "i-1", version: str = "580.95.05"
) -> Pod:
    """Return a pod as the driver's DaemonSet creates it; the name determines the uid."""
    containers = ("nvidia-driver-ctr", "nvidia-peermem-ctr")
    image = f"r.example/nvidia/driver:{version}-ubuntu22.04"
    meta = {
        "namespace": "gpu-operator",
        "uid": uid(name),
        "labels": {DRIVER_LABEL: label},
        "annotations": {INSTALL_ANNOTATION: digest} if digest else {},
    }
    of_driver = [container(each, image=image) for each in containers]
    gate = [container("gate")]
    made = pod(name, node="n1", meta=meta, containers=of_driver, initContainers=gate)
    return seen(Pod, made)


def uid(name: str) -> str:
    text = hashlib.sha256(name.encode()).hexdigest()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


@dataclass
class RunningContainer:
    """One start of a container, with the events that its process reported."""

    process: ContainerProcess
    instance: ContainerInstance
    readiness: list[bool] = field(default_factory=list[bool])
    exits: list[int] = field(default_factory=list[int])
    log: list[str] = field(default_factory=list[str])

    def ready(self, ready: bool) -> None:
        self.readiness.append(ready)

    def wrote(self, line: str) -> None:
        self.log.append(line)

    def exit(self, code: int) -> None:
        self.exits.append(code)

    def end(self) -> None:
        self.process.end(self.instance)

    def stop(self) -> None:
        self.process.stop(self.instance)


class FakeKubelet:
    """A kubelet that starts containers on one machine."""

    def __init__(self, world: SimulatedMachine) -> None:
        self.world = world
        self._starts = 0

    def start(
        self, pod: Pod, container: str, *, attempt: int = 0, boot_id: str = ""
    ) -> RunningContainer:
        """Start the container; the machine must have a process for it."""
        self._starts += 1
        process = self.world.process_for(pod, container)
        assert process is not None
        instance = ContainerInstance(
            node="n1",
            boot_id=boot_id or self.world.boot_id,
            pod=pod,
            container=container,
            container_id=f"containerd://{self._starts:032x}",
            attempt=attempt,
        )
        running = RunningContainer(process, instance)
        process.begin(instance, running)
        return running
