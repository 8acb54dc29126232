"""Sign-in with the rights of an installation on a real API server, and tokens as it writes them."""

from libs.contracts.identities import Writer
from tests.component.signin.world import World, cut, metrics


async def test_an_agent_signs_in_until_its_pod_is_deleted(real_world: World) -> None:
    world = real_world
    child = await world.start()
    name = f"{world.namespace}-n1"
    agent = await world.pod(Writer.DRIVER, name, exists=True)
    async with world.connect(agent) as bus:
        assert bus.identity.node == name
        await child.wait_for_log("keys of tokens read")
        await world.delete(agent)
        await cut(bus)
        await child.wait_for_log("was deleted: its tokens are void")
    counted = await metrics(child)
    assert counted['answers_total{result="granted"}'] == 1
    assert counted['reviews_total{outcome="accepted"}'] == 1
    assert counted['reviews_total{outcome="failed"}'] == 0
    assert "forbidden" not in child.log.lower()
