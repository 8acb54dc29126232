"""The driver agent on a fake machine."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from libs.contracts.identities import Writer
from libs.testing.simulation import Sim
from services.agent_frame import Given
from services.driver.node import agent
from services.driver.node.agent import DriverAgentSettings
from tests.builders import agent_world
from tests.builders.agent_world import NODE, UID, AgentWorld, in_world_of


class World(AgentWorld):
    WRITER = Writer.DRIVER

    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        self.state_dir = root / "var/lib/sluice/driver"
        self.settings: dict[str, Any] = {}
        """Of the agent's next process."""

    async def run_agent(self, given: Given) -> None:
        named: dict[str, Any] = {"node": NODE, "node_uid": UID, "state_dir": self.state_dir}
        settings = DriverAgentSettings(**named | self.settings)
        await agent.run(settings, given)

    async def admit(self, uid: str, label: str = "d-2") -> None:
        """Let a driver pod come to the gate, and wait until it opens for that pod."""
        self.machine.add_gate_request(uid, label, at=self.clock.now())
        await self.until(lambda: self.machine.is_gate_open_to(uid, label))


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    agent_world.play(story, World)


in_world = in_world_of(World)
