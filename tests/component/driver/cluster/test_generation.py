"""The generation that a policy's status is about, by which pipelines know that an edit was seen."""

from copy import deepcopy
from typing import Any

from libs.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from libs.policy.crds import crd_manifest
from libs.policy.digest import target_digest
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from services.driver.cluster import resources
from services.driver.cluster.decide import NEVER
from tests.component.driver.cluster.world import CLUSTER_POLICIES, POLICY, World, in_world
from tests.unit.policy.situations import DRIVER, Situation, cluster_policy

ROLLOUT = "clusterpolicy-cluster-policy"


def target_of(version: str) -> str:
    """Return the target of a policy that wants this version."""
    policy = cluster_policy(driver={**DRIVER, "version": version})
    (pool,) = Situation([policy]).pools().pools
    return target_digest(pool.driver)


def open_rollout() -> dict[str, Any]:
    kind = resources.ROLLOUTS
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": ROLLOUT}}


async def write_rollout(world: World, **status: Any) -> None:
    """Write the status of the Rollout, as the scheduler does."""
    await world.patch(resources.ROLLOUTS, ROLLOUT, {"status": status}, subresource="status")
    await world.sleep(5)


@in_world
async def test_an_edit_is_observed_once_the_rollout_names_its_target(world: World) -> None:
    await world.install_policy()
    await world.kube.create(resources.ROLLOUTS, open_rollout())
    await world.lead()
    assert await world.observed_generation() == NEVER
    await write_rollout(world, target=target_of(DRIVER["version"]))
    assert await world.observed_generation() == 1
    await world.change_policy(driver={"version": "590.48.01"})
    await world.sleep(60)
    assert await world.observed_generation() == 1
    reason = (await world.conditions())["Reconciling"]["reason"]
    assert reason == "NotTakenUp"
    await write_rollout(world, target=target_of("590.48.01"))
    assert await world.observed_generation() == 2
    halt = {
        "type": "Halted",
        "status": "True",
        "reason": "FailureThreshold",
        "message": "1 of 1 failures: a",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    await write_rollout(world, phase="Halted", conditions=[halt])
    stalled = (await world.conditions())["Stalled"]
    assert (stalled["status"], stalled["message"]) == ("True", "1 of 1 failures: a")


@in_world
async def test_a_definition_without_the_field_is_not_written_again_and_again(world: World) -> None:
    """That of NVIDIA's own chart: the server drops what it does not know."""
    await world.install_policy()
    definition = deepcopy(crd_manifest(CLUSTER_POLICY))
    (version,) = definition["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    del status["properties"]["observedGeneration"], status["default"]
    await world.patch(
        CUSTOM_RESOURCE_DEFINITIONS,
        definition["metadata"]["name"],
        {"spec": {"versions": [version]}},
    )
    await world.lead()
    await world.sleep(60)
    view = await world.kube.get(CLUSTER_POLICIES, POLICY)
    assert "observedGeneration" not in view.status
    before = len(world.written)
    for number in range(5):
        await world.label("a", {"example.com/changed": str(number)})
        await world.sleep(30)
    assert len(world.written) == before
