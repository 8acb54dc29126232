"""A level-triggered controller under the storm: it ends where it should be, then keeps still."""

import pytest

from libs.contracts.journal import Revision
from libs.kube.controller import Controller, Reconciled, ReconcileResult
from libs.kube.metrics import ControllerMetrics
from libs.kube.queue import WorkQueue
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.runtime.metrics import Metrics
from libs.testing.env import make_env
from libs.testing.simulation import Sim, run
from tests.component.kube_storms.faults import WRITER
from tests.component.kube_storms.state_history import CacheSelection
from tests.component.kube_storms.storm import CALM, STORMS, Storm

KEEPER = "keeper"
SETTLED = CALM + max(STORMS)
"""Seconds after which every key was tried in the calm: its pauses double, so the one that a storm
ends in is not longer than the storm."""

WANTED = "pool"
"""The label that is mirrored."""

MIRROR = "mirror"
_PATH = f"metadata.annotations.{MIRROR}"


class MirrorController:
    """Keeps an annotation of each node as a label of it is, by guarded writes."""

    def __init__(self, storm: Storm) -> None:
        clock = storm.clock
        self._kube = storm.kube(WRITER, manager=KEEPER)
        follower = storm.follow(WRITER, CacheSelection(name="the keeper's nodes", resource=NODES))
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
            env=make_env(clock=clock, ids=storm.sim.ids),
            metrics=ControllerMetrics(Metrics(version="test"), controllers=[KEEPER]),
        )

    def _changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        self._queue.add(node.metadata.key)

    async def _reconcile(self, key: str) -> ReconcileResult:
        node = self._cache.get(key)
        if node is None or is_mirrored(node):
            return Reconciled()
        metadata = node.metadata
        self._cache.record_write(
            await self._kube.merge(
                NODES,
                metadata.name,
                {"metadata": {"annotations": {MIRROR: metadata.labels.get(WANTED)}}},
                resource_version=metadata.resource_version,
                within=4.0,
            )
        )
        return Reconciled()


def is_mirrored(node: Node) -> bool:
    return node.metadata.annotations.get(MIRROR) == node.metadata.labels.get(WANTED)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_converges_after_the_storm_and_then_writes_nothing(seed: int) -> None:
    played: list[tuple[Storm, MirrorController]] = []

    async def main(sim: Sim) -> None:
        storm = Storm(sim)
        keeper = MirrorController(storm)
        played.append((storm, keeper))
        await storm.run(calm=SETTLED, keeper=keeper.controller.run())

    run(main, seed=seed)
    [(storm, keeper)] = played
    assert storm.violations == []
    assert keeper.controller.failures() == {}
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
