"""A kind that may not be served yet, or not any more: what is known of it, and since when."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

from libs.kube.client import Kube
from libs.kube.informer import SERVED_POLL_INTERVAL, VERIFY_TIMEOUT, Informer
from libs.kube.resources import Resource
from libs.kube.views import Object
from libs.policy.crds import crd_manifests
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim, run

ROLLOUTS = Resource(
    group="sluice.dev",
    version="v1alpha1",
    plural="rollouts",
    kind="Rollout",
    namespaced=False,
    view=Object,
)
DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    view=Object,
)
NAME = "rollouts.sluice.dev"


class World:
    """A server, and the source that follows it."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random)
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=sim.clock)
        reader = Kube(self.server.transport(user="reader"), manager="reader", clock=sim.clock)
        self.source = Informer(reader, ROLLOUTS, env=sim.env())

    async def install(self) -> None:
        """The kind is served from now on."""
        await self.kube.create(DEFINITIONS, crd_manifests()[NAME])

    async def remove(self) -> None:
        """It is not, and its objects are gone."""
        await self.kube.request("DELETE", DEFINITIONS.path(name=NAME))

    async def make(self, name: str) -> None:
        """One object."""
        about = {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}
        await self.kube.create(ROLLOUTS, {**about, "metadata": {"name": name}, "spec": {}})

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.sim.clock.sleep(seconds)

    def names(self) -> list[str]:
        """Of what is known."""
        return [one.metadata.name for one in self.source]


def run_story(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main(sim: Sim) -> None:
        town = World(sim)
        assert (town.source.age, town.source.why_unknown) == (math.inf, "rollouts: not listed yet")
        following = asyncio.create_task(town.source.run(), name="follow")
        try:
            await story(town)
        finally:
            following.cancel()
            await asyncio.wait({following})
            await town.server.stop()

    run(main, seed=1)


def test_an_unserved_kind_has_no_objects_until_it_is_served() -> None:
    async def story(town: World) -> None:
        source = town.source
        await town.sleep(1)
        assert (source.why_unknown, town.names()) == ("", [])
        assert source.age <= 1
        assert await source.verify_current() == ""
        assert source.age == 0.0
        await town.install()
        await town.make("a")
        assert await source.verify_current() == "rollouts: served now"
        await town.sleep(1.2 * SERVED_POLL_INTERVAL + 1)
        assert (source.why_unknown, town.names()) == ("", ["a"])
        assert await source.verify_current() == ""

    run_story(story)


def test_a_removed_kind_is_proven_empty_and_comes_back() -> None:
    async def story(town: World) -> None:
        source = town.source
        await town.install()
        await town.make("a")
        await town.sleep(2 * SERVED_POLL_INTERVAL)
        await town.remove()
        await town.sleep(200)
        assert town.names() == []
        assert await source.verify_current() == ""
        assert source.age <= VERIFY_TIMEOUT
        await town.install()
        await town.make("b")
        await town.sleep(120)
        assert town.names() == ["b"]
        assert await source.verify_current() == ""
        assert source.age <= VERIFY_TIMEOUT

    run_story(story)


def test_the_age_grows_while_the_server_does_not_respond() -> None:
    async def story(town: World) -> None:
        source = town.source
        fault = Fault(effect=RefuseRequest(500), user="reader", verbs=("list", "watch"))
        refused = town.server.faults.add(fault)
        await town.install()
        await town.make("a")
        await town.sleep(100)
        assert source.age == 100.0
        assert "Internal error" in await source.verify_current()
        assert source.age >= 100.0
        town.server.faults.remove(refused)
        await town.sleep(60)
        assert (source.why_unknown, town.names()) == ("", ["a"])

    run_story(story)
