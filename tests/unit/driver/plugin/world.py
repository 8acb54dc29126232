"""The device plugin on a fake machine, with a kubelet that keeps every list."""

from pathlib import Path
from typing import Any

from libs.contracts.identities import Writer
from libs.host.deviceplugin.port import Offers
from libs.testing.simulation import Sim
from services.agent_frame import Given
from services.driver.plugin import agent
from services.driver.plugin.answers import Answers
from services.driver.plugin.offering import INSPECT_EVERY
from services.driver.plugin.settings import PluginSettings
from tests.builders.agent_world import NODE, UID, in_world_of
from tests.unit.driver.plugin.builders import OfferingWorld

GPU = "nvidia.com/gpu"
BOTH = {GPU: "GPU-0 GPU-1"}
ONE = {GPU: "GPU-0 GPU-1!"}
"""The second one is unhealthy."""
NEITHER = {GPU: "GPU-0! GPU-1!"}
SOON = INSPECT_EVERY + 0.5


class FakeKubelet:
    """Takes every offer."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.problem = ""
        self.lists: list[tuple[float, int, dict[str, str]]] = []
        """The time of each change, the open handles of the driver, and the lists."""

    async def offer(self, offers: Offers) -> None:
        shown = {
            name: " ".join(f"{each.id}{'' if each.healthy else '!'}" for each in devices)
            for name, devices in offers.items()
        }
        if not self.lists or self.lists[-1][-1] != shown:
            world = self._world
            self.lists.append((world.clock.monotonic(), world.driver.held, shown))

    @property
    def last(self) -> dict[str, str]:
        return self.lists[-1][-1] if self.lists else {}


class World(OfferingWorld):
    WRITER = Writer.PLUGIN

    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        self.settings: dict[str, Any] = {}
        self.kubelet = FakeKubelet(self)
        self.answers = Answers()

    async def run_agent(self, given: Given) -> None:
        self.answers = Answers()
        await agent.run(
            PluginSettings(node=NODE, node_uid=UID, state_dir=self.root / "state", **self.settings),
            given,
            kubelet=self.kubelet,
            answers=self.answers,
            list_uses=self.list_uses,
        )

    def put_config(self, name: str, text: str) -> Path:
        """Write a configuration file, and set the folder of them."""
        folder = self.root / "configs"
        folder.mkdir(exist_ok=True)
        self.settings["plugin_config_dir"] = str(folder)
        (folder / name).write_text(text)
        return folder / name

    async def offers(self, wanted: dict[str, str], *, after: float = SOON) -> None:
        """Let the agent look at its GPUs once more: it must then offer exactly this."""
        await self.clock.sleep(after)
        assert self.kubelet.last == wanted


in_world = in_world_of(World)
