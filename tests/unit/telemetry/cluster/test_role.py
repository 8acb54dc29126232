"""The fleet's page while batches and Nodes come and go."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from libs.bus.telemetry import TelemetrySender
from libs.contracts.identities import Writer
from libs.contracts.telemetry import GpuSample
from libs.kube.resources import NODES, CustomObject, custom_resource
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from services.telemetry.cluster.fleet import SILENT_AFTER
from tests.builders.fleet import record, written
from tests.builders.gpus import sample
from tests.component import world
from tests.component.processes import Process
from tests.support import Story, played_by
from tests.unit.policy.situations import cluster_policy

MEASURED = {"nvidia.com/gpu.deploy.dcgm-exporter": "true"}
GOLD = {"nvidia.com/gpu-operator.driver.owner": "gold"}
POOL = "nvidiadriver-gold"
POLICY_POOL = "clusterpolicy-cluster-policy"
CLUSTER_POLICIES = custom_resource(CLUSTER_POLICY, CustomObject)


def samples(*temperatures: int) -> list[GpuSample]:
    return [
        sample(
            index,
            temperature_c=degrees,
            gpu_utilization=50,
            power_w=100.0,
            framebuffer_used_mib=1,
            framebuffer_free_mib=3,
        )
        for index, degrees in enumerate(temperatures)
    ]


class World(world.World):
    WRITER = Writer.TELEMETRY_CLUSTER
    SETTLE = 1.0
    CONTROLLERS = False

    async def node(self, name: str, **labels: str) -> str:
        """Create a Node with a telemetry agent; return its uid."""
        return await self.add_node(name, {**MEASURED, **labels}, boot="boot")

    async def sender(self, name: str, **labels: str) -> TelemetrySender:
        """Create a Node, and return a process of its agent."""
        return self.sender_of(name, await self.node(name, **labels))

    def sender_of(self, name: str, uid: str) -> TelemetrySender:
        bus = self.connect(Writer.TELEMETRY, node=name)
        return TelemetrySender(bus=bus, env=self.sim.env(), node_uid=uid, boot_id="boot")

    async def change(self, name: str, **metadata: Any) -> None:
        await self.patch(NODES, name, {"metadata": metadata})
        await self.sleep(1.0)

    async def send(self, sender: TelemetrySender, *temperatures: int, xids: int = 0) -> None:
        driver = "580.95.05" if temperatures else ""
        await sender.send(driver_version=driver, gpus=samples(*temperatures), xids=xids)
        await self.sleep(1.0)

    @property
    def role(self) -> Process:
        return self.roles[-1]

    def value(self, name: str, **labels: str) -> float | None:
        return self.role.value(name, **labels)

    def gpus(self) -> list[tuple[str, str]]:
        """Return the nodes and GPUs on the page of all samples."""
        pages: Any = self.role.result
        return [
            (sample.labels["hostname"], sample.labels["UUID"])
            for family in text_string_to_metric_families(pages["/metrics"]().body.decode())
            for sample in family.samples
            if sample.name == "DCGM_FI_DEV_GPU_TEMP"
        ]

    def names(self, metric: str) -> set[str]:
        """Return the nodes, or pools, that a metric has."""
        text = self.role.metrics.render().decode()
        return {
            sample.labels.get("node") or sample.labels.get("pool", "")
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == metric
        }


def play(story: Story[World]) -> None:
    async def installed(world: World) -> None:
        await world.install()
        await story(world)

    world.run_world(installed, World)


in_world = played_by(play)


@in_world
async def test_nodes_and_pools_are_rolled_up(world: World) -> None:
    first = await world.sender("a", **GOLD)
    second = await world.sender("b", **GOLD)
    await world.node("c", **GOLD)
    service = (await world.lead()).service
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
    assert world.names("sluice_node_gpu_power_watts") == {"a"}
    info = {"node": "a", "pool": POOL, "driver_version": "580.95.05"}
    assert value("sluice_node_info", **info) == 1
    assert value("sluice_pool_gpus", pool=POOL) == 2
    assert value("sluice_pool_gpu_power_watts", pool=POOL) == 200
    for state in ("measured", "waiting", "silent"):
        assert value("sluice_pool_nodes", pool=POOL, state=state) == 1, state


@in_world
async def test_the_samples_of_all_nodes_are_on_one_page(world: World) -> None:
    first, second = await world.sender("a"), await world.sender("b", **GOLD)
    await world.lead()
    await world.send(second, 50)
    await world.send(first, 40, 60)
    assert world.gpus() == [("a", "GPU-0"), ("a", "GPU-1"), ("b", "GPU-0")]
    await world.send(first)
    assert world.gpus() == [("b", "GPU-0")]
    await world.sleep(SILENT_AFTER)
    assert world.gpus() == []


@in_world
async def test_samples_that_cannot_be_true_are_left_out_and_counted(world: World) -> None:
    sender = await world.sender("a")
    await world.lead()
    hostile = sample(uuid='GPU-0",Hostname="b', temperature_c=1)
    await sender.send(driver_version="580.95.05", gpus=[*samples(40), hostile])
    await world.sleep(1.0)
    assert world.gpus() == [("a", "GPU-0")]
    assert world.value("sluice_telemetry_refused_samples_total") == 1


@in_world
async def test_every_family_is_documented_and_in_base_units(world: World) -> None:
    sender = await world.sender("a", **GOLD)
    await world.lead()
    await world.send(sender, 40)
    text = world.role.metrics.render().decode()
    families = list(text_string_to_metric_families(text))
    ours = [each for each in families if each.name.startswith(("sluice_node", "sluice_pool"))]
    assert len(ours) == 19
    for family in ours:
        assert family.documentation.startswith(("Of a node: ", "Of a pool: ", "Of a node that"))
        assert family.samples, family.name
        assert not family.name.endswith(("_mib", "_percent", "_mw"))
    assert len({each.name for each in families}) == len(families)


@in_world
async def test_a_silent_node_disappears_and_is_counted_as_silent(world: World) -> None:
    sender = await world.sender("a", **GOLD)
    await world.lead()
    await world.send(sender, 40)
    await world.sleep(SILENT_AFTER)
    assert world.names("sluice_node_gpus") == set()
    assert world.names("sluice_node_info") == set()
    assert world.value("sluice_pool_nodes", pool=POOL, state="silent") == 1
    assert world.value("sluice_pool_gpu_power_watts", pool=POOL) is None
    await world.send(sender, 40)
    assert world.names("sluice_node_gpus") == {"a"}


@in_world
async def test_a_deleted_node_disappears_with_its_batches(world: World) -> None:
    uid = await world.node("a", **GOLD)
    sender = world.sender_of("a", uid)
    await world.lead()
    await world.send(sender, 40)
    await world.remove(NODES, "a")
    await world.sleep(1.0)
    assert world.names("sluice_node_gpus") == set()
    assert world.names("sluice_pool_nodes") == set()
    await world.send(sender, 40)
    assert world.names("sluice_node_gpus") == set()
    new_uid = await world.node("a", **GOLD)
    await world.send(sender, 40)
    assert world.names("sluice_node_gpus") == set()
    assert world.value("sluice_telemetry_batches_total", outcome="stranger") == 2
    await world.send(world.sender_of("a", new_uid), 40)
    assert world.names("sluice_node_gpus") == {"a"}
    assert world.value("sluice_telemetry_batches_total", outcome="taken") == 2


@in_world
async def test_a_node_without_a_telemetry_agent_disappears(world: World) -> None:
    sender = await world.sender("a", **GOLD)
    await world.lead()
    await world.send(sender, 40)
    await world.change("a", labels=dict.fromkeys(MEASURED, "false"))
    assert world.names("sluice_node_gpus") == set()


@in_world
async def test_a_node_moves_to_the_pool_that_its_record_names(world: World) -> None:
    uid = await world.node("a", **GOLD)
    sender = world.sender_of("a", uid)
    await world.lead()
    await world.send(sender, 40)
    assert world.names("sluice_pool_gpus") == {POOL}
    named = record(node_uid=uid, pool="clusterpolicy-x")
    await world.change("a", annotations=written(named))
    assert world.names("sluice_pool_gpus") == {"clusterpolicy-x"}
    assert world.names("sluice_node_gpus") == {"a"}


@in_world
async def test_xids_count_once_across_restarts(world: World) -> None:
    uid = await world.node("a", **GOLD)
    before, after = world.sender_of("a", uid), world.sender_of("a", uid)
    await world.lead()
    await world.send(before, 40)
    await world.send(before, 40, xids=2)
    await world.send(before, 40, xids=2)
    assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 2
    await world.send(after, 40)
    await world.send(after, 40, xids=1)
    assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 3
    assert world.value("sluice_pool_gpu_xid_errors_total", pool=POOL) == 3
    await world.lead()
    await world.send(after, 40, xids=1)
    assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 0
    await world.send(after, 40, xids=2)
    assert world.value("sluice_node_gpu_xid_errors_total", node="a") == 1
    assert world.value("sluice_pool_gpu_xid_errors_total", pool=POOL) == 1


@in_world
async def test_missing_batches_are_counted_but_not_those_of_unknown_nodes(world: World) -> None:
    senders = [await world.sender("a", **GOLD), world.sender_of("ghost", "none")]
    await world.lead()
    for sender in senders:
        await world.send(sender, 40)
    world.bus.stop()
    for sender in senders:
        await world.send(sender, 40)
    world.bus.start()
    await world.sleep(30.0)
    for sender in senders:
        await world.send(sender, 40)
    assert world.value("sluice_telemetry_missing_batches_total") == 1
    assert world.value("sluice_telemetry_batches_total", outcome="taken") == 2


@in_world
async def test_without_the_api_server_nodes_are_shown_and_pools_are_waited_for(
    world: World,
) -> None:
    uid = await world.node("a", **GOLD)
    sender = world.sender_of("a", uid)
    await world.server.stop()
    service = (await world.lead()).service
    await world.send(sender, 40)
    assert world.names("sluice_node_gpus") == {"a"}
    assert world.names("sluice_pool_gpus") == set()
    (why,) = service.unready_reasons()
    assert why.startswith("telemetry-cluster: nodes: ")
    await world.server.start()
    await world.sleep(60.0)
    assert service.unready_reasons() == []
    assert world.names("sluice_pool_gpus") == {POOL}


@in_world
async def test_a_node_without_a_recorded_pool_is_in_the_pool_of_its_policy(world: World) -> None:
    present = {"nvidia.com/gpu.present": "true"}
    sender = await world.sender("a", **present)
    await world.node("b")
    await world.lead()
    await world.send(sender, 40)
    assert world.names("sluice_pool_gpus") == {""}
    await world.apply(cluster_policy())
    await world.sleep(1.0)
    info = {"node": "a", "pool": POLICY_POOL, "driver_version": "580.95.05"}
    assert world.value("sluice_node_info", **info) == 1
    assert world.value("sluice_pool_nodes", pool=POLICY_POOL, state="measured") == 1
    assert world.value("sluice_pool_nodes", pool="", state="silent") == 1
    await world.change("b", labels=present)
    assert world.value("sluice_pool_nodes", pool=POLICY_POOL, state="silent") == 1
    await world.remove(CLUSTER_POLICIES, "cluster-policy")
    await world.sleep(1.0)
    assert world.names("sluice_pool_nodes") == {""}


@in_world
async def test_a_role_that_starts_without_the_bus_waits_for_it(world: World) -> None:
    sender = await world.sender("a", **GOLD)
    world.bus.stop()
    service = (await world.lead()).service
    await world.sleep(100.0)
    assert service.failure is None
    assert any("bus: " in why for why in service.unready_reasons())
    world.bus.start()
    await world.sleep(15.0)
    assert service.unready_reasons() == []
    await world.send(sender, 40)
    assert world.value("sluice_node_gpus", node="a") == 1
