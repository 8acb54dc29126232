"""GPUs for tests of those who offer them to pods, and the world of such an agent."""

from pathlib import Path
from typing import Any

from libs.contracts.facts import Gpu
from libs.host.cdi import published
from libs.host.cdi.spec import Device, DeviceNode, Edits, make_spec
from libs.host.podresources.assignments import DeviceList
from libs.host.podresources.client import KubeletUnavailable
from libs.testing.simulation import Sim
from tests.builders import gpus
from tests.builders.agent_world import AgentWorld
from tests.builders.fake_machine import VERSION


def gpu(index: int, *profiles: str, **more: Any) -> Gpu:
    """Return a GPU behind the bridge with its number and one."""
    return gpus.gpu(index, *profiles, **{"pci": f"00000000:{index + 1:02X}:00.0", **more})


class OfferingWorld(AgentWorld):
    """A machine with two GPUs under a driver, which containers can have."""

    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        self.root = root
        self.driver.gpus.change([gpu(0), gpu(1)])
        self.driver.set_version(VERSION)
        self.put_specs("GPU-0", "GPU-1")
        self.uses: DeviceList | None = DeviceList()
        """What pods have by the kubelet's list; None: it does not answer."""
        self.asked = 0
        """How often it was asked for that."""

    def list_uses(self) -> DeviceList:
        self.asked += 1
        if self.uses is None:
            raise KubeletUnavailable("the kubelet is away")
        return self.uses

    def put_specs(self, *names: str) -> None:
        """Write the CDI spec of these devices."""
        edits = Edits(device_nodes=(DeviceNode(path="/dev/null"),))
        devices = tuple(Device(name=name, container_edits=edits) for name in names)
        spec = make_spec(published.GPU_KIND, common=Edits(), devices=devices)
        published.put(self.machine.tree, published.GPU_FILE, spec)
