"""Stories of the driver agent."""

from libs.contracts.identities import Writer
from services.driver.node import agent
from services.driver.node.settings import DriverAgentSettings
from tests.unit import stationed
from tests.unit.stationed import NODE, UID, Given, Ground, Story

__all__ = ["Ground", "play"]


def play(story: Story) -> None:
    """A story of the driver agent in virtual time."""
    stationed.play(story, writer=Writer.DRIVER, start=_start)


async def _start(given: Given) -> None:
    await agent.run(
        DriverAgentSettings(node=NODE, node_uid=UID),
        bus=given.bus,
        host=given.host,
        journal=given.journal,
        clock=given.clock,
        random=given.random,
        service=given.service,
    )
