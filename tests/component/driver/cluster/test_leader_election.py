"""Two processes of the role: the leader writes, and the standby takes over."""

from libs.kube.resources import LEASES
from services.driver.cluster.role import LEASE
from tests.component.driver.cluster.world import EXPORTER, EXPORTER_OFF, World, in_world
from tests.component.processes import NAMESPACE


@in_world
async def test_only_the_leader_writes_and_both_are_ready(world: World) -> None:
    await world.install_policy()
    first = await world.lead()
    second = await world.lead()
    assert (first.service.unready_reasons(), second.service.unready_reasons()) == ([], [])
    assert (first.transport.writes > 0, second.transport.writes) == (True, 0)
    lease = await world.kube.get(LEASES, LEASE, namespace=NAMESPACE)
    assert (lease.spec.holder_identity or "").startswith("driver-cluster_")


@in_world
async def test_a_standby_takes_over_when_the_leader_dies(world: World) -> None:
    await world.install_policy()
    first = await world.lead()
    second = await world.lead()
    await first.kill()
    await world.change_policy(**EXPORTER_OFF)
    await world.sleep(10)
    assert EXPORTER in await world.daemon_sets()
    await world.sleep(15)
    assert EXPORTER not in await world.daemon_sets()
    assert second.transport.writes > 0


@in_world
async def test_a_leader_leads_again_after_an_outage_of_the_server(world: World) -> None:
    await world.install_policy()
    role = await world.lead()
    await world.server.stop()
    await world.sleep(60)
    await world.server.start()
    await world.sleep(60)
    before = len(world.written)
    await world.change_policy(**EXPORTER_OFF)
    await world.sleep(10)
    assert EXPORTER not in await world.daemon_sets()
    assert sorted(each for each in world.written[before:] if each[0] == "delete") == [
        ("delete", "DaemonSet", EXPORTER),
        ("delete", "Service", "nvidia-dcgm-exporter"),
    ]
    assert role.service.unready_reasons() == []
