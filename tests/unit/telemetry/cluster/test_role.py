"""The fleet's page, in virtual time: batches and Nodes that come and go."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from libs.bus.telemetry import TelemetrySender
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from libs.contracts.telemetry import GpuSample
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.resources import NODES, CustomObject, Resource, custom_resource
from libs.kube.views import Object
from libs.policy.crds import crd_manifests
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run
from services.telemetry.cluster import role
from services.telemetry.cluster.fleet import SILENT_AFTER
from services.telemetry.cluster.role import TelemetryClusterSettings
from tests.unit.policy.situations import cluster_policy

MEASURED = {"nvidia.com/gpu.deploy.dcgm-exporter": "true"}
GOLD = {"nvidia.com/gpu-operator.driver.owner": "gold"}
POOL = "nvidiadriver-gold"
WHOLE = "clusterpolicy-cluster-policy"
DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    view=Object,
)


def samples(*temperatures: int) -> list[GpuSample]:
    return [
        GpuSample(
            f"GPU-{index}",
            index,
            "0000:1b:00.0",
            temperature_c=degrees,
            gpu_utilization=50,
            power_w=100.0,
            framebuffer_used_mib=1,
            framebuffer_free_mib=3,
        )
        for index, degrees in enumerate(temperatures)
    ]


class World:
    """An API server, a bus, and whoever is on them."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.bus = LocalServer(env=sim.env("bus"))
        self.person = Kube(self.server.transport(user="p"), manager="kubectl", clock=sim.clock)
        self.metrics = Metrics(version="0")

    async def node(self, name: str, **labels: str) -> str:
        """A new one; its uid."""
        wanted = {"metadata": {"name": name, "labels": {**MEASURED, **labels}}}
        return (await self.person.create(NODES, wanted)).metadata.uid

    async def change(self, name: str, **metadata: Any) -> None:
        await self.person.request(
            "PATCH",
            NODES.path(name=name),
            body={"metadata": metadata},
            content_type=MERGE_PATCH,
        )

    async def delete(self, name: str) -> None:
        await self.person.request("DELETE", NODES.path(name=name))

    def sender(self, name: str, uid: str) -> TelemetrySender:
        """Of one process of the agent there."""
        bus = self.bus.connect(Identity(writer=Writer.TELEMETRY, node=name))
        return TelemetrySender(bus=bus, env=self.sim.env(), node_uid=uid, boot_id="boot")

    async def send(self, sender: TelemetrySender, *temperatures: int, xids: int = 0) -> None:
        driver = "580.95.05" if temperatures else ""
        await sender.send(driver_version=driver, gpus=samples(*temperatures), xids=xids)
        await self.sim.clock.sleep(1.0)

    @asynccontextmanager
    async def role(self) -> AsyncGenerator[Service]:
        """One process of the cluster role."""
        self.metrics = Metrics(version="0")
        service = Service("telemetry", clock=self.sim.clock)
        bus = self.bus.connect(Identity(writer=Writer.TELEMETRY_CLUSTER))

        async def live() -> None:
            async with service:
                await role.run(
                    TelemetryClusterSettings(),
                    kube=self.server.transport(user="telemetry-cluster"),
                    bus=bus,
                    env=self.sim.env("role", metrics=self.metrics),
                    service=service,
                )

        task = self.sim.loop.create_task(live())
        await self.sim.clock.sleep(1.0)
        try:
            yield service
        finally:
            service.stop("the test is over")
            await task
            bus.kill()

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def shown(self, name: str) -> set[str]:
        """The nodes, or pools, that a metric has."""
        return {
            sample.labels.get("node") or sample.labels.get("pool", "")
            for family in text_string_to_metric_families(self.metrics.render().decode())
            for sample in family.samples
            if sample.name == name
        }


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main(sim: Sim) -> None:
        await story(World(sim))

    run(main, seed=0)


