"""An informer of a kind that is not served yet, or no longer."""

import asyncio
import math

import pytest
from msgspec.structs import replace

from libs.kube.client import Kube
from libs.kube.informer import SERVED_POLL_INTERVAL, VERIFY_TIMEOUT, Informer, missing_definitions
from libs.kube.resources import Resource
from libs.kube.views import Object
from libs.policy.crds import crd_manifests
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim
from tests.unit.kube.world import ROLLOUTS, SimWorld, in_virtual_time

DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    view=Object,
)
NAME = "rollouts.sluice.dev"


class World(SimWorld):
    """A server, a client that changes it, and an informer."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim)
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random)
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=sim.clock)
        self._reader = Kube(self.server.transport(user="reader"), manager="reader", clock=sim.clock)
        self.informer = Informer(self._reader, ROLLOUTS, env=sim.env())

    async def start(self) -> None:
        assert self.informer.age == math.inf
        assert self.informer.why_not_synced == "rollouts: not listed yet"
        self._following = asyncio.create_task(self.informer.run(), name="follow")

    async def follow(self, resource: Resource[Object]) -> None:
        """Follow this kind instead."""
        self._following.cancel()
        await asyncio.wait({self._following})
        self.informer = Informer(self._reader, resource, env=self.sim.env())
        await self.start()

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.wait({self._following})
        await self.server.stop()

    async def install(self) -> None:
        """Install the definition of the kind."""
        await self.kube.create(DEFINITIONS, crd_manifests()[NAME])

    async def remove(self) -> None:
        """Delete the definition, and with it the objects."""
        await self.kube.request("DELETE", DEFINITIONS.path(name=NAME))

    async def create(self, name: str) -> None:
        type_meta = {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}
        await self.kube.create(ROLLOUTS, {**type_meta, "metadata": {"name": name}, "spec": {}})

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    def names(self) -> list[str]:
        return [view.metadata.name for view in self.informer]


@in_virtual_time(World)
async def test_an_unserved_kind_has_no_objects_until_it_is_served(world: World) -> None:
    informer = world.informer
    await world.sleep(1)
    assert (informer.why_not_synced, world.names()) == ("", [])
    assert informer.age <= 1
    assert await informer.verify_current() == ""
    assert informer.age == 0.0
    await world.install()
    await world.create("a")
    assert await informer.verify_current() == "rollouts: served now"
    await world.sleep(1.2 * SERVED_POLL_INTERVAL + 1)
    assert (informer.why_not_synced, world.names()) == ("", ["a"])
    assert await informer.verify_current() == ""


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]


@in_virtual_time(World)
async def test_a_missing_kind_is_reported_at_most_once_a_minute_until_it_is_served(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    informer = world.informer
    await world.sleep(1)
    assert informer.missing == NAME
    problem = missing_definitions([informer])
    assert problem.startswith(f"CustomResourceDefinition not installed: {NAME}; apply the defini")
    assert reports(caplog) == [problem]
    await world.sleep(600)
    assert 8 <= len(reports(caplog)) <= 11
    assert set(reports(caplog)) == {problem}
    await world.install()
    await world.sleep(1.2 * SERVED_POLL_INTERVAL + 1)
    assert (informer.missing, missing_definitions([informer])) == ("", "")


@in_virtual_time(World)
async def test_an_optional_kind_is_never_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.follow(replace(ROLLOUTS, optional=True))
    caplog.clear()
    await world.sleep(600)
    assert (world.informer.missing, world.informer.why_not_synced) == ("", "")
    assert reports(caplog) == []


@in_virtual_time(World)
async def test_a_removed_kind_is_missing_until_it_comes_back(world: World) -> None:
    informer = world.informer
    await world.install()
    await world.create("a")
    await world.sleep(2 * SERVED_POLL_INTERVAL)
    assert informer.missing == ""
    await world.remove()
    await world.sleep(5)
    assert informer.missing == NAME
    await world.install()
    await world.sleep(60)
    assert informer.missing == ""


@in_virtual_time(World)
async def test_a_removed_kind_is_proven_empty_and_comes_back(world: World) -> None:
    informer = world.informer
    await world.install()
    await world.create("a")
    await world.sleep(2 * SERVED_POLL_INTERVAL)
    await world.remove()
    await world.sleep(200)
    assert world.names() == []
    assert await informer.verify_current() == ""
    assert informer.age <= VERIFY_TIMEOUT
    await world.install()
    await world.create("b")
    await world.sleep(120)
    assert world.names() == ["b"]
    assert await informer.verify_current() == ""
    assert informer.age <= VERIFY_TIMEOUT


@in_virtual_time(World)
async def test_the_age_grows_while_the_server_does_not_respond(world: World) -> None:
    informer = world.informer
    fault = Fault(effect=RefuseRequest(500), user="reader", verbs=("list", "watch"))
    refused = world.server.faults.add(fault)
    await world.install()
    await world.create("a")
    await world.sleep(100)
    assert informer.age == 100.0
    assert "Internal error" in await informer.verify_current()
    assert informer.age >= 100.0
    world.server.faults.remove(refused)
    await world.sleep(60)
    assert (informer.why_not_synced, world.names()) == ("", ["a"])
