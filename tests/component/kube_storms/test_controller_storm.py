"""A level-triggered controller under the storm: it ends where it should be, then keeps still."""

import pytest

from libs.contracts.journal import Revision
from libs.kube.controller import Controller, Done, Outcome
from libs.kube.metering import Meters
from libs.kube.queue import WorkQueue
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.runtime.metrics import Metrics
from libs.testing.loop import Sim, run
from tests.component.kube_storms.storm import CALM, STORMS, Storm
from tests.component.kube_storms.truth import Part
from tests.component.kube_storms.weather import SERVANT

KEEPER = "keeper"
SETTLED = CALM + max(STORMS)
"""Seconds after which every key was tried in the calm: its pauses double, so the one that a storm
ends in is not longer than the storm."""

WANTED = "pool"
"""The label that is mirrored."""

MIRROR = "mirror"
_PATH = f"metadata.annotations.{MIRROR}"


class Keeper:
    """Keeps an annotation of each node as a label of it is, by guarded writes."""

    def __init__(self, storm: Storm) -> None:
        clock = storm.clock
        self._kube = storm.kube(SERVANT, manager=KEEPER)
        follower = storm.follow(SERVANT, Part(name="the keeper's nodes", resource=NODES))
        storm.followers.append(follower)
        self._cache = follower.cache
        self._queue: WorkQueue[str] = WorkQueue(clock=clock)
        self._cache.on_change(self._changed)
        self.controller = Controller(
            name=KEEPER,
            reconcile=self._reconcile,
            queue=self._queue,
            concurrency=3,
            timeout=10.0,
            grace=0.0,
            clock=clock,
            ids=storm.sim.ids,
            meters=Meters(Metrics(version="test"), controllers=[KEEPER]),
        )

    def _changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        self._queue.add(node.metadata.key)

    async def _reconcile(self, key: str) -> Outcome:
        node = self._cache.get(key)
        if node is None or is_mirrored(node):
            return Done()
        metadata = node.metadata
        self._cache.learn(
            await self._kube.merge(
                NODES,
                metadata.name,
                {"metadata": {"annotations": {MIRROR: metadata.labels.get(WANTED)}}},
                resource_version=metadata.resource_version,
                within=4.0,
            )
        )
        return Done()


def is_mirrored(node: Node) -> bool:
    return node.metadata.annotations.get(MIRROR) == node.metadata.labels.get(WANTED)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_converges_after_the_storm_and_then_writes_nothing(seed: int) -> None:
    played: list[tuple[Storm, Keeper]] = []

    async def main(sim: Sim) -> None:
        storm = Storm(sim)
        keeper = Keeper(storm)
        played.append((storm, keeper))
        await storm.play(calm=SETTLED, keeper=keeper.controller.run())

    run(main, seed=seed)
    [(storm, keeper)] = played
    assert storm.wrong == []
    assert keeper.controller.troubles() == {}
    nodes = storm.truth.now(NODES)
    assert len(nodes) >= 10
    assert [node.metadata.name for node in nodes if not is_mirrored(node)] == []
    written = [each for each in storm.truth.revisions if each.manager == KEEPER]
    assert sum(each.code < 300 for each in written) >= 10
    assert [each for each in written if each.code < 300 and not was_true(storm, each)] == []


def was_true(storm: Storm, written: Revision) -> bool:
    """Whether it wrote what the label was at that very revision: the guard held."""
    states = dict(storm.truth.states(NODES))[written.name]
    after = [state.view for state in states if state.revision == written.revision]
    return list(written.changed) == [_PATH] and all(map(is_mirrored, after)) and len(after) == 1
