"""Stories of the driver agent."""

from libs.contracts.identities import Writer
from libs.testing.simulation import make_env
from services.driver.node import agent
from services.driver.node.agent import DriverAgentSettings
from tests.unit import agent_world
from tests.unit.agent_world import NODE, UID, AgentContext, AgentWorld, Story

__all__ = ["AgentWorld", "play"]


def play(story: Story) -> None:
    """A story of the driver agent in virtual time."""
    agent_world.play(story, writer=Writer.DRIVER, start=_start)


async def _start(given: AgentContext) -> None:
    await agent.run(
        DriverAgentSettings(node=NODE, node_uid=UID),
        bus=given.bus,
        host=given.host,
        journal=given.journal,
        env=make_env(clock=given.clock, random=given.random),
        service=given.service,
    )
