"""Caches of the simulated server in a storm of faults: when it is over they hold what it holds."""

import asyncio
import random

import msgspec
import pytest

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.resources import CONFIG_MAPS
from libs.kube.views import Object
from libs.testing.apiserver.faults import (
    Cut,
    Delay,
    DropWatch,
    Fault,
    FaultEffect,
    Hang,
    RefuseRequest,
    Restart,
    SlowBody,
)
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run

READS = ("get", "list", "watch")

STORM: list[tuple[FaultEffect, float]] = [
    (Delay(seconds=2.0), 0.1),
    (Hang(), 0.05),
    (RefuseRequest(429, retry_after=1), 0.1),
    (RefuseRequest(500), 0.1),
    (RefuseRequest(410), 0.05),
    (Cut("before"), 0.1),
    (Cut("body"), 0.1),
    (DropWatch(after=3), 0.3),
    (DropWatch(after=2, clean=False), 0.3),
    (SlowBody(piece=100, seconds=0.01), 0.1),
    (Restart(), 0.01),
]


class World:
    """A server, people who write, and two caches: of everything, and of a part."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.people = Kube(self.server.transport(user="people"), manager="people", clock=sim.clock)
        self.us = Kube(self.server.transport(user="us"), manager="us", clock=sim.clock)
        self.whole = self._cache("whole")
        self.part = self._cache("part", labels="app in (a,b)")
        self.replayed: dict[str, str] = {}
        self.whole.on_change(self._replay)

    def _cache(self, name: str, *, labels: str = "") -> Cache[Object]:
        return Cache(
            self.us,
            CONFIG_MAPS,
            env=self.sim.env(name),
            namespace="default",
            labels=labels,
        )

    def _replay(self, old: Object | None, new: Object | None) -> None:
        key = (new or old).metadata.key  # type: ignore[union-attr]
        assert self.replayed.get(key) == (old.metadata.resource_version if old else None)
        if new is None:
            del self.replayed[key]
        else:
            assert old is None or int(old.metadata.resource_version) < int(
                new.metadata.resource_version
            )
            self.replayed[key] = new.metadata.resource_version

    async def write(self, chance: random.Random) -> None:
        """One write of somebody; of what we write ourselves, the response is learned late."""
        name = f"m{chance.randrange(30)}"
        wanted = {"metadata": {"name": name, "labels": {"app": chance.choice("abc")}}}
        who = self.people if chance.random() < 0.5 else self.us
        try:
            if chance.random() < 0.3:
                held = await who.get(CONFIG_MAPS, name, namespace="default")
                uid = held.metadata.uid
                await who.delete(CONFIG_MAPS, name, uid=uid, namespace="default")
            else:
                made = await who.apply(CONFIG_MAPS, wanted, force=True, namespace="default")
                if who is self.us:
                    await self.sim.clock.sleep(chance.choice((0.0, 0.1, 1.0)))
                    self.whole.record_write(made)
                    self.part.record_write(made)
        except KubeError:
            pass

    async def there(self, labels: str = "") -> dict[str, str]:
        page = await self.people.list_page(CONFIG_MAPS, namespace="default", labels=labels)
        return {item.metadata.key: item.metadata.resource_version for item in page.items}


def held(cache: Cache[Object]) -> dict[str, str]:
    return {each.metadata.key: each.metadata.resource_version for each in cache}


@pytest.mark.parametrize("seed", range(4))
def test_after_a_storm_of_faults_each_cache_is_the_server(seed: int) -> None:
    async def main(sim: Sim) -> None:
        world = World(sim)
        following = [asyncio.create_task(each.run()) for each in (world.whole, world.part)]
        faults = [
            world.server.faults.add(
                Fault(effect=does, verbs=READS, user="us", probability=probability)
            )
            for does, probability in STORM
        ]
        chance = sim.random_for("people")
        for _ in range(60):
            async with asyncio.TaskGroup() as writing:
                for _ in range(5):
                    writing.create_task(world.write(chance))
            await sim.clock.sleep(chance.choice((0.0, 0.5, 5.0)))
            if chance.random() < 0.05:
                await world.server.compact()
        world.server.faults.clear()
        assert sum(fault.hit_count > 0 for fault in faults) >= 8
        await sim.clock.sleep(120.0)
        proofs = await asyncio.gather(
            world.whole.verify_current(within=10.0), world.part.verify_current(within=10.0)
        )
        assert proofs == [True, True]
        assert held(world.whole) == await world.there() == world.replayed
        assert held(world.part) == await world.there("app in (a,b)")
        assert len(world.replayed) > 5
        assert (world.whole.problem, world.part.problem) == ("", "")
        for task in following:
            task.cancel()
        await asyncio.wait(following)
        assert world.server.open_watches == 0

    run(main, seed=seed)


def test_a_large_list_comes_in_pages_of_one_revision() -> None:
    async def main(sim: Sim) -> None:
        world = World(sim)
        for number in range(1101):
            made = {"metadata": {"name": f"m{number}"}}
            await world.people.create(CONFIG_MAPS, made, namespace="default")
        world.server.faults.add(Fault(effect=Cut("body"), verbs=("list",), times=2))
        following = asyncio.create_task(world.whole.run())
        await world.whole.wait_synced()
        following.cancel()
        await asyncio.wait({following})
        assert len(world.whole) == 1101
        assert world.whole.revision == world.server.revision
        assert msgspec.json.encode(sorted(held(world.whole))) == msgspec.json.encode(
            sorted(world.replayed)
        )

    run(main, seed=1)
