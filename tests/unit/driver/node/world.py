"""The driver agent on a fake machine."""

from collections.abc import Callable, Coroutine
from typing import Any

from libs.contracts.identities import Writer
from services.driver.node import agent
from services.driver.node.agent import DriverAgentSettings
from tests.support import played_by
from tests.unit import agent_world
from tests.unit.agent_world import NODE, UID, AgentWorld


class World(AgentWorld):
    WRITER = Writer.DRIVER

    async def run_agent(self, **ports: Any) -> None:
        await agent.run(DriverAgentSettings(node=NODE, node_uid=UID), **ports)


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    agent_world.play(story, World)


in_world = played_by(play)
