"""Sluice as `helm install` brings it to a node, and what an early attempt to remove it was told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from libs.contracts.node import LEASE_ANNOTATION
from libs.testing.image.driver_settings import DriverSettings
from tests.support import eventually
from tests.system.install.world import VERSION, World

AGENTS = {
    "sluice-device-plugin",
    "sluice-discovery-agent",
    "sluice-driver-agent",
    "sluice-telemetry-agent",
    "sluice-validator-agent",
}
_OF_DEFINITIONS = ("CustomResourceDefinition ", "APIService ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """Sluice on a node, and that node as it was before."""

    world: World
    cluster: Mapping[str, Any]
    """All objects as they were, and the definitions, which Helm never removes."""
    host: str
    """The files of the node as they were."""
    install_said: str
    refused_said: str
    """What Helm said when it was to remove Sluice while a driver was being installed."""

    async def until_ready(self) -> None:
        await self.world.until_agents_are_ready(AGENTS, within=400)
        await self.world.kubectl.wait(
            "jsonpath={.status.state}=ready", "clusterpolicy/cluster-policy"
        )


async def installed(world: World) -> Release:
    """Install Sluice; return while its agents start."""
    await world.create_namespace()
    (machine,) = world.machines
    before, host = await world.snapshot(), await world.host()
    machine.set_driver(VERSION, DriverSettings(hangs=True))
    install_said = await world.helm("install")
    await world.forward_nats()
    await eventually(lambda: _has_lease(world), within=300, every=0.5)
    refused_said = await world.refused_uninstall()
    definitions = await world.snapshot()
    machine.set_driver(VERSION, DriverSettings())
    return Release(
        world=world,
        cluster={
            **before,
            **{key: each for key, each in definitions.items() if key.startswith(_OF_DEFINITIONS)},
        },
        host=host,
        install_said=install_said,
        refused_said=refused_said,
    )


async def _has_lease(world: World) -> bool:
    nodes = (await world.kubectl.get("nodes"))["items"]
    return any(LEASE_ANNOTATION in each["metadata"]["annotations"] for each in nodes)