def test_nodes_and_pools_are_rolled_up() -> None:
    async def story(world: World) -> None:
        first = world.sender("a", await world.node("a", **GOLD))
        second = world.sender("b", await world.node("b", **GOLD))
        await world.node("c", **GOLD)
        async with world.role() as service:
            assert service.unready_reasons() == []
            await world.send(first, 40, 60)
            await world.send(second)
            value = world.value
            assert value("sluice_node_gpus", node="a") == 2
            assert value("sluice_node_gpus_mute", node="a") == 0
            assert value("sluice_node_gpu_utilization_ratio", node="a") == 0.5
            assert value("sluice_node_gpu_memory_used_bytes", node="a") == 2 * 2**20
            assert value("sluice_node_gpu_memory_bytes", node="a") == 8 * 2**20
            assert value("sluice_node_gpu_power_watts", node="a") == 200
            assert value("sluice_node_gpu_temperature_celsius", node="a") == 60
            assert value("sluice_node_telemetry_age_seconds", node="a") == 2.0
            assert world.shown("sluice_node_gpu_power_watts") == {"a"}
            info = {"node": "a", "pool": POOL, "driver_version": "580.95.05"}
            assert value("sluice_node_info", **info) == 1
            assert value("sluice_pool_gpus", pool=POOL) == 2
            assert value("sluice_pool_gpu_power_watts", pool=POOL) == 200
            for state in ("measured", "waiting", "silent"):
                assert value("sluice_pool_nodes", pool=POOL, state=state) == 1, state

    play(story)


def test_every_family_says_what_it_is_in_base_units() -> None:
    async def story(world: World) -> None:
        sender = world.sender("a", await world.node("a", **GOLD))
        async with world.role():
            await world.send(sender, 40)
            text = world.metrics.render().decode()
        families = list(text_string_to_metric_families(text))
        ours = [one for one in families if one.name.startswith(("sluice_node", "sluice_pool"))]
        assert len(ours) == 19
        for family in ours:
            assert family.documentation.startswith(("Of a node: ", "Of a pool: ", "Of a node that"))
            assert family.samples, family.name
            assert not family.name.endswith(("_mib", "_percent", "_mw"))
        assert len({one.name for one in families}) == len(families)

    play(story)


def test_a_silent_node_disappears_and_is_counted_as_silent() -> None:
    async def story(world: World) -> None:
        sender = world.sender("a", await world.node("a", **GOLD))
        async with world.role():
            await world.send(sender, 40)
            await world.sim.clock.sleep(SILENT_AFTER)
            assert world.shown("sluice_node_gpus") == set()
            assert world.shown("sluice_node_info") == set()
            assert world.value("sluice_pool_nodes", pool=POOL, state="silent") == 1
            assert world.value("sluice_pool_gpu_power_watts", pool=POOL) is None
            await world.send(sender, 40)
            assert world.shown("sluice_node_gpus") == {"a"}

    play(story)


def test_a_deleted_node_disappears_with_its_batches() -> None:
    async def story(world: World) -> None:
        uid = await world.node("a", **GOLD)
        sender = world.sender("a", uid)
        async with world.role():
            await world.send(sender, 40)
            await world.delete("a")
            await world.sim.clock.sleep(1.0)
            assert world.shown("sluice_node_gpus") == set()
            assert world.shown("sluice_pool_nodes") == set()
            await world.send(sender, 40)
            assert world.shown("sluice_node_gpus") == set()
            again = await world.node("a", **GOLD)
            await world.send(sender, 40)
            assert world.shown("sluice_node_gpus") == set()
            assert world.value("sluice_telemetry_batches_total", outcome="stranger") == 2
            await world.send(world.sender("a", again), 40)
            assert world.shown("sluice_node_gpus") == {"a"}
            assert world.value("sluice_telemetry_batches_total", outcome="taken") == 2

    play(story)


def test_a_node_that_is_not_to_be_measured_any_more_disappears() -> None:
    async def story(world: World) -> None:
        sender = world.sender("a", await world.node("a", **GOLD))
        async with world.role():
            await world.send(sender, 40)
            await world.change("a", labels=dict.fromkeys(MEASURED, "false"))
            await world.sim.clock.sleep(1.0)
            assert world.shown("sluice_node_gpus") == set()

    play(story)


def test_a_node_moves_to_the_pool_that_its_record_names() -> None:
    async def story(world: World) -> None:
        uid = await world.node("a", **GOLD)
        sender = world.sender("a", uid)
        async with world.role():
            await world.send(sender, 40)
            assert world.shown("sluice_pool_gpus") == {POOL}
            record = NodeRecord(node_uid=uid, epoch=1, token=1, pool="clusterpolicy-x")
            await world.change("a", annotations={RECORD_ANNOTATION: encode(record).decode()})
            await world.sim.clock.sleep(1.0)
            assert world.shown("sluice_pool_gpus") == {"clusterpolicy-x"}
            assert world.shown("sluice_node_gpus") == {"a"}

    play(story)


