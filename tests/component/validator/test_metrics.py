"""Evidence on the bus and Nodes on the server, as a page that Prometheus reads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Evidence, Report, ValidationStep
from libs.contracts.subjects import STATE, STREAMS
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.resources import NODES
from libs.policy.installation import RBAC_RULES
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim
from libs.testing.simulation import run as simulate
from services.validator.cluster.role import ValidatorClusterSettings, run

USER = "system:serviceaccount:gpu-operator:sluice-validator-cluster"
ME = Identity(writer=Writer.VALIDATOR_CLUSTER)
REASON = 'module "nvidia" is not in the kernel:\nsee C:\\log'
OWNER = "nvidia.com/gpu-operator.driver.owner"
PRESENT = {"nvidia.com/gpu.present": "true", "sluice.dev/driver": "d-1", OWNER: "blue"}
POOL = "nvidiadriver-blue"


class World:
    """A server, a bus, and processes of the role."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
        self.bus = LocalServer(env=sim.env("bus"))
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=sim.clock)
        self.metrics = Metrics(version="1")
        self.service = Service("validator-cluster", clock=sim.clock)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Streams, and the role."""
        scheduler = self.bus.connect(Identity(writer=Writer.SCHEDULER))
        for stream in STREAMS:
            await scheduler.ensure(stream)
        self._task = asyncio.create_task(self._live(), name="role")
        await self.sim.clock.sleep(5)

    async def _live(self) -> None:
        async with self.service as service:
            await run(
                ValidatorClusterSettings(),
                kube=self.server.transport(user=USER),
                bus=self.bus.connect(ME),
                env=self.sim.env("role", metrics=self.metrics),
                service=service,
            )

    async def stop(self) -> None:
        """In order."""
        self.service.stop("the test is over")
        if self._task is not None:
            await self._task
        await self.server.stop()

    async def node(self, name: str, **more: str) -> str:
        """One with GPUs; its uid."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": PRESENT | more},
            "status": {"nodeInfo": {"bootID": "b"}},
        }
        made = await self.kube.request("POST", "/api/v1/nodes", body=body)
        return msgspec.json.decode(made)["metadata"]["uid"]

    async def prove(self, name: str, uid: str, *, failing: str = "") -> None:
        """Its validator reports."""
        step = ValidationStep(name="driver", passed=not failing, message=failing)
        evidence = Evidence(
            epoch=1, token=1, op=1, passed=not failing, label="d-1", node_uid=uid, boot_id="b",
            kernel="5.15", steps=(step,), at=1000.5,
        )  # fmt: skip
        report = Report.of(
            evidence, node=name, node_uid=uid, boot_id="b", component="validator", at=1.0
        )
        agent = self.bus.connect(Identity(writer=Writer.VALIDATOR, node=name))
        at = subjects.State(cluster="default", node=name, component="validator", kind="evidence")
        await agent.store(STATE, str(at), encode(report))
        agent.kill()
        await self.sim.clock.sleep(1)

    def shown(self, family: str) -> dict[tuple[str, ...], float]:
        """Samples of the page, by the values of their labels in the order of their names."""
        text = self.metrics.render().decode()
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for each in text_string_to_metric_families(text)
            for sample in each.samples
            if sample.name == family
        }


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """A story in virtual time."""

    async def main(sim: Sim) -> None:
        world = World(sim)
        try:
            await story(world)
        finally:
            await world.stop()

    with capture_logs():
        simulate(main, seed=1)


def test_each_node_and_each_pool_with_what_was_proven() -> None:
    async def story(world: World) -> None:
        await world.start()
        uids = {name: await world.node(name) for name in ("a", "b", "c")}
        other = await world.node("d", **{OWNER: "green"})
        await world.prove("a", uids["a"])
        await world.prove("b", uids["b"], failing=REASON)
        await world.prove("d", other)
        assert world.shown("gpu_operator_node_driver_validation") == {
            ("a",): 1, ("b",): 0, ("c",): 0, ("d",): 1,
        }  # fmt: skip
        stamped = "gpu_operator_node_driver_validation_last_success_ts_seconds"
        assert world.shown(stamped) == {("a",): 1000.5, ("d",): 1000.5}
        assert world.shown("sluice_validator_nodes") == {
            (POOL, "proven"): 1, (POOL, "failed"): 1, (POOL, "unproven"): 1,
            ("nvidiadriver-green", "proven"): 1, ("nvidiadriver-green", "failed"): 0,
            ("nvidiadriver-green", "unproven"): 0,
        }  # fmt: skip
        assert world.shown("sluice_validator_nodes_failed") == {(POOL, "driver"): 1}
        assert world.shown("sluice_validator_node_failed") == {("b", POOL, REASON, "driver"): 1}
        assert world.service.unready_reasons() == []

    play(story)


def test_what_is_mended_or_gone_is_not_shown_any_more() -> None:
    async def story(world: World) -> None:
        await world.start()
        uid = await world.node("a")
        await world.prove("a", uid, failing=REASON)
        assert world.shown("sluice_validator_nodes")[POOL, "failed"] == 1
        await world.prove("a", uid)
        assert world.shown("sluice_validator_node_failed") == {}
        boot = {"status": {"nodeInfo": {"bootID": "another"}}}
        path = NODES.path(name="a", subresource="status")
        await world.kube.request("PATCH", path, body=boot, content_type=MERGE_PATCH)
        await world.sim.clock.sleep(1)
        assert world.shown("sluice_validator_nodes")[POOL, "unproven"] == 1
        await world.kube.request("DELETE", NODES.path(name="a"))
        await world.sim.clock.sleep(1)
        assert world.shown("sluice_validator_nodes") == {}
        assert world.shown("gpu_operator_node_driver_validation") == {}

    play(story)


@pytest.mark.parametrize("code", [429, 500])
def test_it_says_what_it_waits_for_and_writes_nothing(code: int) -> None:
    async def story(world: World) -> None:
        world.server.faults.add(Fault(effect=RefuseRequest(code), kind="Node", user=USER))
        await world.start()
        (why,) = world.service.unready_reasons()
        assert why.startswith("validator-cluster: nodes: ")
        world.server.faults.clear()
        await world.node("a")
        await world.sim.clock.sleep(120)
        assert world.service.unready_reasons() == []
        assert [one for one in world.server.journal.revisions if one.user == USER] == []

    play(story)


def test_it_has_the_rights_that_it_needs() -> None:
    (nodes,) = [right for right in RBAC_RULES[ME.writer] if right.resources == ("nodes",)]
    assert nodes.verbs == ("get", "list", "watch")
