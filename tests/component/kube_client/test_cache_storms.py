"""Caches and a controller against the simulated server in a storm of faults."""

import asyncio
import random
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.controller import Controller, ControllerMetrics, Reconciled, ReconcileResult
from libs.kube.errors import KubeError, Unavailable
from libs.kube.queue import RETRY_CAP
from libs.kube.resources import CONFIG_MAPS
from libs.kube.views import Object
from libs.runtime.metrics import Metrics
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

NAMESPACE = "default"
SELECTOR = "app in (a,b)"
READS = ("get", "list", "watch")
EVENT_DELAY = 5.0
"""Seconds by which slow bodies may delay an event without effect on the age of a cache."""

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
    """A server, other clients that write, and two caches: of everything, and with a selector."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.others = Kube(self.server.transport(user="people"), manager="people", clock=sim.clock)
        self.client = Kube(self.server.transport(user="us"), manager="us", clock=sim.clock)
        self.full = self._cache("whole")
        self.selected = self._cache("part", labels=SELECTOR)
        self.replayed: dict[str, str] = {}
        self.full.on_change(self._replay)
        self.written: dict[str, tuple[float, Object, bool]] = {}
        """Time, state and deletion of the last write, by object."""

    def _cache(self, name: str, *, labels: str = "") -> Cache[Object]:
        env = self.sim.env(name)
        return Cache(self.client, CONFIG_MAPS, env=env, namespace=NAMESPACE, labels=labels)

    def _replay(self, old: Object | None, new: Object | None) -> None:
        key = _either(old, new).metadata.key
        assert self.replayed.get(key) == (old.metadata.resource_version if old else None)
        if new is None:
            del self.replayed[key]
        else:
            assert old is None or _revision(old) < _revision(new)
            self.replayed[key] = new.metadata.resource_version

    async def write(self, chance: random.Random) -> None:
        """Create, change or delete an object; some caches record the write late."""
        name = f"m{chance.randrange(30)}"
        manifest = {"metadata": {"name": name, "labels": {"app": chance.choice("abc")}}}
        writer = self.others if chance.random() < 0.5 else self.client
        with suppress(KubeError):
            if chance.random() < 0.3:
                view = await writer.get(CONFIG_MAPS, name, namespace=NAMESPACE)
                uid = view.metadata.uid
                await writer.delete(CONFIG_MAPS, name, uid=uid, namespace=NAMESPACE)
                self._record(view, deleted=True)
                return
            view = await writer.apply(CONFIG_MAPS, manifest, force=True, namespace=NAMESPACE)
            self._record(view, deleted=False)
            if writer is self.client:
                await self.sim.clock.sleep(chance.choice((0.0, 0.1, 1.0)))
                self.full.record_write(view)
                self.selected.record_write(view)

    def _record(self, view: Object, *, deleted: bool) -> None:
        self.written[view.metadata.key] = (self.sim.clock.monotonic(), view, deleted)

    async def list(self, labels: str = "") -> dict[str, str]:
        while True:
            with suppress(Unavailable):  # a restart of the server affects all clients
                page = await self.others.list_page(CONFIG_MAPS, namespace=NAMESPACE, labels=labels)
                return {item.metadata.key: item.metadata.resource_version for item in page.items}

    def assert_has_writes_until(self, time: float) -> None:
        for key, (written_at, view, deleted) in self.written.items():
            if written_at > time:
                continue
            cached = self.full.get(key)
            if deleted:
                assert cached is None or cached.metadata.uid != view.metadata.uid
            elif cached is not None:
                assert _revision(cached) >= _revision(view)

    async def check_claims(self, chance: random.Random) -> int:
        """Check the claimed age, then a proof; return 1 if the cache could be proven current."""
        self.assert_has_writes_until(self.sim.clock.monotonic() - self.full.age - EVENT_DELAY)
        before = await self.list()
        revision = self.server.revision
        if not await self.full.verify_current(within=chance.uniform(0.2, 8.0)):
            return 0
        cached, after = revisions(self.full), await self.list()
        for key, version in before.items():
            assert int(cached.get(key, 0)) >= int(version) or after.get(key) != version
        for key, version in cached.items():
            assert int(version) > revision or before.get(key) == version
        return 1

    @asynccontextmanager
    async def running(self, *more: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
        tasks = [
            asyncio.create_task(each) for each in (self.full.run(), self.selected.run(), *more)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def storm(self, *verbs: str) -> int:
        """Write through a storm of faults; return how often the cache was proven current."""
        faults = [
            self.server.faults.add(
                Fault(effect=effect, verbs=verbs, user="us", probability=probability)
            )
            for effect, probability in STORM
        ]
        chance = self.sim.random_for("people")
        proofs = 0
        for number in range(60):
            async with asyncio.TaskGroup() as writers:
                for _ in range(5):
                    writers.create_task(self.write(chance))
            await self.sim.clock.sleep(chance.choice((0.0, 0.5, 5.0)))
            if chance.random() < 0.05:
                await self.server.compact()
            if number % 3 == 0:
                proofs += await self.check_claims(chance)
        self.server.faults.clear()
        assert sum(fault.hit_count > 0 for fault in faults) >= 8
        return proofs


def _either(old: Object | None, new: Object | None) -> Object:
    view = new or old
    assert view is not None
    return view


def _revision(view: Object) -> int:
    return int(view.metadata.resource_version)


def revisions(cache: Cache[Object]) -> dict[str, str]:
    return {each.metadata.key: each.metadata.resource_version for each in cache}


@pytest.mark.parametrize("seed", range(20))
def test_caches_equal_the_server_after_a_storm_and_claim_nothing_false_during_it(seed: int) -> None:
    async def main(sim: Sim) -> None:
        world = World(sim)
        async with world.running():
            assert await world.storm(*READS) >= 1
            await sim.clock.sleep(120.0)
            assert await world.full.verify_current(within=10.0)
            assert await world.selected.verify_current(within=10.0)
            assert revisions(world.full) == await world.list() == world.replayed
            assert revisions(world.selected) == await world.list(SELECTOR)
            assert len(world.replayed) > 5
            assert (world.full.problem, world.selected.problem) == ("", "")
        assert world.server.open_watches == 0

    run(main, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_converges_after_a_storm_and_then_writes_nothing(seed: int) -> None:
    def is_mirrored(view: Object) -> bool:
        return view.metadata.annotations.get("app") == view.metadata.labels["app"]

    async def main(sim: Sim) -> None:
        world = World(sim)

        async def mirror(key: str) -> ReconcileResult:
            view = world.full.get(key)
            if view is not None and not is_mirrored(view):
                metadata = view.metadata
                written = await world.client.merge(
                    CONFIG_MAPS,
                    metadata.name,
                    {"metadata": {"annotations": {"app": metadata.labels["app"]}}},
                    namespace=NAMESPACE,
                    resource_version=metadata.resource_version,
                    within=4.0,
                )
                assert is_mirrored(written)  # the revision guards the decision
                world.full.record_write(written)
            return Reconciled()

        controller = Controller(
            name="mirror",
            reconcile=mirror,
            concurrency=3,
            timeout=10.0,
            env=sim.env("controller"),
            metrics=ControllerMetrics(Metrics(version="test"), controllers=["mirror"]),
        )
        world.full.on_change(lambda old, new: controller.queue.add(_either(old, new).metadata.key))
        async with world.running(controller.run()):
            await world.storm(*READS, "patch")
            await sim.clock.sleep(2 * RETRY_CAP)
            assert len(world.full) > 5
            assert all(map(is_mirrored, world.full))
            assert revisions(world.full) == await world.list()
            revision = world.server.revision
            await sim.clock.sleep(2 * RETRY_CAP)
            assert world.server.revision == revision

    with capture_logs():  # a traceback for each failed attempt takes longer than the storm
        run(main, seed=seed)


def test_a_large_list_comes_in_pages_of_one_revision() -> None:
    async def main(sim: Sim) -> None:
        world = World(sim)
        for number in range(1101):
            manifest = {"metadata": {"name": f"m{number}"}}
            await world.others.create(CONFIG_MAPS, manifest, namespace=NAMESPACE)
        world.server.faults.add(Fault(effect=Cut("body"), verbs=("list",), times=2))
        async with world.running():
            await world.full.wait_synced()
        assert len(world.full) == 1101
        assert world.full.revision == world.server.revision
        assert revisions(world.full) == world.replayed

    run(main, seed=1)
