"""A world for tests of discovery's cluster role: Nodes without machines.

The test plays the agents, the scheduler and the people.
"""

import asyncio
from pathlib import Path

from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.contracts.reports import BEAT_PERIOD, Beat
from libs.testing.simulation import Sim
from services.discovery.cluster import resources
from tests.builders.fleet import written
from tests.component import world
from tests.component.processes import user_of
from tests.support import Story, played_by
from tests.unit.discovery.cluster.builders import operands_in
from tests.unit.policy.situations import cluster_policy

USER = user_of(Writer.DISCOVERY_CLUSTER)
BOOT = "boot-1"


class World(world.World):
    WRITER = Writer.DISCOVERY_CLUSTER
    CONTROLLERS = False

    def __init__(self, sim: Sim, folder: Path) -> None:
        super().__init__(sim, folder)
        self.silent: set[str] = set()
        """The nodes whose telemetry agent sends no heartbeats."""
        self._uids: dict[str, str] = {}

    async def beat(self) -> None:
        """Send the heartbeats of all telemetry agents until cancelled."""
        while True:
            for name, uid in tuple(self._uids.items()):
                if name not in self.silent:
                    await self._beat(name, uid)
            await self.sleep(BEAT_PERIOD)

    async def _beat(self, name: str, uid: str) -> None:
        writer = Writer.TELEMETRY
        subject = subjects.Beat(cluster="default", node=name, component=writer)
        beat = Beat(node=name, node_uid=uid, boot_id=BOOT, component=writer)
        await self.connect(writer, node=name).publish(str(subject), encode(beat))

    async def node(self, name: str, facts: Facts | None = None, /, **labels: str) -> None:
        """Create a Node, and report these facts."""
        self._uids[name] = await self.add_node(name, labels, boot=BOOT)
        if facts is not None:
            await self.report_facts(name, facts)

    async def report_facts(
        self, name: str, facts: Facts, *, writer: Writer = Writer.DISCOVERY, boot: str = BOOT
    ) -> None:
        await self.report(name, facts, writer=writer, boot=boot, kind="facts")

    async def get_node(self, name: str) -> resources.Node:
        return await self.kube.get(resources.NODES, name)

    async def labels(self, name: str) -> dict[str, str]:
        return (await self.get_node(name)).metadata.labels

    async def operands(self, name: str) -> dict[str, str]:
        return operands_in(await self.labels(name))

    async def set_record(self, name: str, record: NodeRecord | None) -> None:
        """Write the scheduler's record of the node."""
        await self.annotate(name, **{RECORD_ANNOTATION: None, **written(record)})

    async def annotate(self, name: str, **annotations: str | None) -> None:
        await self.patch(resources.NODES, name, {"metadata": {"annotations": annotations}})


def play(story: Story[World]) -> None:
    """Run a story with an installation and a policy."""

    async def installed(world: World) -> None:
        await world.install()
        await world.apply(cluster_policy())
        beats = asyncio.create_task(world.beat())
        try:
            await story(world)
        finally:
            beats.cancel()

    world.run_world(installed, World)


in_world = played_by(play)
