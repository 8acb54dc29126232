"""A policy that wants drivers on the host, which this version does not install."""

from libs.contracts.node import DRIVER_LABEL
from services.scheduler import resources
from tests.component.processes import AGENTS
from tests.component.scheduler.world import DEPLOYED, World, in_world
from tests.unit.policy.situations import from_corpus, node


@in_world
async def test_a_node_that_needs_a_driver_on_the_host_waits_with_the_reason(world: World) -> None:
    await world.install()
    world.add_machine("a", labels={**node("a").labels, **DEPLOYED}, gpus=2)
    await world.sleep(2)
    for writer in AGENTS:
        await world.start_agent("a", writer)
    for policy in from_corpus("gpu-cluster-policy.yaml"):
        await world.apply(policy)
    world.start()
    await world.sleep(120)
    why = await world.why("a")
    assert why.wait is not None
    assert why.wait.code == "target-missing"
    assert "installs no drivers on hosts" in why.wait.detail
    found = await world.kube.get(resources.NODES, "a")
    assert not found.spec.unschedulable
    assert DRIVER_LABEL not in found.metadata.labels
