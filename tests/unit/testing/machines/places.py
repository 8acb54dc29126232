"""A machine for one test, pods on it, and a kubelet that only writes down what it hears."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.forecast.world import Model, Steady
from libs.policy.rendering.rendered import INSTALL_ANNOTATION
from libs.testing.cluster.kinds import Pod
from libs.testing.cluster.kubelet.occupants import Instance, Occupant
from libs.testing.loop import Sim
from libs.testing.machines.machine import Machine

PLUGIN = "nvidia.com/gpu"


def machine(sim: Sim, root: Path, *, model: Model | None = None, **more: Any) -> Machine:
    """One that is called n1."""
    return Machine(
        root,
        name="n1",
        model=model or Steady(),
        clock=sim.clock,
        ids=sim.ids,
        random=sim.random_for("n1"),
        **more,
    )


def driver_pod(
    name: str, *, label: str = "d-1", digest: str = "i-1", version: str = "580.95.05"
) -> Pod:
    """As its DaemonSet makes it; another name is another uid."""
    containers = ("nvidia-driver-ctr", "nvidia-peermem-ctr")
    image = f"r.example/nvidia/driver:{version}-ubuntu22.04"
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "gpu-operator",
                "uid": uid(name),
                "labels": {DRIVER_LABEL: label},
                "annotations": {INSTALL_ANNOTATION: digest} if digest else {},
            },
            "spec": {
                "nodeName": "n1",
                "initContainers": [{"name": "gate", "image": "r.example/gate"}],
                "containers": [{"name": each, "image": image} for each in containers],
            },
        },
        Pod,
    )


def job_pod(name: str, *, gpus: int = 1, policy: str = "Never") -> Pod:
    """Work that was given GPUs."""
    needs = {"limits": {PLUGIN: str(gpus)}} if gpus else {}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": uid(name)},
            "spec": {
                "nodeName": "n1",
                "restartPolicy": policy,
                "initContainers": [{"name": "warm", "image": "x", "resources": needs}],
                "containers": [
                    {"name": "main", "image": "x", "resources": needs},
                    {"name": "logs", "image": "x"},
                ],
            },
        },
        Pod,
    )


def uid(name: str) -> str:
    """Of the pod with this name."""
    text = hashlib.sha256(name.encode()).hexdigest()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


@dataclass
class Running:
    """One start of a container, and what it said."""

    occupant: Occupant
    instance: Instance
    ready_says: list[bool] = field(default_factory=list[bool])
    exits: list[int] = field(default_factory=list[int])

    def ready(self, ready: bool) -> None:
        self.ready_says.append(ready)

    def exit(self, code: int) -> None:
        self.exits.append(code)

    def end(self) -> None:
        """The container is gone."""
        self.occupant.end(self.instance)

    def stop(self) -> None:
        """It is asked to end."""
        self.occupant.stop(self.instance)


class Kubelet:
    """Starts containers on one machine."""

    def __init__(self, there: Machine) -> None:
        self.there = there
        self._starts = 0

    def start(self, pod: Pod, container: str, *, attempt: int = 0, boot_id: str = "") -> Running:
        """Somebody of the machine lives in it, or this fails."""
        self._starts += 1
        occupant = self.there.occupants(pod, container)
        assert occupant is not None
        instance = Instance(
            node="n1",
            boot_id=boot_id or self.there.boot_id,
            pod=pod,
            container=container,
            container_id=f"containerd://{self._starts:032x}",
            attempt=attempt,
        )
        running = Running(occupant, instance)
        occupant.begin(instance, running)
        return running
