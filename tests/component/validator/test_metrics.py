"""Evidence on the bus and Nodes on the server become metrics."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.contracts.identities import Writer
from libs.contracts.reports import Evidence, ValidationStep
from libs.kube.resources import NODES
from libs.policy.installation import RBAC_RULES
from libs.testing.apiserver.faults import Fault, RefuseRequest
from tests.component import world
from tests.component.processes import user_of
from tests.support import played_by

REASON = 'module "nvidia" is not in the kernel:\nsee C:\\log'
OWNER = "nvidia.com/gpu-operator.driver.owner"
PRESENT = {"nvidia.com/gpu.present": "true", "sluice.dev/driver": "d-1", OWNER: "blue"}
POOL = "nvidiadriver-blue"


class World(world.World):
    WRITER = Writer.VALIDATOR_CLUSTER
    CONTROLLERS = False

    async def prove(self, name: str, *, failure: str = "") -> None:
        """Report evidence as the node's validator does."""
        step = ValidationStep(name="driver", passed=not failure, message=failure)
        uid = (await self.kube.get(NODES, name)).metadata.uid
        evidence = Evidence(
            epoch=1, token=1, op=1, passed=not failure, label="d-1", node_uid=uid, boot_id="b",
            kernel="5.15", steps=(step,), at=1000.5,
        )  # fmt: skip
        await self.report(name, evidence, writer=Writer.VALIDATOR, boot="b", kind="evidence")
        await self.sleep(1)

    def samples(self, family: str) -> dict[tuple[str, ...], float]:
        """Return the samples on the page, by the values of their labels in the order of names."""
        text = self.roles[0].metrics.render().decode()
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for each in text_string_to_metric_families(text)
            for sample in each.samples
            if sample.name == family
        }


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def installed(world: World) -> None:
        await world.install()
        await story(world)

    world.run_world(installed, World)


in_world = played_by(play)


@in_world
async def test_each_node_and_pool_is_shown_with_its_evidence(world: World) -> None:
    role = await world.lead()
    for name in ("a", "b", "c"):
        await world.add_node(name, PRESENT, boot="b")
    await world.add_node("d", {**PRESENT, OWNER: "green"}, boot="b")
    await world.prove("a")
    await world.prove("b", failure=REASON)
    await world.prove("d")
    assert world.samples("gpu_operator_node_driver_validation") == {
        ("a",): 1, ("b",): 0, ("c",): 0, ("d",): 1,
    }  # fmt: skip
    success = "gpu_operator_node_driver_validation_last_success_ts_seconds"
    assert world.samples(success) == {("a",): 1000.5, ("d",): 1000.5}
    assert world.samples("sluice_validator_nodes") == {
        (POOL, "proven"): 1, (POOL, "failed"): 1, (POOL, "unproven"): 1,
        ("nvidiadriver-green", "proven"): 1, ("nvidiadriver-green", "failed"): 0,
        ("nvidiadriver-green", "unproven"): 0,
    }  # fmt: skip
    assert world.samples("sluice_validator_nodes_failed") == {(POOL, "driver"): 1}
    assert world.samples("sluice_validator_node_failed") == {("b", POOL, REASON, "driver"): 1}
    assert role.service.unready_reasons() == []


@in_world
async def test_recovered_and_deleted_nodes_are_no_longer_shown(world: World) -> None:
    await world.lead()
    await world.add_node("a", PRESENT, boot="b")
    await world.prove("a", failure=REASON)
    assert world.samples("sluice_validator_nodes")[POOL, "failed"] == 1
    await world.prove("a")
    assert world.samples("sluice_validator_node_failed") == {}
    boot = {"status": {"nodeInfo": {"bootID": "another"}}}
    await world.patch(NODES, "a", boot, subresource="status")
    await world.sleep(1)
    assert world.samples("sluice_validator_nodes")[POOL, "unproven"] == 1
    await world.remove(NODES, "a")
    await world.sleep(1)
    assert world.samples("sluice_validator_nodes") == {}
    assert world.samples("gpu_operator_node_driver_validation") == {}


@pytest.mark.parametrize("code", [429, 500])
@in_world
async def test_the_role_is_unready_until_nodes_are_listed_and_writes_nothing(
    world: World, code: int
) -> None:
    user = user_of(World.WRITER)
    world.server.faults.add(Fault(effect=RefuseRequest(code), kind="Node", user=user))
    role = await world.lead()
    (why,) = role.service.unready_reasons()
    assert why.startswith("validator-cluster: nodes: ")
    world.server.faults.clear()
    await world.add_node("a", PRESENT, boot="b")
    await world.sleep(120)
    assert role.service.unready_reasons() == []
    assert world.revisions() == []


def test_the_role_may_read_nodes_and_no_more() -> None:
    (rule,) = [rule for rule in RBAC_RULES[World.WRITER] if rule.resources == ("nodes",)]
    assert rule.verbs == ("get", "list", "watch")