def test_xids_count_once_across_restarts() -> None:
    async def story(world: World) -> None:
        uid = await world.node("a", **GOLD)
        before, after = world.sender("a", uid), world.sender("a", uid)
        async with world.role():
            await world.send(before, 40)
            await world.send(before, 40, xids=2)
            await world.send(before, 40, xids=2)
            assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 2
            await world.send(after, 40)
            await world.send(after, 40, xids=1)
            assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 3
            assert world.value("sluice_pool_gpu_xid_errors_total", pool=POOL) == 3
        async with world.role():
            await world.send(after, 40, xids=1)
            assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 0
            await world.send(after, 40, xids=2)
            assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 1
            assert world.value("sluice_pool_gpu_xid_errors_total", pool=POOL) == 1

    play(story)


def test_batches_that_never_came_are_counted_but_not_those_of_strangers() -> None:
    async def story(world: World) -> None:
        senders = [world.sender("a", await world.node("a", **GOLD)), world.sender("ghost", "none")]
        async with world.role():
            for sender in senders:
                await world.send(sender, 40)
            world.bus.stop()
            for sender in senders:
                await world.send(sender, 40)
            world.bus.start()
            await world.sim.clock.sleep(30.0)
            for sender in senders:
                await world.send(sender, 40)
            assert world.value("sluice_telemetry_missing_batches_total") == 1
            assert world.value("sluice_telemetry_batches_total", outcome="taken") == 2

    play(story)


def test_without_the_api_server_nodes_are_shown_and_pools_are_waited_for() -> None:
    async def story(world: World) -> None:
        uid = await world.node("a", **GOLD)
        sender = world.sender("a", uid)
        await world.server.stop()
        async with world.role() as service:
            await world.send(sender, 40)
            assert world.shown("sluice_node_gpus") == {"a"}
            assert world.shown("sluice_pool_gpus") == set()
            (why,) = service.unready_reasons()
            assert why.startswith("telemetry: nodes: ")
            await world.server.start()
            await world.sim.clock.sleep(60.0)
            assert service.unready_reasons() == []
            assert world.shown("sluice_pool_gpus") == {POOL}

    play(story)


def test_a_node_of_which_no_record_says_it_is_in_the_pool_of_the_policy_that_selects_it() -> None:
    async def story(world: World) -> None:
        kinds = crd_manifests()
        await world.person.create(DEFINITIONS, kinds["clusterpolicies.nvidia.com"])
        policy = custom_resource(CLUSTER_POLICY, CustomObject)
        present = {"nvidia.com/gpu.present": "true"}
        sender = world.sender("a", await world.node("a", **present))
        await world.node("b")
        async with world.role():
            await world.send(sender, 40)
            assert world.shown("sluice_pool_gpus") == {""}
            made = cluster_policy()
            del made["metadata"]["uid"]
            await world.person.create(policy, made)
            await world.sim.clock.sleep(1.0)
            info = {"node": "a", "pool": WHOLE, "driver_version": "580.95.05"}
            assert world.value("sluice_node_info", **info) == 1
            assert world.value("sluice_pool_nodes", pool=WHOLE, state="measured") == 1
            assert world.value("sluice_pool_nodes", pool="", state="silent") == 1
            await world.change("b", labels=present)
            await world.sim.clock.sleep(1.0)
            assert world.value("sluice_pool_nodes", pool=WHOLE, state="silent") == 1
            await world.person.request("DELETE", policy.path(name="cluster-policy"))
            await world.sim.clock.sleep(1.0)
            assert world.shown("sluice_pool_nodes") == {""}

    play(story)


def test_a_role_that_starts_without_the_bus_waits_for_it() -> None:
    async def story(world: World) -> None:
        sender = world.sender("a", await world.node("a", **GOLD))
        world.bus.stop()
        async with world.role() as service:
            await world.sim.clock.sleep(100.0)
            assert service.failure is None
            assert any("bus: " in why for why in service.unready_reasons())
            world.bus.start()
            await world.sim.clock.sleep(15.0)
            assert service.unready_reasons() == []
            await world.send(sender, 40)
            assert world.value("sluice_node_gpus", node="a") == 1

    play(story)
