"""How much we add to what the world takes, node by node, where nothing goes wrong.

A node's turn lasts from the end of the turn before it until its own `upgrade-done`; the first one's
begins with the person's patch. The turns follow each other without a gap, so nothing that we do
or wait for is in no turn. The world's share of a turn is the time in which at least one thing was
under way that the world takes its time for: a container that stops, an image that is pulled, a
driver that is unloaded or loaded, a validation. What is left is ours, and all that the simulated
API server, its controllers and kubelets take is counted as ours too.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec
import pytest

from libs.contracts.events import StepEvent
from libs.forecast.world import ProcessEnd, SteadyWorld, TimeSpan, ValidationEnd
from libs.testing.cluster.nodes.lifecycle import TAINTS_AFTER
from tests.component.campaign.scenario import NEW, OLD
from tests.component.campaign.world import CampaignWorld, run_world

NODES = tuple(f"n{number}" for number in range(6))
BUSY = NODES[::2]
P95_SECONDS = 2.0
LIFECYCLE = "system:serviceaccount:kube-system:node-controller"

Stretch = tuple[float, float]
"""From when to when, by the loop's time."""


class RecordingWorld(SteadyWorld, frozen=True, kw_only=True):
    """A steady world that remembers when something took its time, by node."""

    took: dict[str, list[Stretch]] = msgspec.field(default_factory=dict[str, list[Stretch]])

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        """As usual."""
        return self._span(node, super().pull(node, workload, container))

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """As usual."""
        ending = super().init(node, workload, container, attempt)
        self._keep(node, ending.after)
        return ending

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        """As usual."""
        return self._span(node, super().ready(node, workload, container, attempt))

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        """As usual."""
        return self._span(node, super().stop(node, workload, container))

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        """As usual."""
        ending = super().unload(node, attempt)
        self._keep(node, ending.after)
        return ending

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        """As usual."""
        ending = super().load(node, driver, attempt)
        self._keep(node, ending.after)
        return ending

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        """As usual."""
        verdict = super().validation(node, driver, attempt)
        self._keep(node, verdict.after)
        return verdict

    def _span(self, node: str, span: TimeSpan) -> TimeSpan:
        self._keep(node, span.seconds)
        return span

    def _keep(self, node: str, seconds: float | None) -> None:
        assert seconds is not None, "nothing runs for ever in this world"
        now = asyncio.get_running_loop().time()
        self.took.setdefault(node, []).append((now, now + seconds))


class NodeUpgrade(msgspec.Struct, frozen=True):
    """Of one node."""

    node: str
    began: float
    ended: float

    def sluice_seconds(self, world: Iterable[Stretch]) -> float:
        """Seconds in which the world did nothing for this node."""
        clipped = ((max(a, self.began), min(b, self.ended)) for a, b in world)
        return self.ended - self.began - covered(one for one in clipped if one[0] < one[1])


def covered(stretches: Iterable[Stretch]) -> float:
    """Seconds in which there was at least one."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted(stretches):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def test_time_that_is_covered_twice_counts_once() -> None:
    assert covered([]) == 0.0
    assert covered([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0), (5.2, 5.4)]) == 4.0
    turn = NodeUpgrade("n", 1.0, 10.0)
    assert turn.sluice_seconds([(0.0, 2.0), (9.0, 12.0), (20.0, 30.0)]) == 7.0


async def node_upgrades(
    town: CampaignWorld, patched: float, clock_ahead: float
) -> list[NodeUpgrade]:
    """In their order, by the loop's time."""
    done = [
        (event.at - clock_ahead, event.node)
        for event in await town.events()
        if isinstance(body := event.open(), StepEvent) and body.after == "upgrade-done"
    ]
    later = [(patched, ""), *sorted(one for one in done if one[0] > patched)]
    return [NodeUpgrade(node, began, ended) for (began, _), (ended, node) in pairwise(later)]


def taints(town: CampaignWorld, clock_ahead: float) -> dict[str, list[Stretch]]:
    """When Kubernetes was about to follow a cordon, by node."""
    found: dict[str, list[Stretch]] = {}
    for one in town.revisions():
        if one.kind == "Node" and one.user == LIFECYCLE:
            at = one.time - clock_ahead
            found.setdefault(one.name, []).append((at - TAINTS_AFTER, at))
    return found


def overhead_seconds(seed: int) -> Iterator[float]:
    """Our seconds in each node's turn."""
    world = RecordingWorld(seed=seed, jitter=1.0)

    async def story(town: CampaignWorld) -> tuple[list[NodeUpgrade], dict[str, list[Stretch]]]:
        await town.install()
        for name in NODES:
            town.add_machine(name)
        await town.apply_policy(OLD, maxParallelUpgrades=1, maxUnavailable=1)
        town.keep_running()
        assert await town.until(town.is_rolled_out, within=1_500.0) is not None
        for name in BUSY:
            await town.create_service(f"serve-{name}", name)
        await town.sleep(30)
        patched = asyncio.get_running_loop().time()
        clock_ahead = town.sim.clock.now() - patched
        await town.apply_policy(NEW, maxParallelUpgrades=1, maxUnavailable=1)
        assert await town.until(town.is_rolled_out, within=1_500.0) is not None
        return await node_upgrades(town, patched, clock_ahead), taints(town, clock_ahead)

    found, tainted = run_world(story, seed=seed, model=world)
    for turn in found:
        yield turn.sluice_seconds([*world.took[turn.node], *tainted[turn.node]])


def p95(values: Sequence[float]) -> float:
    """19 of 20 are no greater."""
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)]


@pytest.mark.parametrize("seed", [1])
def test_a_turn_is_hardly_longer_than_the_world_takes(seed: int) -> None:
    ours = list(overhead_seconds(seed))
    assert len(ours) == len(NODES)
    assert p95(ours) <= P95_SECONDS, [round(each, 2) for each in ours]
