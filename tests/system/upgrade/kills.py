"""What is killed during an upgrade, and when: each kill in each phase, by turns."""

import asyncio
import datetime
import os
import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import pytest

from libs.contracts.node import UpgradeState
from libs.testing.realnodes.machine import NodeMachine
from tests.system.nodes.installation import NAMESPACE
from tests.system.nodes.usage import kill_containers
from tests.system.upgrade.world import World

ALL: Final = "all"
VARIABLE: Final = "SLUICE_SYSTEM_KILLS"
"""In the environment: a number that chooses two kills, or `all` for every one; else the date."""

SOAK_ONLY: Final = pytest.mark.skipif(
    os.environ.get(VARIABLE) != ALL, reason="part of `make soak ARGS=system`"
)

Kill = Callable[[World, NodeMachine], Awaitable[None]]


def _kill_pod(app: str) -> Kill:
    async def kill(world: World, machine: NodeMachine) -> None:
        """Kill what runs in the containers of a pod; the kubelet starts them again."""
        selector = f"--field-selector=spec.nodeName={machine.node.name}"
        words = ("pods", "--namespace", NAMESPACE, f"--selector=app={app}", selector)
        for pod in (await world.kubectl.get(*words))["items"]:
            await asyncio.to_thread(kill_containers, machine.node, pod["metadata"]["uid"])

    return kill


async def _kill_kubelet(_world: World, machine: NodeMachine) -> None:
    await machine.node.restart_kubelet(signal.SIGKILL)


async def _kill_containerd(_world: World, machine: NodeMachine) -> None:
    await machine.node.restart_containerd(signal.SIGKILL)


async def _cut_power(world: World, machine: NodeMachine) -> None:
    await world.ground.thread.run(machine.power_cut())


async def _kill_scheduler(world: World, _machine: NodeMachine) -> None:
    await world.installation.replace_scheduler()


async def _kill_nats(world: World, _machine: NodeMachine) -> None:
    await world.installation.nats.kill()
    await asyncio.sleep(1.0)
    await world.installation.nats.start()


KILLS: Final[Mapping[str, Kill]] = {
    "driver agent": _kill_pod("nvidia-container-toolkit-daemonset"),
    "validator": _kill_pod("nvidia-operator-validator"),
    "driver container": _kill_pod("nvidia-driver-daemonset"),
    "kubelet": _kill_kubelet,
    "containerd": _kill_containerd,
    "power": _cut_power,
    "scheduler": _kill_scheduler,
    "NATS": _kill_nats,
}
PHASES: Final = (
    UpgradeState.UPGRADE_REQUIRED,
    UpgradeState.POD_DELETION_REQUIRED,
    UpgradeState.POD_RESTART_REQUIRED,
    UpgradeState.VALIDATION_REQUIRED,
    UpgradeState.UPGRADE_DONE,
)


class Turn(NamedTuple):
    """A kill of something on a node that is in a phase, or of a service meanwhile."""

    what: str
    phase: UpgradeState

    def __str__(self) -> str:
        return f"{self.what} at {self.phase.value}"


def plans(environ: Mapping[str, str]) -> Sequence[tuple[Turn, Turn]]:
    """Return the kills of each upgrade to be played, one for each node."""
    chosen = environ.get(VARIABLE, "") or str(datetime.datetime.now(datetime.UTC).toordinal())
    turns = [Turn(what, phase) for what in KILLS for phase in PHASES]
    random.Random(0).shuffle(turns)
    pairs = list(zip(turns[::2], turns[1::2], strict=True))
    return pairs if chosen == ALL else [pairs[int(chosen) % len(pairs)]]
