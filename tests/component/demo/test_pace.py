"""The time that Sluice adds to the durations of the simulated world, by node, without faults.

A node's turn lasts from the end of the turn before it until its own `upgrade-done`; the first turn
begins with the change of the version. Turns follow each other without a gap, so all waiting is in
some turn. The world's share of a turn is the time in which at least one container stops, image is
pulled, driver is unloaded or loaded, or validation runs. The rest is Sluice's, including the time
of the simulated API server, its controllers and kubelets.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
import pytest

from libs.contracts.events import StepEvent
from libs.forecast.world import ProcessEnd, TimeSpan, ValidationEnd
from libs.testing.cluster.node_lifecycle import TAINTS_AFTER
from libs.testing.stage.worlds import SteadyWorld
from tests.component.campaign.admin import NEW, OLD
from tests.component.campaign.world import CampaignWorld, run_world

NODES = tuple(f"n{number}" for number in range(3))
BUSY = NODES[::2]
P95_SECONDS = 2.0
LIFECYCLE = "system:serviceaccount:kube-system:node-controller"

Stretch = tuple[float, float]
"""Start and end, by the loop's time."""


class RecordingWorld(SteadyWorld, frozen=True, kw_only=True):
    """A steady world that records the time of each step by node."""

    took: dict[str, list[Stretch]] = msgspec.field(default_factory=dict[str, list[Stretch]])

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        return self._span(node, super().pull(node, workload, container))

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        ending = super().init(node, workload, container, attempt)
        self._keep(node, ending.after)
        return ending

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        return self._span(node, super().ready(node, workload, container, attempt))

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        return self._span(node, super().stop(node, workload, container))

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        ending = super().unload(node, attempt)
        self._keep(node, ending.after)
        return ending

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        ending = super().load(node, driver, attempt)
        self._keep(node, ending.after)
        return ending

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        verdict = super().validation(node, driver, attempt)
        self._keep(node, verdict.after)
        return verdict

    def _span(self, node: str, span: TimeSpan) -> TimeSpan:
        self._keep(node, span.seconds)
        return span

    def _keep(self, node: str, seconds: float | None) -> None:
        assert seconds is not None, "every duration is finite in this world"
        now = asyncio.get_running_loop().time()
        self.took.setdefault(node, []).append((now, now + seconds))


class NodeUpgrade(msgspec.Struct, frozen=True):
    node: str
    began: float
    ended: float

    def sluice_seconds(self, stretches: Iterable[Stretch]) -> float:
        """Return the seconds in which the world did nothing for this node."""
        clipped = ((max(a, self.began), min(b, self.ended)) for a, b in stretches)
        return self.ended - self.began - covered(each for each in clipped if each[0] < each[1])


def covered(stretches: Iterable[Stretch]) -> float:
    """Return the seconds covered by at least one stretch."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted(stretches):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


async def node_upgrades(
    world: CampaignWorld, patched: float, clock_ahead: float
) -> list[NodeUpgrade]:
    """Return the upgrades in order, by the loop's time."""
    done = [
        (event.at - clock_ahead, event.node)
        for event in await world.events()
        if isinstance(body := event.open(), StepEvent) and body.after == "upgrade-done"
    ]
    later = [(patched, ""), *sorted(each for each in done if each[0] > patched)]
    return [NodeUpgrade(node, began, ended) for (began, _), (ended, node) in pairwise(later)]


def taints(world: CampaignWorld, clock_ahead: float) -> dict[str, list[Stretch]]:
    """Return by node when Kubernetes was about to add the taint of a cordon."""
    found: dict[str, list[Stretch]] = {}
    for revision in world.revisions():
        if revision.kind == "Node" and revision.user == LIFECYCLE:
            at = revision.time - clock_ahead
            found.setdefault(revision.name, []).append((at - TAINTS_AFTER, at))
    return found


def overhead_seconds(seed: int) -> Iterator[float]:
    """Return Sluice's seconds in each turn."""
    model = RecordingWorld(seed=seed, jitter=1.0)

    async def story(world: CampaignWorld) -> tuple[list[NodeUpgrade], dict[str, list[Stretch]]]:
        await world.install()
        for name in NODES:
            world.add_machine(name)
        # All at once: only the upgrade that follows is measured.
        await world.apply_policy(OLD, maxParallelUpgrades=0, maxUnavailable="100%")
        world.keep_running()
        assert await world.until(world.is_rolled_out, within=1_500.0)
        for name in BUSY:
            await world.create_service(f"serve-{name}", name)
        await world.sleep(30)
        patched = asyncio.get_running_loop().time()
        clock_ahead = world.sim.clock.now() - patched
        await world.apply_policy(NEW, maxParallelUpgrades=1, maxUnavailable=1)
        assert await world.until(world.is_rolled_out, within=1_500.0)
        return await node_upgrades(world, patched, clock_ahead), taints(world, clock_ahead)

    found, tainted = run_world(story, seed=seed, model=model)
    for turn in found:
        yield turn.sluice_seconds([*model.took[turn.node], *tainted[turn.node]])


def p95(values: Sequence[float]) -> float:
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)]


@pytest.mark.dear("the promise itself: an upgrade of a few nodes, one after another")
@pytest.mark.parametrize("seed", [1])
def test_sluice_adds_little_to_the_time_of_an_upgrade(seed: int) -> None:
    ours = list(overhead_seconds(seed))
    assert len(ours) == len(NODES)
    assert p95(ours) <= P95_SECONDS, [round(each, 2) for each in ours]
